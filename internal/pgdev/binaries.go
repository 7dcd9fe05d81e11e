package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// OldestMajor is the oldest PostgreSQL major version that is accepted.
const OldestMajor = 14

// DefaultMajor is the major version that is fetched when none is asked for.
const DefaultMajor = 18

// ErrNotFound is in the error of [Find] when this machine has no fitting
// PostgreSQL and none could be fetched. The error's text says how to install one.
var ErrNotFound = errors.New("pgdev: no PostgreSQL found")

// Binaries are the programs of one PostgreSQL installation. The zero value
// means that none was chosen.
type Binaries struct {
	// Dir is the absolute path of the folder with initdb, postgres and pg_ctl.
	Dir string
	// Version as PostgreSQL prints it, such as "18.4".
	Version string
	// Major is the first number of Version.
	Major int
}

// Path returns the path of one of the programs, such as "initdb".
func (b Binaries) Path(program string) string {
	return filepath.Join(b.Dir, executable(program))
}

// Options say which PostgreSQL [Find] should choose. The zero value takes the
// first one found, and fetches [DefaultMajor] if there is none.
type Options struct {
	// BinDir is the folder with initdb, postgres and pg_ctl. If it is set,
	// Find looks nowhere else and fetches nothing. Empty: look around.
	BinDir string
	// Version is the major version wanted, such as "18". Empty: any from
	// OldestMajor on.
	Version string
	// CacheDir holds what was fetched, in one folder a version. Empty:
	// doze/postgres in the user's cache folder; for root on Unix
	// /var/cache/doze/postgres, as the server must be able to read it and runs
	// as another user.
	CacheDir string
	// NoFetch makes Find fail rather than download anything.
	NoFetch bool
	// Logger is told before something is downloaded. Nil: silent.
	Logger *slog.Logger
}

// Find returns a PostgreSQL installation of this machine. It looks in
// Options.BinDir or, if that is empty, on PATH, in the folders that package
// managers and installers use (newest major first), and in the cache. If
// nothing fits, it downloads a pinned build into the cache (with npm if that is
// installed, else straight from the repository of the embedded builds).
//
// The error wraps [ErrNotFound] if nothing fits and nothing could be fetched;
// otherwise it names the option that is wrong.
func Find(ctx context.Context, opts Options) (Binaries, error) {
	major, err := parseMajor(opts.Version)
	if err != nil {
		return Binaries{}, err
	}
	if opts.BinDir != "" {
		return fromBinDir(ctx, opts.BinDir, major)
	}
	if opts.CacheDir == "" {
		if opts.CacheDir, err = defaultCacheDir(); err != nil {
			return Binaries{}, err
		}
	}
	var passed []string
	seen := map[string]bool{}
	for _, dir := range append(installed(), cached(opts.CacheDir)...) {
		if seen[dir] {
			continue
		}
		seen[dir] = true
		bin, err := inspect(ctx, dir)
		if ctx.Err() != nil {
			return Binaries{}, ctx.Err()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			passed = append(passed, err.Error())
		case bin.Major < OldestMajor || major != 0 && bin.Major != major:
			passed = append(passed, fmt.Sprintf("%s is %s", dir, bin.Version))
		default:
			return bin, nil
		}
	}
	if major == 0 {
		major = DefaultMajor
	}
	bin, err := fetch(ctx, major, opts)
	if err == nil || ctx.Err() != nil {
		return bin, err
	}
	if len(passed) > 0 {
		err = fmt.Errorf("%w; passed over: %s", err, strings.Join(passed, ", "))
	}
	return Binaries{}, fmt.Errorf("%w: want major %d; %w; to install it: %s", ErrNotFound, major, err, installCommand(major))
}

// fromBinDir checks a folder that was asked for by name.
func fromBinDir(ctx context.Context, dir string, major int) (Binaries, error) {
	bin, err := inspect(ctx, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Binaries{}, fmt.Errorf("BinDir %q: want a folder with initdb, postgres and pg_ctl: %w", dir, err)
	case err != nil:
		return Binaries{}, fmt.Errorf("BinDir %q: %w", dir, err)
	case bin.Major < OldestMajor:
		return Binaries{}, fmt.Errorf("BinDir %q: PostgreSQL %s is too old, want %d or newer; to install it: %s",
			dir, bin.Version, OldestMajor, installCommand(DefaultMajor))
	case major != 0 && bin.Major != major:
		return Binaries{}, fmt.Errorf("BinDir %q: PostgreSQL is %s, want major %d; change BinDir or Version", dir, bin.Version, major)
	}
	return bin, nil
}

// inspect returns the installation in dir. The error is fs.ErrNotExist if one
// of the three programs is missing.
func inspect(ctx context.Context, dir string) (Binaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, err
	}
	bin := Binaries{Dir: dir}
	for _, program := range []string{"postgres", "initdb", "pg_ctl"} {
		if _, err := os.Stat(bin.Path(program)); err != nil {
			return Binaries{}, err
		}
	}
	out, err := command(ctx, bin.Path("postgres"), "--version").CombinedOutput()
	if err != nil {
		return Binaries{}, fmt.Errorf("run %s --version: %w: %s", bin.Path("postgres"), err, strings.TrimSpace(string(out)))
	}
	if bin.Version, bin.Major, err = parseVersion(string(out)); err != nil {
		return Binaries{}, fmt.Errorf("run %s --version: %w", bin.Path("postgres"), err)
	}
	return bin, nil
}

// parseVersion reads lines such as "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)".
func parseVersion(line string) (version string, major int, err error) {
	_, rest, ok := strings.Cut(line, "(PostgreSQL) ")
	fields := strings.Fields(rest)
	if !ok || len(fields) == 0 {
		return "", 0, fmt.Errorf("answer %q: want a PostgreSQL version", strings.TrimSpace(line))
	}
	digits := fields[0]
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end] // "19devel" and "18.4" alike
	}
	if major, err = strconv.Atoi(digits); err != nil {
		return "", 0, fmt.Errorf("answer %q: want a PostgreSQL version", strings.TrimSpace(line))
	}
	return fields[0], major, nil
}

// parseMajor reads Options.Version; 0 stands for any.
func parseMajor(version string) (int, error) {
	if version == "" {
		return 0, nil
	}
	major, err := strconv.Atoi(version)
	if err != nil {
		return 0, fmt.Errorf("Version %q: want a major version, such as %q", version, strconv.Itoa(DefaultMajor))
	}
	if major < OldestMajor {
		return 0, fmt.Errorf("Version %q: PostgreSQL %d is too old, want %d or newer", version, major, OldestMajor)
	}
	return major, nil
}
