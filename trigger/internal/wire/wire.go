// Package wire turns a wake into the message that triggers send.
package wire

import (
	"encoding/json"
	"errors"

	"github.com/dozequeue/doze/queue"
)

// ErrNoQueue is returned for a wake that names no queue. It is not sent: no
// drain could do anything with it.
var ErrNoQueue = errors.New("trigger: wake: queue: empty, want the name of a queue")

// Encode gives the message for w, as in queue/testdata/wake.json. Version zero
// becomes 1.
func Encode(w queue.Wake) ([]byte, error) {
	if w.Queue == "" {
		return nil, ErrNoQueue
	}
	if w.Version == 0 {
		w.Version = 1
	}
	return json.Marshal(w)
}
