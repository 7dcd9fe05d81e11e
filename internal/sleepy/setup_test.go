package sleepy_test

import (
	"os"
	"testing"
)

// pgdevDir is a folder that Postgres' user can enter where these tests run as root.
func pgdevDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sleepy-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
