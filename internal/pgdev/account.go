package pgdev

import (
	"fmt"
	"os/exec"
)

// Unprivileged makes cmd run as the ordinary user that a server would run as,
// and gives the folders dirs, which must exist, to that user. It is for other
// programs that refuse root, such as PgBouncer. If this process is not root
// (or on Windows) it changes nothing.
//
// The error names the folder that cannot be given or reached.
func Unprivileged(cmd *exec.Cmd, dirs ...string) error {
	who, err := ordinary()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := who.own(dir); err != nil {
			return err
		}
		if err := who.mustReach("folder", dir); err != nil {
			return err
		}
	}
	who.run(cmd)
	return nil
}

// unreachable is the error for a folder that the server's user cannot enter.
func unreachable(name, what, dir, blocked string) error {
	return fmt.Errorf("%s %q: PostgreSQL runs as user %s, who cannot enter %q; choose a folder elsewhere, or run: chmod o+x %s",
		what, dir, name, blocked, blocked)
}
