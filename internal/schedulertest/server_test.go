package schedulertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a double, a client of the SDK, and a target that writes down what it is called for.
type world struct {
	*Server
	t      *testing.T
	client *scheduler.Client

	mu      sync.Mutex
	calls   []string // "input@seconds since start"
	refuses int      // calls still to refuse
}

func newWorld(t *testing.T, o Options) *world {
	t.Helper()
	w := &world{t: t}
	o.Start = start
	s, err := New(w.invoked, o)
	if err != nil {
		t.Fatal(err)
	}
	w.Server = s
	t.Cleanup(func() { _ = s.Close() })
	w.client = scheduler.New(scheduler.Options{
		Region: Region, BaseEndpoint: aws.String(s.URL()), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("id", "not-a-secret", ""),
	})
	return w
}

func (w *world) invoked(_ context.Context, i Invocation) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf("%s@%g", i.Input, w.Now().Sub(start).Seconds()))
	if w.refuses > 0 {
		w.refuses--
		return errors.New("throttled")
	}
	return nil
}

// called takes the calls so far.
func (w *world) called() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := strings.Join(w.calls, " ")
	w.calls = nil
	return s
}

// input is for a schedule that goes off after the seconds, with its name as input.
func input(name string, seconds int) *scheduler.CreateScheduleInput {
	return &scheduler.CreateScheduleInput{
		Name:                  aws.String(name),
		ScheduleExpression:    aws.String(start.Add(time.Duration(seconds) * time.Second).Format("at(2006-01-02T15:04:05)")),
		FlexibleTimeWindow:    &types.FlexibleTimeWindow{Mode: types.FlexibleTimeWindowModeOff},
		ActionAfterCompletion: types.ActionAfterCompletionDelete,
		Target: &types.Target{
			Arn:     aws.String("arn:aws:lambda:eu-central-1:123456789012:function:drain"),
			RoleArn: aws.String("arn:aws:iam::123456789012:role/r"),
			Input:   aws.String(`"` + name + `"`),
		},
	}
}

func (w *world) create(in *scheduler.CreateScheduleInput) error {
	_, err := w.client.CreateSchedule(w.t.Context(), in)
	return err
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// update sends what in says.
func (w *world) update(in *scheduler.CreateScheduleInput) error {
	_, err := w.client.UpdateSchedule(w.t.Context(), &scheduler.UpdateScheduleInput{
		Name: in.Name, GroupName: in.GroupName, ScheduleExpression: in.ScheduleExpression, FlexibleTimeWindow: in.FlexibleTimeWindow,
		ActionAfterCompletion: in.ActionAfterCompletion, Target: in.Target, State: in.State, Description: in.Description,
	})
	return err
}

func (w *world) get(name string) *scheduler.GetScheduleOutput {
	w.t.Helper()
	out, err := w.client.GetSchedule(w.t.Context(), &scheduler.GetScheduleInput{Name: aws.String(name)})
	w.must(err)
	return out
}

// code is the service's name for an error.
func code(err error) string {
	var api interface{ ErrorCode() string }
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return fmt.Sprint(err)
}

func TestLife(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.create(input("b", 120)))
	w.must(w.create(input("a", 60)))
	w.Advance(59 * time.Second)
	if got := w.called(); got != "" {
		t.Errorf("early: %s", got)
	}
	w.Advance(time.Second)
	if got := w.called(); got != `"a"@60` {
		t.Errorf("got %s", got)
	}
	if out := w.get("a"); out.ActionAfterCompletion != types.ActionAfterCompletionDelete {
		t.Errorf("a: %+v", out)
	}
	w.Advance(time.Hour)
	if got := w.called(); got != `"b"@120` {
		t.Errorf("got %s", got)
	}
	if c := w.Counters(); len(w.Schedules()) != 0 || c.Completed != 2 || c.Invoked != 2 {
		t.Errorf("%d schedules are left, %+v", len(w.Schedules()), c)
	}
	w.must(w.create(input("a", 7200))) // the name is free again
}

