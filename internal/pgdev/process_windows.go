package pgdev

import (
	"context"
	"os/exec"
	"strconv"
	"syscall"
)

// ownGroup keeps the console's Ctrl-C from cmd.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// interrupt asks for a fast shutdown: transactions are rolled back, clients cut off.
func (s *Server) interrupt(ctx context.Context) error { return s.signal(ctx, "INT") }

// quit asks for an immediate shutdown: the next start recovers.
func (s *Server) quit(ctx context.Context) error { return s.signal(ctx, "QUIT") }

// signal uses pg_ctl, as PostgreSQL emulates signals by a pipe of its own here.
func (s *Server) signal(ctx context.Context, name string) error {
	return command(ctx, s.bin.Path("pg_ctl"), "kill", name, strconv.Itoa(s.cmd.Process.Pid)).Run()
}

// kill ends the server's first process; the others see that and end.
func (s *Server) kill() { _ = s.cmd.Process.Kill() }

// serving reports whether a server runs in dataDir. Only PostgreSQL's own
// processes have the pipe that pg_ctl looks for, so a reused id cannot deceive it.
func serving(ctx context.Context, bin Binaries, dataDir string, _ int) bool {
	return command(ctx, bin.Path("pg_ctl"), "status", "-D", dataDir).Run() == nil
}
