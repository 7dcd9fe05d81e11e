package pgdev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// builds are the pinned npm versions of the embedded builds, by major. Each is
// a pre-release by name, so a range or "latest" would not do.
var builds = map[int]string{
	14: "14.23.0-beta.17",
	15: "15.18.0-beta.17",
	16: "16.14.0-beta.17",
	17: "17.10.0-beta.17",
	18: "18.4.0-beta.17",
}

// platform names this machine as the embedded builds do, such as "linux-x64".
func platform() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return runtime.GOOS + "-" + arch
}

// platforms that have embedded builds.
var platforms = map[string]bool{
	"linux-x64": true, "linux-arm64": true,
	"darwin-x64": true, "darwin-arm64": true,
	"windows-x64": true,
}

// fetch downloads a build of major into the cache and returns it.
func fetch(ctx context.Context, major int, opts Options) (Binaries, error) {
	switch {
	case opts.NoFetch:
		return Binaries{}, errors.New("fetching is off")
	case builds[major] == "":
		return Binaries{}, fmt.Errorf("there is no build of major %d to fetch", major)
	case !platforms[platform()]:
		return Binaries{}, fmt.Errorf("there is no build for %s to fetch", platform())
	}
	if err := os.MkdirAll(opts.CacheDir, 0o755); err != nil {
		return Binaries{}, fmt.Errorf("make the cache: %w", err)
	}
	log := orSilent(opts.Logger)
	var failed []error
	if npm, err := exec.LookPath("npm"); err == nil {
		log.InfoContext(ctx, "fetching PostgreSQL with npm", "version", builds[major], "into", opts.CacheDir)
		bin, err := install(ctx, opts.CacheDir, builds[major], func(ctx context.Context, scratch string) (string, error) {
			return npmPack(ctx, npm, scratch, builds[major])
		})
		if err == nil {
			return bin, nil
		}
		failed = append(failed, fmt.Errorf("fetch with npm: %w", err))
	}
	if version, ok := libraryVersions[major]; ok && ctx.Err() == nil {
		log.InfoContext(ctx, "fetching PostgreSQL", "version", string(version), "into", opts.CacheDir)
		bin, err := install(ctx, opts.CacheDir, string(version), func(ctx context.Context, scratch string) (string, error) {
			return libraryFetch(ctx, scratch, version)
		})
		if err == nil {
			return bin, nil
		}
		failed = append(failed, fmt.Errorf("fetch the embedded build: %w", err))
	}
	return Binaries{}, errors.Join(failed...)
}

// install lets get fill a scratch folder and moves the installation it returns
// to its place in the cache. The move is one rename of something already run
// once, so a reader sees a whole installation or none, and of two processes
// that fetch at once one wins and the other uses the winner's.
func install(ctx context.Context, cacheDir, version string, get func(ctx context.Context, scratch string) (string, error)) (Binaries, error) {
	scratch, err := os.MkdirTemp(cacheDir, ".fetch-")
	if err != nil {
		return Binaries{}, err
	}
	defer os.RemoveAll(scratch)
	root, err := get(ctx, scratch)
	if err != nil {
		return Binaries{}, err
	}
	if _, err := inspect(ctx, filepath.Join(root, "bin")); err != nil {
		return Binaries{}, fmt.Errorf("what was fetched does not run here: %w", err)
	}
	final := filepath.Join(cacheDir, version+"-"+platform())
	renameErr := os.Rename(root, final)
	bin, err := inspect(ctx, filepath.Join(final, "bin"))
	if err != nil && renameErr != nil {
		// What is there is broken, so no winner of a race. Replace it.
		if err := os.RemoveAll(final); err != nil {
			return Binaries{}, fmt.Errorf("remove a broken installation: %w", err)
		}
		if err := os.Rename(root, final); err != nil {
			return Binaries{}, err
		}
		return inspect(ctx, filepath.Join(final, "bin"))
	}
	return bin, err
}

// defaultCacheDir is where fetched builds are kept.
func defaultCacheDir() (string, error) {
	if isRoot() {
		// Root's own cache is closed to the user that the server will run as.
		return "/var/cache/doze/postgres", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("CacheDir is empty and the user has no cache folder; set CacheDir: %w", err)
	}
	return filepath.Join(dir, "doze", "postgres"), nil
}

func orSilent(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
