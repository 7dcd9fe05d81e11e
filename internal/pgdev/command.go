package pgdev

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"
)

// command is exec.CommandContext without the PG variables of the caller
// (PGDATA, PGPORT and the like would steer what is run) and with plain English
// messages.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	for _, setting := range os.Environ() {
		if !strings.HasPrefix(setting, "PG") && !strings.HasPrefix(setting, "LC_ALL=") {
			cmd.Env = append(cmd.Env, setting)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	cmd.WaitDelay = time.Second // a grandchild may hold the output open after a kill
	return cmd
}
