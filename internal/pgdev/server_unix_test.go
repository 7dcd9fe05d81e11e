//go:build unix

package pgdev_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dozequeue/doze/internal/pgdev"
)

// killServerOf kills the first process of the server of a data directory.
func killServerOf(t *testing.T, dir string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestStart_AsRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root drops to another user")
	}
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := pgdev.Start(testContext(t), pgdev.Config{DataDir: filepath.Join(closed, "data")})
	wantError(t, err, "DataDir", "cannot enter", "chmod o+x")

	dir := dataDir(t)
	server := start(t, pgdev.Config{DataDir: dir})
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if owner == 0 {
		t.Error("the data directory is root's")
	}

	// An existing cluster keeps its owner.
	if err := server.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	const somebody = 12345
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, somebody, somebody)
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, pgdev.Config{DataDir: dir})
	if info, err = os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Uid; got != somebody {
		t.Errorf("the cluster of user %d now belongs to %d", somebody, got)
	}
}

// The terminal's Ctrl-C goes to a process group, and the server has its own.
func TestServer_OwnGroup(t *testing.T) {
	t.Parallel()
	server := start(t, pgdev.Config{DataDir: dataDir(t)})
	content, err := os.ReadFile(filepath.Join(server.DataDir(), "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	group, err := syscall.Getpgid(pid)
	if err != nil || group == syscall.Getpgrp() {
		t.Errorf("the server is in group %d (%v), and so is this test", group, err)
	}
}
