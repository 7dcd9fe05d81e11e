//go:build unix

package dbtest

import (
	"io"
	"os/exec"
	"syscall"
)

// watch is a shell that outlives this process and then cleans up after it.
type watch struct {
	shell *exec.Cmd
	pipe  io.WriteCloser
}

// watchScript reads one line. If it gets one, it was released. If the pipe
// closes instead, the test binary is dead: the servers in the folders of $0 are
// ended at once (QUIT, for PostgreSQL and PgBouncer alike) and, when they are
// gone or 10 s have passed, their files removed.
const watchScript = `
if read line; then exit 0; fi
pids=
for file in "$0"/*/postmaster.pid "$0"/*/pgbouncer.pid; do
	if [ -f "$file" ]; then read pid <"$file"; pids="$pids $pid"; fi
done
for pid in $pids; do kill -QUIT "$pid"; done
tries=0
for pid in $pids; do
	while kill -0 "$pid" && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries+1)); done
done
rm -rf "$0"
`

func startWatch(dir string) (*watch, error) {
	shell := exec.Command("sh", "-c", watchScript, dir)
	shell.Dir = "/"
	// Its own group: the Ctrl-C that ends this process must not end it too.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// No output: go test waits until every copy of its pipe is closed.
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	return &watch{shell: shell, pipe: pipe}, nil
}

// release ends the watch without a clean-up.
func (w *watch) release() {
	_, _ = io.WriteString(w.pipe, "done\n")
	_ = w.pipe.Close()
	_ = w.shell.Wait()
}
