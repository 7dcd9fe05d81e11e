package lambdatest

import (
	"os/exec"
	"syscall"
)

// ownGroup starts cmd in a group of its own, and lets it die with this process:
// a stopped orphan would stay for ever.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
