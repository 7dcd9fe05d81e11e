//go:build unix

package pgdev

import (
	"context"
	"os/exec"
	"syscall"
)

// ownGroup keeps the terminal's Ctrl-C from cmd.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// interrupt asks for a fast shutdown: transactions are rolled back, clients cut off.
func (s *Server) interrupt(context.Context) error { return s.cmd.Process.Signal(syscall.SIGINT) }

// quit asks for an immediate shutdown: the next start recovers.
func (s *Server) quit(context.Context) error { return s.cmd.Process.Signal(syscall.SIGQUIT) }
