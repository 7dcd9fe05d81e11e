package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// clusterName marks the servers that this package started, in their command
// line, in postmaster.opts and in the process list.
const clusterName = "doze-dev"

// clearOrphan makes dataDir free after a process that could not clean up: it
// stops a server that is still running there, and removes the pid file of a
// dead one if its id now belongs to another process, which PostgreSQL would
// take for the server. The caller has the lock, so no living process of ours
// uses the folder.
func clearOrphan(ctx context.Context, cfg Config, who account) error {
	found, ok := readPIDFile(cfg.DataDir)
	if !ok {
		return nil
	}
	if !serving(ctx, cfg.Binaries, cfg.DataDir, found.pid) {
		// No data is at risk: should backends of the dead server live on,
		// PostgreSQL finds them by their shared memory, which is keyed by the
		// folder, and refuses to start.
		err := os.Remove(filepath.Join(cfg.DataDir, "postmaster.pid"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the pid file of a dead server: %w", err)
		}
		return nil
	}
	opts, err := os.ReadFile(filepath.Join(cfg.DataDir, "postmaster.opts"))
	if err != nil || !strings.Contains(string(opts), "cluster_name="+clusterName) {
		return fmt.Errorf("DataDir %q: a PostgreSQL that was started by other means runs there, process %d; stop it or choose another folder",
			cfg.DataDir, found.pid)
	}
	cfg.Logger.InfoContext(ctx, "stopping the PostgreSQL that an earlier process left", "pid", found.pid)
	var failed error
	for _, mode := range []string{"fast", "immediate"} {
		stop := command(ctx, cfg.Binaries.Path("pg_ctl"), "stop", "-D", cfg.DataDir, "-m", mode, "-w", "-t", "20")
		stop.Dir = cfg.DataDir
		who.run(stop)
		out, err := stop.CombinedOutput()
		if err == nil {
			return nil
		}
		failed = errors.Join(failed, fmt.Errorf("pg_ctl stop -m %s: %w: %s", mode, err, strings.TrimSpace(string(out))))
	}
	return fmt.Errorf("stop the PostgreSQL that an earlier process left, process %d: %w", found.pid, failed)
}
