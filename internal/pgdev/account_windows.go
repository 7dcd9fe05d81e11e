package pgdev

import "os/exec"

// account does nothing on Windows: there is no user to drop to.
type account struct{}

func isRoot() bool                          { return false }
func ordinary() (account, error)            { return account{}, nil }
func ownerOf(string) (account, error)       { return account{}, nil }
func (account) run(*exec.Cmd)               {}
func (account) own(string) error            { return nil }
func (account) mustReach(_, _ string) error { return nil }

// Reachable reports whether the user that PostgreSQL will run as can enter dir: always, since it is the
// user of this process.
func Reachable(string) bool { return true }
