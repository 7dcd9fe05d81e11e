//go:build unix

package pgdev

import (
	"errors"
	"os"
	"syscall"
)

// tryLock returns nil and no error if another process has the lock. The
// server does not inherit it, as Go opens every file close-on-exec.
func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return file, nil
}
