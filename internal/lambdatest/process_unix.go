//go:build unix

package lambdatest

import (
	"os/exec"
	"syscall"
)

// signal reaches the whole group, so that what a function started goes with it.
func signal(cmd *exec.Cmd, sig syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, sig) }

func halt(cmd *exec.Cmd) { signal(cmd, syscall.SIGSTOP) }
func thaw(cmd *exec.Cmd) { signal(cmd, syscall.SIGCONT) }

// destroy may come after the process has gone; its group then is empty, and a
// number is not used again while the process has not been waited for.
func destroy(cmd *exec.Cmd) {
	signal(cmd, syscall.SIGKILL)
	signal(cmd, syscall.SIGCONT)
}
