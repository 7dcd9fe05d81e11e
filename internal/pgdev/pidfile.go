package pgdev

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pidFile is what a server writes into postmaster.pid.
type pidFile struct {
	pid   int
	ready bool // accepts connections
}

// readPIDFile returns false if there is none or it is not fully written.
func readPIDFile(dataDir string) (pidFile, bool) {
	content, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid"))
	if err != nil {
		return pidFile{}, false
	}
	lines := strings.Split(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return pidFile{}, false
	}
	// The eighth line is the state: starting, ready, stopping or standby.
	return pidFile{pid: pid, ready: len(lines) > 7 && strings.TrimSpace(lines[7]) == "ready"}, true
}
