package pgdev

import (
	"fmt"
	"os"
)

// lockDir takes the lock of a data directory: a file beside it, locked for as
// long as this process lives. It tells a server that was left over (nobody has
// the lock) from one that another living process uses. The file stays when the
// lock is given up, since removing it would race with the next one.
func lockDir(dataDir string) (*os.File, error) {
	file, err := tryLock(dataDir + ".lock")
	if err != nil {
		return nil, fmt.Errorf("lock DataDir %q: %w", dataDir, err)
	}
	if file == nil {
		return nil, fmt.Errorf("DataDir %q: another running process uses it; stop that one or choose another folder", dataDir)
	}
	return file, nil
}
