package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dozequeue/doze/internal/pgdev"
)

// rootsFolder is where root's Postgres keeps its files if the folder that was asked for will not do.
const rootsFolder = "/var/lib/doze"

// postgresFolder returns the folder for Postgres' own files in data. As root Postgres runs as another
// user, who may be unable to enter data or a folder above it, such as /root; then the files
// lie elsewhere, and a link in data leads there.
func postgresFolder(data string) (string, error) {
	dir := filepath.Join(data, "postgres")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return "", fmt.Errorf("--data %s: %w", data, err)
	}
	target, err := os.Readlink(dir)
	if err == nil {
		return target, nil
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || pgdev.Reachable(data) {
		return dir, nil // what is there already says for itself if it will not do
	}
	if err := os.MkdirAll(rootsFolder, 0o755); err != nil {
		return "", fmt.Errorf("--data %s: Postgres' user cannot enter it, and there is no other place: %w", data, err)
	}
	elsewhere, err := os.MkdirTemp(rootsFolder, "dev-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(elsewhere, 0o755); err != nil {
		return "", err
	}
	elsewhere = filepath.Join(elsewhere, "postgres")
	if err := os.Symlink(elsewhere, dir); err != nil {
		return "", err
	}
	return elsewhere, nil
}
