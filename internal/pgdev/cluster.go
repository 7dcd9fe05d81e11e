package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DataMajor returns the PostgreSQL major version that made the data directory
// dir, or 0 if dir is missing or empty. An error says that dir holds something
// else.
func DataMajor(dir string) (int, error) {
	version, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if err == nil {
		major, err := strconv.Atoi(strings.TrimSpace(string(version)))
		if err != nil {
			return 0, fmt.Errorf("DataDir %q: PG_VERSION is %q, want a major version", dir, version)
		}
		return major, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("DataDir %q: %w", dir, err)
	}
	return 0, fmt.Errorf("DataDir %q: want a PostgreSQL data directory or an empty folder, and this is neither; choose another", dir)
}

// initCluster makes the data directory. It is made beside its place and moved
// there when whole, so that an initdb that was cut off leaves nothing that
// looks like a database.
func initCluster(ctx context.Context, cfg Config, who account) error {
	unfinished, _ := filepath.Glob(cfg.DataDir + ".init-*") // of one that was cut off; the lock is ours
	for _, dir := range unfinished {
		os.RemoveAll(dir)
	}
	parent := filepath.Dir(cfg.DataDir)
	scratch, err := os.MkdirTemp(parent, filepath.Base(cfg.DataDir)+".init-")
	if err != nil {
		return fmt.Errorf("make DataDir: %w", err)
	}
	defer os.RemoveAll(scratch)
	if err := who.own(scratch); err != nil {
		return err
	}
	args := []string{"-D", scratch, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"}
	if !cfg.Durable {
		args = append(args, "--no-sync")
	}
	initdb := command(ctx, cfg.Binaries.Path("initdb"), args...)
	initdb.Dir = scratch // its caller's folder may be closed to the user it runs as
	ownGroup(initdb)     // Ctrl-C ends it through ctx
	who.run(initdb)
	if out, err := initdb.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if err := os.Remove(cfg.DataDir); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty folder
		return fmt.Errorf("make DataDir: %w", err)
	}
	if err := os.Rename(scratch, cfg.DataDir); err != nil {
		return fmt.Errorf("make DataDir: %w", err)
	}
	return nil
}
