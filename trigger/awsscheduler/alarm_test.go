package awsscheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"

	"github.com/dozequeue/doze/internal/lambdatest"
	"github.com/dozequeue/doze/internal/schedulertest"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/awsscheduler"
	"github.com/dozequeue/doze/trigger/awsscheduler/awsdefault"
	"github.com/dozequeue/doze/trigger/triggertest"
)

const (
	drainARN = "arn:aws:lambda:eu-central-1:123456789012:function:drain"
	roleARN  = "arn:aws:iam::123456789012:role/doze-alarm"
)

var start = time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)

// world is a scheduler and the receiver behind it.
type world struct {
	*schedulertest.Server
	t          *testing.T
	deliveries chan triggertest.Delivery
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, deliveries: make(chan triggertest.Delivery, 64)}
	s, err := schedulertest.New(func(_ context.Context, i schedulertest.Invocation) error {
		var wake queue.Wake
		if err := json.Unmarshal(i.Input, &wake); err != nil {
			t.Errorf("decode: %v", err)
		}
		w.deliveries <- triggertest.Delivery{Wake: wake, Body: i.Input}
		return nil
	}, schedulertest.Options{Groups: []string{"stack"}, Start: start, Linger: 4 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	w.Server = s
	t.Cleanup(func() { _ = s.Close() })
	for _, kv := range s.Env() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	return w
}

func (w *world) config() awsscheduler.Config {
	return awsscheduler.Config{TargetARN: drainARN, RoleARN: roleARN, Group: "stack", Prefix: "stack", Now: w.Now}
}

func (w *world) alarm(c awsscheduler.Config) *awsscheduler.Alarm {
	w.t.Helper()
	a, err := awsscheduler.New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) set(a *awsscheduler.Alarm, name, id string, in time.Duration) {
	w.t.Helper()
	if err := a.Set(w.t.Context(), wakeOf(name, id), in); err != nil {
		w.t.Fatal(err)
	}
}

// one is the only schedule there is.
func (w *world) one() schedulertest.Schedule {
	w.t.Helper()
	all := w.Schedules()
	if len(all) != 1 {
		w.t.Fatalf("%d schedules, want 1", len(all))
	}
	return all[0]
}

// came takes what the receiver got, as the alarms' ids.
func (w *world) came() string {
	var ids []string
	for {
		select {
		case d := <-w.deliveries:
			ids = append(ids, d.Wake.Alarm)
		default:
			return strings.Join(ids, " ")
		}
	}
}

func wakeOf(name, id string) queue.Wake {
	return queue.Wake{Version: 1, Queue: name, Reason: queue.ReasonAlarm, Alarm: id}
}

func TestAlarm_KeepsTheContract(t *testing.T) {
	for name, create := range map[string]func(*testing.T, *world) (*awsscheduler.Alarm, error){
		"inside Lambda": func(_ *testing.T, w *world) (*awsscheduler.Alarm, error) {
			return awsscheduler.New(w.config())
		},
		"outside Lambda": func(t *testing.T, w *world) (*awsscheduler.Alarm, error) {
			t.Setenv("HOME", t.TempDir()) // no shared files of this machine
			t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			return awsdefault.New(t.Context(), w.config())
		},
	} {
		t.Run(name, func(t *testing.T) {
			triggertest.RunAlarm(t, func(t *testing.T, test func(*testing.T, triggertest.AlarmFixture)) {
				w := newWorld(t)
				a, err := create(t, w)
				if err != nil {
					t.Fatal(err)
				}
				test(t, triggertest.AlarmFixture{
					Alarm:      a,
					Advance:    w.Advance,
					Deliveries: w.deliveries,
					Grain:      time.Minute,
					Replaces:   true,
					Hang:       w.Hold,
					Break:      func() { _ = w.Close() },
				})
			})
		})
	}
}

func TestSet_SaysEverything(t *testing.T) {
	w := newWorld(t)
	a := w.alarm(w.config())
	check := func(at string) {
		t.Helper()
		s := w.one()
		got := fmt.Sprintf("%s %s %s %s %s %+v %s %s %s %d %d", s.GroupName, s.ScheduleExpression, s.ScheduleExpressionTimezone, s.State,
			s.ActionAfterCompletion, *s.FlexibleTimeWindow, s.Target.Arn, s.Target.RoleArn, s.Target.Input,
			*s.Target.RetryPolicy.MaximumRetryAttempts, *s.Target.RetryPolicy.MaximumEventAgeInSeconds)
		want := "stack at(" + at + ") UTC ENABLED DELETE {Mode:OFF MaximumWindowInMinutes:0} " + drainARN + " " + roleARN +
			` {"v":1,"queue":"mail","reason":"alarm","alarm":"a-17"} 3 600`
		if got != want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
		if !strings.HasPrefix(s.Name, "stack-mail-") {
			t.Errorf("name %q, want one that begins with prefix and queue", s.Name)
		}
		if want := `wakes queue "mail" for alarm "a-17"`; s.Description != want {
			t.Errorf("description %q, want %q", s.Description, want)
		}
	}
	w.set(a, "mail", "a-17", 10*time.Minute)
	check("2026-03-01T12:11:00")
	// A replacement that left something out would give it its default.
	w.set(a, "mail", "a-17", time.Hour)
	check("2026-03-01T13:01:00")
	if c := w.Counters(); c.Created != 1 || c.Conflicts != 1 || c.Updated != 1 {
		t.Errorf("got %+v, want one that was made, met again and replaced", c)
	}
}

func TestSet_RoundsUp(t *testing.T) {
	for in, want := range map[time.Duration]string{
		-time.Hour:                    "12:02:00", // it is 12:00:30: a grain is 12:01:30
		time.Second:                   "12:02:00",
		time.Minute:                   "12:02:00",
		90 * time.Second:              "12:02:00",
		90*time.Second + 1:            "12:03:00",
		24*time.Hour + 29*time.Second: "12:01:00",
	} {
		w := newWorld(t)
		w.set(w.alarm(w.config()), "mail", "a", in)
		if got := w.one().At.Format(time.TimeOnly); got != want {
			t.Errorf("in %s: at %s, want %s", in, got, want)
		}
	}
}

// A drain sets the next alarm while the schedule that woke it waits for its deletion.
func TestSet_RightAfterOneWentOff(t *testing.T) {
	w := newWorld(t)
	a := w.alarm(w.config())
	w.set(a, "mail", "a", time.Minute)
	w.Advance(2 * time.Minute)
	if !w.one().Ending {
		t.Fatal("the first schedule is not waiting for its deletion")
	}
	w.set(a, "mail", "b", time.Hour)
	w.Advance(2 * time.Hour)
	if got := w.came(); got != "a b" {
		t.Errorf("alarms %q came, want both", got)
	}
	if c := w.Counters(); c.Completed != 2 || c.Lost != 0 || len(w.Schedules()) != 0 {
		t.Errorf("got %+v and %d schedules, want two that were deleted after they went off", c, len(w.Schedules()))
	}
}

func TestSet_DeletesItsOwnLaterAlarm(t *testing.T) {
	w := newWorld(t)
	a, other := w.alarm(w.config()), w.alarm(w.config())
	w.set(a, "mail", "late", 3*time.Hour)
	w.set(a, "images", "image", 3*time.Hour)
	w.set(other, "mail", "other", 2*time.Hour)
	w.set(a, "mail", "sooner", time.Hour)
	w.set(a, "mail", "at once", time.Hour-time.Second) // may have come in the other order
	w.set(a, "mail", "later", 4*time.Hour)
	w.Advance(5 * time.Hour)
	if got := w.came(); got != "sooner at once other image later" {
		t.Errorf("alarms %q came", got)
	}
	if c := w.Counters(); c.Deleted != 1 {
		t.Errorf("%d were deleted, want 1", c.Deleted)
	}
}

func TestSet_DoesNotMindAFailedDeletion(t *testing.T) {
	w := newWorld(t)
	a := w.alarm(w.config())
	w.set(a, "mail", "late", 2*time.Hour)
	w.SetFaults(schedulertest.Faults{Reject: rejectNth(3, 500)})
	w.set(a, "mail", "sooner", time.Hour)
	if c := w.Counters(); c.Requests != 3 {
		t.Errorf("%d requests, want 3: create, create and one try to delete", c.Requests)
	}
	w.Advance(3 * time.Hour)
	if got := w.came(); got != "sooner late" {
		t.Errorf("alarms %q came, want both", got)
	}
}

// rejectNth answers request n with status.
func rejectNth(n, status int) func(int) int {
	is := lambdatest.Nth(n)
	return func(n int) int {
		if is(n) {
			return status
		}
		return 0
	}
}

func TestClear(t *testing.T) {
	w := newWorld(t)
	a := w.alarm(w.config())
	w.set(a, "mail", "a", time.Hour)
	w.set(a, "mail", "b", 2*time.Hour)
	for range 2 { // the second finds nothing
		if err := w.alarm(w.config()).Clear(t.Context(), "mail", "a"); err != nil {
			t.Fatal(err)
		}
	}
	w.Advance(3 * time.Hour)
	if got := w.came(); got != "b" {
		t.Errorf("alarms %q came, want b", got)
	}
	w.SetFaults(schedulertest.Faults{Reject: func(int) int { return 403 }})
	if err := a.Clear(t.Context(), "mail", "a"); err == nil || !strings.Contains(err.Error(), `"mail"`) {
		t.Errorf("got %v, want that it may not", err)
	}
}

func TestSet_TriesAgainAndGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		status, bad, attempts, want int
		failed                      bool
	}{
		"throttled once":     {429, 1, 0, 2, false},
		"throttled for long": {429, 9, 0, 3, true},
		"failing twice":      {500, 2, 0, 3, false},
		"one attempt":        {500, 1, 1, 1, true},
		"refused for good":   {403, 9, 0, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.SetFaults(schedulertest.Faults{Reject: func(n int) int {
				if n <= c.bad {
					return c.status
				}
				return 0
			}})
			config := w.config()
			config.Attempts = c.attempts
			err := w.alarm(config).Set(t.Context(), wakeOf("mail", "a"), time.Hour)
			if (err != nil) != c.failed {
				t.Errorf("got %v", err)
			}
			if got := w.Counters().Requests; got != c.want {
				t.Errorf("%d tries, want %d", got, c.want)
			}
		})
	}
}