func TestGet_ShowsDefaults(t *testing.T) {
	w := newWorld(t, Options{})
	in := input("a", 60)
	in.ActionAfterCompletion = ""
	w.must(w.create(in))
	out := w.get("a")
	got := []string{*out.Name, *out.GroupName, *out.ScheduleExpression, *out.ScheduleExpressionTimezone, string(out.State), string(out.ActionAfterCompletion), *out.Arn}
	want := []string{"a", "default", "at(2026-03-01T12:01:00)", "UTC", "ENABLED", "NONE", "arn:aws:scheduler:eu-central-1:123456789012:schedule/default/a"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !reflect.DeepEqual(*out.Target.Arn, *in.Target.Arn) || *out.Target.Input != `"a"` {
		t.Errorf("target %+v", out.Target)
	}
	w.Advance(time.Hour)
	if len(w.Schedules()) != 1 {
		t.Error("it was deleted, and its action is NONE")
	}
}

func TestUpdate_ReplacesEverything(t *testing.T) {
	w := newWorld(t, Options{})
	in := input("a", 60)
	in.Description = aws.String("first")
	in.Target.RetryPolicy = &types.RetryPolicy{MaximumRetryAttempts: aws.Int32(0)}
	w.must(w.create(in))
	less := input("a", 120)
	less.ActionAfterCompletion = ""
	w.must(w.update(less))
	out := w.get("a")
	if out.ActionAfterCompletion != types.ActionAfterCompletionNone || out.Description != nil || out.Target.RetryPolicy != nil {
		t.Errorf("kept what was left out: %+v", out)
	}
	w.Advance(time.Hour)
	if got := w.called(); got != `"a"@120` {
		t.Errorf("got %s", got)
	}
	w.must(w.update(input("a", 7200))) // one that is over can be set anew
	w.Advance(2 * time.Hour)
	if got := w.called(); got != `"a"@7200` {
		t.Errorf("got %s", got)
	}
}

// An update between the end of a schedule and its deletion is taken and lost.
func TestUpdate_BeforeTheDeletionIsLost(t *testing.T) {
	w := newWorld(t, Options{Linger: 30 * time.Second})
	w.must(w.create(input("a", 60)))
	w.Advance(time.Minute)
	if s := w.Schedules(); len(s) != 1 || !s[0].Ending {
		t.Fatalf("got %+v, want one that waits for its deletion", s)
	}
	w.must(w.update(input("a", 120)))
	w.Advance(time.Hour)
	if got, c := w.called(), w.Counters(); got != `"a"@60` || c.Lost != 1 || c.Completed != 1 {
		t.Errorf("called %s, %+v", got, c)
	}
}

func TestLinger_None(t *testing.T) {
	w := newWorld(t, Options{Linger: -1})
	w.must(w.create(input("a", 60)))
	w.Advance(time.Minute)
	if n := len(w.Schedules()); n != 0 {
		t.Errorf("%d schedules are left", n)
	}
}

func TestDelete(t *testing.T) {
	w := newWorld(t, Options{Groups: []string{"g"}})
	in := input("a", 60)
	in.GroupName = aws.String("g")
	w.must(w.create(in))
	w.must(w.create(input("a", 60)))
	for _, want := range []string{"<nil>", "ResourceNotFoundException"} {
		_, err := w.client.DeleteSchedule(t.Context(), &scheduler.DeleteScheduleInput{Name: aws.String("a"), GroupName: aws.String("g")})
		if code(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if s := w.Schedules(); len(s) != 1 || s[0].GroupName != "default" {
		t.Errorf("got %+v, want the one of the other group", s)
	}
	if c := w.Counters(); c.Deleted != 1 || c.NotFound != 1 {
		t.Errorf("got %+v", c)
	}
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*scheduler.CreateScheduleInput)
		want   string
	}{
		"same name":     {func(in *scheduler.CreateScheduleInput) { in.Name = aws.String("there") }, "ConflictException"},
		"unknown group": {func(in *scheduler.CreateScheduleInput) { in.GroupName = aws.String("g") }, "ResourceNotFoundException"},
		"long name":     {func(in *scheduler.CreateScheduleInput) { in.Name = aws.String(strings.Repeat("a", 65)) }, "ValidationException"},
		"name":          {func(in *scheduler.CreateScheduleInput) { in.Name = aws.String("a b") }, "ValidationException"},
		"token":         {func(in *scheduler.CreateScheduleInput) { in.ClientToken = aws.String("a.b") }, "ValidationException"},
		"past":          {func(in *scheduler.CreateScheduleInput) { in.ScheduleExpression = aws.String("at(2026-03-01T12:00:00)") }, "ValidationException"},
		"no such day":   {func(in *scheduler.CreateScheduleInput) { in.ScheduleExpression = aws.String("at(2026-02-31T12:00:00)") }, "ValidationException"},
		"zone in the time": {func(in *scheduler.CreateScheduleInput) {
			in.ScheduleExpression = aws.String("at(2026-03-02T12:00:00Z)")
		}, "ValidationException"},
		"rate":   {func(in *scheduler.CreateScheduleInput) { in.ScheduleExpression = aws.String("rate(1 minute)") }, "ValidationException"},
		"zone":   {func(in *scheduler.CreateScheduleInput) { in.ScheduleExpressionTimezone = aws.String("Mars/Base") }, "ValidationException"},
		"state":  {func(in *scheduler.CreateScheduleInput) { in.State = "ON" }, "ValidationException"},
		"action": {func(in *scheduler.CreateScheduleInput) { in.ActionAfterCompletion = "KEEP" }, "ValidationException"},
		"window": {func(in *scheduler.CreateScheduleInput) { in.FlexibleTimeWindow.Mode = "FLEXIBLE" }, "ValidationException"},
		"target": {func(in *scheduler.CreateScheduleInput) { in.Target.Arn = aws.String("drain") }, "ValidationException"},
		"role":   {func(in *scheduler.CreateScheduleInput) { in.Target.RoleArn = aws.String("r") }, "ValidationException"},
		"input":  {func(in *scheduler.CreateScheduleInput) { in.Target.Input = aws.String("a") }, "ValidationException"},
		"retries": {func(in *scheduler.CreateScheduleInput) {
			in.Target.RetryPolicy = &types.RetryPolicy{MaximumRetryAttempts: aws.Int32(186)}
		}, "ValidationException"},
		"age": {func(in *scheduler.CreateScheduleInput) {
			in.Target.RetryPolicy = &types.RetryPolicy{MaximumEventAgeInSeconds: aws.Int32(59)}
		}, "ValidationException"},
		"long description": {func(in *scheduler.CreateScheduleInput) { in.Description = aws.String(strings.Repeat("a", 513)) }, "ValidationException"},
		"nothing is wrong": {func(*scheduler.CreateScheduleInput) {}, "<nil>"},
		"time of a zone": {func(in *scheduler.CreateScheduleInput) {
			in.ScheduleExpressionTimezone = aws.String("America/New_York")
		}, "<nil>"},
		"past in that zone": {func(in *scheduler.CreateScheduleInput) { in.ScheduleExpressionTimezone = aws.String("Asia/Tokyo") }, "ValidationException"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.must(w.create(input("there", 60)))
			in := input("a", 60)
			c.change(in)
			if err := w.create(in); code(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	w := newWorld(t, Options{})
	if err := w.update(input("a", 60)); code(err) != "ResourceNotFoundException" {
		t.Errorf("update of nothing: %v", err)
	}
	_, err := w.client.GetSchedule(t.Context(), &scheduler.GetScheduleInput{Name: aws.String("a")})
	if code(err) != "ResourceNotFoundException" {
		t.Errorf("get of nothing: %v", err)
	}
}

func TestCreate_KnowsARepetition(t *testing.T) {
	w := newWorld(t, Options{})
	in := input("a", 60)
	in.ClientToken = aws.String("t-1")
	w.must(w.create(in))
	w.must(w.create(in))
	in.ClientToken = aws.String("t-2")
	if err := w.create(in); code(err) != "ConflictException" {
		t.Errorf("another token: %v", err)
	}
	if c := w.Counters(); c.Created != 1 || c.Repeated != 1 || c.Conflicts != 1 {
		t.Errorf("got %+v", c)
	}
}

func TestFaults_OfTimes(t *testing.T) {
	second := func(n int) bool { return n == 2 }
	for name, c := range map[string]struct {
		faults Faults
		want   string
	}{
		"none":      {Faults{}, `"a"@60 "b"@60`},
		"drop":      {Faults{Drop: second}, `"a"@60`},
		"duplicate": {Faults{Duplicate: second}, `"a"@60 "b"@60 "b"@60`},
		"delay":     {Faults{Delay: func(n int) time.Duration { return time.Duration(n) * time.Second }}, `"a"@61 "b"@62`},
		"early":     {Faults{Early: func(n int) time.Duration { return time.Duration(n-1) * 20 * time.Second }}, `"b"@40 "a"@60`},
		"too early": {Faults{Early: func(n int) time.Duration { return time.Duration(n-1) * time.Hour }}, `"b"@0 "a"@60`},
		"fail":      {Faults{Fail: func(n, attempt int) bool { return n == 1 && attempt < 3 }}, `"b"@60 "a"@75`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.SetFaults(c.faults)
			w.must(w.create(input("a", 60)))
			w.must(w.create(input("b", 60)))
			w.Advance(time.Hour)
			if got := w.called(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if n := len(w.Schedules()); n != 0 {
				t.Errorf("%d schedules are left", n)
			}
		})
	}
}

func TestRetries_EndAsThePolicySays(t *testing.T) {
	for name, c := range map[string]struct {
		policy *types.RetryPolicy
		want   Counters
	}{
		"none":     {&types.RetryPolicy{MaximumRetryAttempts: aws.Int32(0)}, Counters{Failed: 1, Abandoned: 1}},
		"two":      {&types.RetryPolicy{MaximumRetryAttempts: aws.Int32(2)}, Counters{Failed: 3, Abandoned: 1}},
		"a minute": {&types.RetryPolicy{MaximumEventAgeInSeconds: aws.Int32(60)}, Counters{Failed: 4, Abandoned: 1}}, // after 0, 5, 15, 35 s
		"default":  {nil, Counters{Failed: 6, Invoked: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.refuses = 6
			in := input("a", 60)
			in.Target.RetryPolicy = c.policy
			w.must(w.create(in))
			w.Advance(24 * time.Hour)
			got := w.Counters()
			if got.Failed != c.want.Failed || got.Abandoned != c.want.Abandoned || got.Invoked != c.want.Invoked || got.Completed != 1 {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestFaults_OfRequests(t *testing.T) {
	w := newWorld(t, Options{})
	w.SetFaults(Faults{
		Reject: func(n int) int { return map[int]int{1: 429, 2: 503, 3: 403}[n] },
		Vanish: func(n int) bool { return n == 4 },
	})
	for _, want := range []string{"ThrottlingException", "InternalServerException", "AccessDeniedException"} {
		if err := w.create(input("a", 60)); code(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := w.create(input("a", 60)); err == nil {
		t.Error("an answer came")
	}
	if c := w.Counters(); c.Created != 1 || c.Rejected != 3 || c.Requests != 4 {
		t.Errorf("got %+v, want one that was made without an answer", c)
	}
}

func TestHold(t *testing.T) {
	w := newWorld(t, Options{})
	release := w.Hold()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.client.CreateSchedule(ctx, input("a", 60)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the time is up", err)
	}
	if c := w.Counters(); c.Requests != 0 || len(w.Schedules()) != 0 {
		t.Errorf("%+v, want that nothing has happened", c)
	}
	release()
	w.must(w.create(input("b", 60)))
}

func TestDisabled_DoesNotGoOff(t *testing.T) {
	w := newWorld(t, Options{})
	in := input("a", 60)
	in.State = types.ScheduleStateDisabled
	w.must(w.create(in))
	w.Advance(time.Hour)
	if got := w.called(); got != "" {
		t.Errorf("called %s", got)
	}
}

// A target may make the next schedule, as a drain does, and Advance lets that go off too.
func TestAdvance_IncludesWhatTargetsMake(t *testing.T) {
	var w *world
	n := 0
	w = newWorld(t, Options{})
	w.target = func(ctx context.Context, i Invocation) error {
		if n++; n < 4 {
			_, err := w.client.CreateSchedule(ctx, input(fmt.Sprint("next", n), 60+n*60))
			return err
		}
		return nil
	}
	w.must(w.create(input("first", 60)))
	w.Advance(time.Hour)
	if n != 4 {
		t.Errorf("%d went off, want 4", n)
	}
}

// The clock that runs by itself: two hours in some milliseconds.
func TestScale(t *testing.T) {
	w := newWorld(t, Options{Scale: 100_000})
	for i := range 3 {
		in := input(fmt.Sprint(i), 0)
		in.ScheduleExpression = aws.String(time.Now().Add(time.Duration(i+1) * time.Hour).UTC().Format("at(2006-01-02T15:04:05)"))
		w.must(w.create(in))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w.must(w.WaitFor(ctx, func(c Counters) bool { return c.Invoked == 3 && c.Completed == 3 }))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.WaitFor(ended, func(c Counters) bool { return c.Invoked == 4 }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context has ended", err)
	}
}

func TestClose_EndsTargets(t *testing.T) {
	began := make(chan struct{})
	s, err := New(func(ctx context.Context, _ Invocation) error {
		close(began)
		<-ctx.Done()
		return nil
	}, Options{Scale: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Server: s, t: t, client: scheduler.New(scheduler.Options{
		Region: Region, BaseEndpoint: aws.String(s.URL()), HTTPClient: &http.Client{},
		Credentials: credentials.NewStaticCredentialsProvider("id", "not-a-secret", ""),
	})}
	in := input("a", 0)
	in.ScheduleExpression = aws.String(time.Now().Add(time.Minute).UTC().Format("at(2006-01-02T15:04:05)"))
	w.must(w.create(in))
	<-began
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestNew_NamesWhatIsWrong(t *testing.T) {
	if _, err := New(nil, Options{}); err == nil {
		t.Error("no error for no target")
	}
	if _, err := New(func(context.Context, Invocation) error { return nil }, Options{Scale: -1}); err == nil {
		t.Error("no error for a clock that runs backwards")
	}
}
