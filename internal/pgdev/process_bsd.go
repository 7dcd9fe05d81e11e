//go:build unix && !linux

package pgdev

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// kill ends every process of the server. The first process is stopped before
// its children are listed, so that it can neither start more nor react to
// their deaths.
func (s *Server) kill() {
	if s.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return // it has ended, and its id may be another's by now
	}
	out, _ := exec.Command("pgrep", "-P", strconv.Itoa(s.cmd.Process.Pid)).Output()
	for _, field := range strings.Fields(string(out)) {
		if child, err := strconv.Atoi(field); err == nil {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	}
	_ = s.cmd.Process.Kill()
}

// serving reports whether process pid is a server of dataDir, by its command
// line, which names the folder. A dead process that is not yet collected is none.
func serving(ctx context.Context, _ Binaries, dataDir string, pid int) bool {
	out, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "stat=,args=", "-p", strconv.Itoa(pid)).Output()
	line := strings.TrimSpace(string(out))
	return err == nil && !strings.HasPrefix(line, "Z") && strings.Contains(line, dataDir)
}
