package pgdev

import (
	"io"
	"os"
	"strings"
)

// maxLog is the size in bytes above which a log is emptied at a start.
const maxLog = 16 << 20

// openLog opens the server's log and returns where this run's part begins.
func openLog(path string) (*os.File, int64, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return file, 0, err
	}
	if info.Size() > maxLog {
		return file, 0, file.Truncate(0)
	}
	return file, info.Size(), nil
}

// logTail returns the last lines that were written to a log since from.
func logTail(path string, from int64) string {
	const lines, most = 12, 8 << 10
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		from = max(from, info.Size()-most)
	} else {
		return "(the log is not a file)"
	}
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return err.Error()
	}
	content, _ := io.ReadAll(io.LimitReader(file, most))
	tail := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(tail[max(0, len(tail)-lines):], "\n")
}
