package pgdev

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// kill ends every process of the server at the same moment, as a power cut
// would. The first process is stopped before its children are listed, so that
// it can neither start more nor react to their deaths.
func (s *Server) kill() {
	if s.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return // it has ended, and its id may be another's by now
	}
	for _, child := range childrenOf(s.cmd.Process.Pid) {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	_ = s.cmd.Process.Kill()
}

func childrenOf(parent int) []int {
	var children []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		// "PID (name) S PPID …", where the name may hold blanks and brackets.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			children = append(children, pid)
		}
	}
	return children
}

// serving reports whether process pid is a server of dataDir. A server works
// in its data directory; a process that got a reused id does not, and one that
// is dead and not yet collected works nowhere.
func serving(_ context.Context, _ Binaries, dataDir string, pid int) bool {
	works, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	if err != nil {
		return false
	}
	real, err := filepath.EvalSymlinks(dataDir)
	return err == nil && works == real
}