// The answer to the create is lost, so it is made again.
func TestSet_CanBeRepeated(t *testing.T) {
	w := newWorld(t)
	w.SetFaults(schedulertest.Faults{Vanish: lambdatest.Nth(1)})
	w.set(w.alarm(w.config()), "mail", "a", time.Hour)
	if c := w.Counters(); c.Created != 1 || c.Repeated != 1 || c.Conflicts != 0 {
		t.Errorf("got %+v, want one schedule and a repetition that was known as one", c)
	}
	w.set(w.alarm(w.config()), "mail", "a", time.Hour) // as another process, or after its own time was up
	if c := w.Counters(); c.Created != 1 || c.Repeated != 2 || c.Updated != 0 {
		t.Errorf("got %+v, want another repetition", c)
	}
	w.Advance(2 * time.Hour)
	if got := w.came(); got != "a" {
		t.Errorf("alarms %q came", got)
	}
}

func TestSet_BetweenCreateAndUpdate(t *testing.T) {
	for name, c := range map[string]struct {
		answers  map[int]int // by request
		requests int
		failed   bool
	}{
		"made meanwhile":           {map[int]int{1: 409}, 3, false}, // the update finds nothing, then it is made
		"made and gone twice":      {map[int]int{1: 409, 3: 409}, 5, false},
		"made and gone each time":  {map[int]int{1: 409, 3: 409, 5: 409}, 6, true},
		"being changed meanwhile":  {map[int]int{1: 409, 2: 409}, 3, false},
		"update refused":           {map[int]int{1: 409, 2: 403}, 2, true},
		"create refused once more": {map[int]int{1: 409, 3: 400}, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.SetFaults(schedulertest.Faults{Reject: func(n int) int { return c.answers[n] }})
			err := w.alarm(w.config()).Set(t.Context(), wakeOf("mail", "a"), time.Hour)
			if (err != nil) != c.failed {
				t.Errorf("got %v", err)
			}
			if got := w.Counters().Requests; got != c.requests {
				t.Errorf("%d requests, want %d", got, c.requests)
			}
		})
	}
}

