package queue_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/dozequeue/doze/queue"
)

// The wake crosses versions: an old enqueuer wakes a new drain during a deploy.
// A change that this test notices needs a new Version.
func TestWake_IsTheGoldenMessage(t *testing.T) {
	golden, err := os.ReadFile("testdata/wake.json")
	if err != nil {
		t.Fatal(err)
	}
	var messages []json.RawMessage
	if err := json.Unmarshal(golden, &messages); err != nil {
		t.Fatal(err)
	}
	wakes := []queue.Wake{
		{Version: 1, Queue: "mail"},
		{Version: 1, Queue: "mail", Reason: queue.ReasonEnqueue},
		{Version: 1, Queue: "mail", Reason: queue.ReasonHandoff, Hop: 3},
		{Version: 1, Queue: "mail", Reason: queue.ReasonAlarm, Alarm: "a-17"},
	}
	if len(wakes) != len(messages) {
		t.Fatalf("%d messages in the file, want %d", len(messages), len(wakes))
	}
	for i, w := range wakes {
		got, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, messages[i]) {
			t.Errorf("wrote %s, want %s", got, messages[i])
		}
		var back queue.Wake
		if err := json.Unmarshal(messages[i], &back); err != nil || back != w {
			t.Errorf("read %+v (%v), want %+v", back, err, w)
		}
	}
}
