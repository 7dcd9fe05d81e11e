package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// libraryVersions are the builds that the embedded-postgres library knows.
var libraryVersions = map[int]embedded.PostgresVersion{
	14: embedded.V14,
	15: embedded.V15,
	16: embedded.V16,
	17: embedded.V17,
	18: embedded.V18,
}

// libraryFetch downloads a build without npm. The library cannot fetch alone,
// so it is asked to start a throwaway cluster and judged by the binaries it
// unpacked on the way; the start itself fails for root, and that is no matter.
func libraryFetch(ctx context.Context, scratch string, version embedded.PostgresVersion) (string, error) {
	port, err := freePort()
	if err != nil {
		return "", err
	}
	// A folder of its own outside scratch: the library cannot be interrupted,
	// and may still write when ctx has ended and scratch is gone.
	work, err := os.MkdirTemp("", "doze-fetch-")
	if err != nil {
		return "", err
	}
	binaries := filepath.Join(work, "binaries")
	throwaway := embedded.NewDatabase(embedded.DefaultConfig().
		Version(version).
		Port(uint32(port)).
		BinariesPath(binaries).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "run")).
		Logger(io.Discard))
	started := make(chan error, 1)
	go func() {
		err := throwaway.Start()
		if err == nil {
			err = throwaway.Stop()
		}
		started <- err
	}()
	select {
	case err = <-started:
		defer os.RemoveAll(work)
	case <-ctx.Done():
		go func() {
			if err := <-started; err != nil {
				// Nobody waits for it any more.
			}
			os.RemoveAll(work)
		}()
		return "", ctx.Err()
	}
	if _, statErr := os.Stat(filepath.Join(binaries, "bin")); statErr != nil {
		return "", errors.Join(err, fmt.Errorf("nothing was unpacked: %w", statErr))
	}
	// Copied, as the two may be on different file systems.
	root := filepath.Join(scratch, "unpacked")
	if err := os.CopyFS(root, os.DirFS(binaries)); err != nil {
		return "", fmt.Errorf("copy the binaries: %w", err)
	}
	return root, nil
}
