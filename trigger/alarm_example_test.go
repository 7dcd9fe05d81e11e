package trigger_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger"
)

// A scheduler of your own that takes a URL, a body and a delay.
func ExampleNewHTTPAlarm() {
	const drainURL, drainToken = "https://drain.example.org/drain", "the token that the drain's receiver accepts"
	alarm, err := trigger.NewHTTPAlarm(trigger.HTTPAlarmConfig{
		Horizon: 24 * time.Hour,
		Request: func(ctx context.Context, wake queue.Wake, in time.Duration) (*http.Request, error) {
			body, err := json.Marshal(map[string]any{
				"id":            wake.Alarm,
				"url":           drainURL,
				"headers":       map[string]string{"Authorization": "Bearer " + drainToken},
				"body":          wake,
				"delay_seconds": int(in.Seconds()),
			})
			if err != nil {
				return nil, err
			}
			return http.NewRequestWithContext(ctx, http.MethodPost, "https://later.example.org/requests", bytes.NewReader(body))
		},
	})
	fmt.Println(alarm != nil, err)
	// Output: true <nil>
}
