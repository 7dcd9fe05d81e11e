package trigger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/internal/wire"
)

// CloudTasksConfig says which queue of Google Cloud Tasks keeps alarms, and how it reaches the drain.
type CloudTasksConfig struct {
	// Queue of Cloud Tasks, projects/<project>/locations/<location>/queues/<queue>, which must exist.
	// It has nothing to do with a queue of jobs: one is enough for all of them. Required.
	Queue string

	// URL of the drain, such as https://drain.example.org/drain. Required. It must be https, except
	// for loopback addresses, and reachable from the internet.
	URL string

	// Bearer is the token that the drain's receiver accepts, at least 16 bytes. Who may read tasks in
	// full can see it. Required unless ServiceAccount is set.
	Bearer string

	// ServiceAccount is the email of an account that may invoke the drain: tasks then carry an OIDC
	// token of it instead of Bearer, for a platform that checks callers, such as Cloud Run. Whoever
	// sets alarms needs iam.serviceAccounts.actAs on it.
	ServiceAccount string

	// Audience of that token. Default: the URL.
	Audience string

	// Client adds the credentials of the caller, who needs cloudtasks.tasks.create: for instance the
	// one of google.DefaultClient of golang.org/x/oauth2. Required.
	Client *http.Client

	// Endpoint of the service. Default https://cloudtasks.googleapis.com.
	Endpoint string

	// Now is the clock from which times are counted, for tests. Default time.Now. If it is slow against
	// the service's, alarms are early by as much.
	Now func() time.Time
}

var (
	tasksQueue = regexp.MustCompile(`^projects/[a-zA-Z0-9:.-]+/locations/[a-zA-Z0-9-]+/queues/[a-zA-Z0-9-]{1,100}$`)
	taskID     = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,500}$`)
)

// task is the Task of
// https://docs.cloud.google.com/tasks/docs/reference/rest/v2/projects.locations.queues.tasks.
type task struct {
	Name             string      `json:"name"`
	ScheduleTime     string      `json:"scheduleTime"`
	DispatchDeadline string      `json:"dispatchDeadline"`
	HTTPRequest      taskRequest `json:"httpRequest"`
}

type taskRequest struct {
	URL        string            `json:"url"`
	HTTPMethod string            `json:"httpMethod"`
	Headers    map[string]string `json:"headers"`
	Body       []byte            `json:"body"` // base64 in JSON, as the API wants it
	OIDCToken  *taskToken        `json:"oidcToken,omitempty"`
}

type taskToken struct {
	ServiceAccountEmail string `json:"serviceAccountEmail"`
	Audience            string `json:"audience"`
}

// CloudTasks gives the config of an [HTTPAlarm] at Google Cloud Tasks: a task whose scheduleTime is the
// alarm's and whose name is its id, so that a repeated request finds it there. A task cannot be changed:
// an alarm that was replaced is still delivered.
//
// Times are whole seconds, up to 30 days ahead. The queue's own retry settings say how often a wake is
// delivered again; a few tries are enough, as the sweep covers the rest. See
// https://docs.cloud.google.com/tasks/docs/reference/rest/v2/projects.locations.queues.tasks/create.
func CloudTasks(c CloudTasksConfig) (HTTPAlarmConfig, error) {
	none := HTTPAlarmConfig{}
	if _, err := checkDrainURL(c.URL); err != nil {
		return none, err
	}
	c.Endpoint = strings.TrimSuffix(cmp.Or(c.Endpoint, "https://cloudtasks.googleapis.com"), "/")
	switch {
	case !tasksQueue.MatchString(c.Queue):
		return none, fmt.Errorf("trigger: Queue: %q, want projects/<project>/locations/<location>/queues/<queue>", c.Queue)
	case c.Client == nil:
		return none, errors.New("trigger: Client: nil, want one that adds credentials for Google Cloud")
	case c.Bearer != "" && c.ServiceAccount != "":
		return none, errors.New("trigger: Bearer: set together with ServiceAccount, want one of the two")
	case c.ServiceAccount != "" && !strings.Contains(c.ServiceAccount, "@"):
		return none, fmt.Errorf("trigger: ServiceAccount: %q, want an email address", c.ServiceAccount)
	}
	if err := checkEndpoint(c.Endpoint); err != nil {
		return none, err
	}
	r := taskRequest{URL: c.URL, HTTPMethod: http.MethodPost, Headers: map[string]string{"Content-Type": "application/json"}}
	if c.ServiceAccount != "" {
		r.OIDCToken = &taskToken{c.ServiceAccount, cmp.Or(c.Audience, c.URL)}
	} else if err := checkBearer(c.Bearer); err != nil {
		return none, err
	} else {
		r.Headers["Authorization"] = "Bearer " + c.Bearer
	}
	now := c.Now
	if now == nil {
		now = time.Now
	}
	return HTTPAlarmConfig{
		Grain: time.Second,
		// The service's bound is 30 days; the hour is for clocks that differ.
		Horizon: 30*24*time.Hour - time.Hour,
		Known:   []int{http.StatusConflict}, // ALREADY_EXISTS
		Client:  c.Client,
		Request: func(ctx context.Context, wake queue.Wake, in time.Duration) (*http.Request, error) {
			r := r
			var err error
			if r.Body, err = wire.Encode(wake); err != nil {
				return nil, err
			}
			body, err := json.Marshal(map[string]task{"task": {
				Name:             c.Queue + "/tasks/" + taskName(wake.Alarm),
				ScheduleTime:     roundUp(now().Add(in)).UTC().Format(time.RFC3339),
				DispatchDeadline: "1800s", // the most there is: a drain answers when it is done
				HTTPRequest:      r,
			}})
			if err != nil {
				return nil, err
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Endpoint+"/v2/"+c.Queue+"/tasks", bytes.NewReader(body))
			if err != nil {
				return nil, err
			}
			req.Header.Set("Content-Type", "application/json")
			return req, nil
		},
	}, nil
}

// taskName is the alarm's id, or a digest of one that cannot name a task. Ids of the queue are random,
// as the service recommends for names.
func taskName(alarm string) string {
	if taskID.MatchString(alarm) {
		return alarm
	}
	sum := sha256.Sum256([]byte(alarm))
	return hex.EncodeToString(sum[:16])
}

// roundUp to the second.
func roundUp(t time.Time) time.Time {
	if down := t.Truncate(time.Second); down.Before(t) {
		return down.Add(time.Second)
	}
	return t
}