func TestSet_NamesAGroupThatIsMissing(t *testing.T) {
	w := newWorld(t)
	config := w.config()
	config.Group = "nowhere"
	err := w.alarm(config).Set(t.Context(), wakeOf("mail", "a"), time.Hour)
	var missing *types.ResourceNotFoundException
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "does the group nowhere exist?") {
		t.Errorf("got %v", err)
	}
}

func TestSet_ChoosesTheFunctionByQueue(t *testing.T) {
	w := newWorld(t)
	config := w.config()
	config.TargetARN, config.TargetARNs = "", map[string]string{"mail": drainARN + ":live"}
	a := w.alarm(config)
	w.set(a, "mail", "a", time.Hour)
	if got := w.one().Target.Arn; got != drainARN+":live" {
		t.Errorf("target %s", got)
	}
	if err := a.Set(t.Context(), wakeOf("other", "a"), time.Hour); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("got %v, want that there is no function for the queue", err)
	}
	if err := a.Set(t.Context(), wakeOf("mail", ""), time.Hour); err == nil || !strings.Contains(err.Error(), "alarm: empty") {
		t.Errorf("got %v, want that the id is missing", err)
	}
}

func TestSet_ReadsCredentialsEachTime(t *testing.T) {
	w := newWorld(t)
	config := w.config()
	config.Attempts = 1
	a := w.alarm(config)
	w.set(a, "mail", "a", time.Hour)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	err := a.Set(t.Context(), wakeOf("mail", "b"), time.Hour)
	if err == nil || !strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY") {
		t.Errorf("got %v, want that a variable is empty", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another")
	w.set(a, "mail", "b", time.Hour)
}

// The whole way: a schedule invokes a function of the Lambda double.
func TestAlarm_WakesAFunction(t *testing.T) {
	lambda, err := lambdatest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lambda.Close() })
	payloads := make(chan string, 1)
	err = lambda.Add(lambdatest.Function{Name: "drain", Handler: func(_ context.Context, p []byte) ([]byte, error) {
		payloads <- string(p)
		return nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := schedulertest.New(schedulertest.Lambda(lambda.URL()), schedulertest.Options{Scale: 600})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, kv := range s.Env() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	a, err := awsscheduler.New(awsscheduler.Config{TargetARN: drainARN, RoleARN: roleARN})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Set(t.Context(), wakeOf("mail", "a"), time.Second); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case p := <-payloads:
		if want := `{"v":1,"queue":"mail","reason":"alarm","alarm":"a"}`; p != want {
			t.Errorf("payload %s, want %s", p, want)
		}
	case <-ctx.Done():
		t.Fatal("the function was not invoked")
	}
	if err := s.WaitFor(ctx, func(c schedulertest.Counters) bool { return c.Completed == 1 }); err != nil {
		t.Fatal(err)
	}
}

func TestAlarm_MayBeUsedByManyAtOnce(t *testing.T) {
	w := newWorld(t)
	a := w.alarm(w.config())
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			if err := a.Set(t.Context(), wakeOf("mail", fmt.Sprint(i)), time.Duration(i%4+1)*time.Hour); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.Advance(5 * time.Hour)
	// The soonest are never deleted, whatever the order.
	came := " " + w.came() + " "
	for i := 0; i < 32; i += 4 {
		if !strings.Contains(came, fmt.Sprintf(" %d ", i)) {
			t.Errorf("alarm %d, one of the soonest, did not come", i)
		}
	}
}
