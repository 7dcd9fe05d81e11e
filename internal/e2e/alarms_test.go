//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/internal/lambdatest"
	"github.com/dozequeue/doze/internal/schedulertest"
)

// withAlarms runs the enqueue function and the handler on doubles of Lambda and EventBridge Scheduler, whose minute
// takes a tenth of a second. Nothing sweeps.
func withAlarms(t *testing.T, faults lambdatest.Faults) (api, database string, lambda *lambdatest.Server, scheduler *schedulertest.Server) {
	t.Helper()
	return withAlarmsOn(t, lambdatest.Function{Bootstrap: build(t, "functions/handler", lambdaTags), Timeout: 30 * time.Second, AllowLoop: true, Faults: faults}, 600)
}

// withAlarmsOn is withAlarms with a handler function that is built and set up otherwise, and a minute of another length.
func withAlarmsOn(t *testing.T, h lambdatest.Function, scale float64) (api, database string, lambda *lambdatest.Server, scheduler *schedulertest.Server) {
	t.Helper()
	database = dbtest.Database(t)
	lambda, err := lambdatest.New()
	if err != nil {
		t.Fatal(err)
	}
	scheduler, err = schedulertest.New(schedulertest.Lambda(lambda.URL()), schedulertest.Options{Groups: []string{"alarms"}, Scale: scale})
	if err != nil {
		t.Fatal(err)
	}
	var log printed
	t.Cleanup(func() {
		_ = scheduler.Close()
		_ = lambda.Close()
		if t.Failed() {
			t.Logf("the functions said:\n%s", tail(log.String()))
		}
	})
	settings := []string{
		"DOZE_DATABASE_URL=" + database, "DOZE_TRIGGER=lambda", "DOZE_TRIGGER_FUNCTION=Handler", "DOZE_ALARM=scheduler", "DOZE_ALARM_GROUP=alarms",
		"DOZE_ALARM_TARGET=arn:aws:lambda:" + lambdatest.Region + ":" + lambdatest.Account + ":function:Handler",
		"DOZE_ALARM_ROLE=arn:aws:iam::" + lambdatest.Account + ":role/alarms", "AWS_ENDPOINT_URL_SCHEDULER=" + scheduler.URL(),
	}
	migrate := exec.Command(build(t, "functions/migrate", lambdaTags))
	migrate.Env = []string{"DOZE_DATABASE_URL=" + database, "DOZE_GRANT_ROLES=false"}
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	h.Name, h.Env = "Handler", append(h.Env, settings...)
	if h.Log == nil {
		h.Log = &log
	}
	for _, f := range []lambdatest.Function{
		h,
		{Name: "Enqueue", Bootstrap: build(t, "functions/enqueue", lambdaTags), Env: append(settings, "DOZE_AUTH_PLATFORM=true"), Timeout: 30 * time.Second, Log: &log},
	} {
		if err := lambda.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	if api, err = lambda.FunctionURL("Enqueue"); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(api, "/"), database, lambda, scheduler
}

func postJob(t *testing.T, api, body string) {
	t.Helper()
	resp, err := http.Post(api+"/v1/jobs", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("enqueue: status %d", resp.StatusCode)
	}
}

// A wake that Lambda took and never delivered.
func TestFunctionsOnLambdaMakeUpForALostWakeWithoutASweep(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	api, url, lambda, scheduler := withAlarms(t, lambdatest.Faults{Drop: lambdatest.Nth(1)})
	postJob(t, api, `{"kind":"hello","payload":{}}`)
	db := pool(t, url)
	eventually(t, ctx, "the job has finished", func() (bool, string) {
		n := live(t, ctx, db, "doze")
		return n == 0, fmt.Sprint(n, " live")
	})
	if err := lambda.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	if c := lambda.Counters("Handler"); c.Dropped != 1 || c.Invocations != 1 || c.Errors != 0 {
		t.Errorf("%+v; want one wake lost, and one drain by the alarm", c)
	}
	if c := scheduler.Counters(); c.Invoked != 1 {
		t.Errorf("%+v; want one alarm to have gone off", c)
	}
}

// A wake that arrives takes its alarm back, and an idle queue is left with none.
func TestFunctionsOnLambdaTakeTheirAlarmsBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	api, url, lambda, scheduler := withAlarms(t, lambdatest.Faults{})
	db := pool(t, url)
	for range 3 {
		postJob(t, api, `{"kind":"hello","payload":{}}`)
		if err := lambda.WaitIdle(ctx); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, ctx, "all jobs have finished", func() (bool, string) {
		n := live(t, ctx, db, "doze")
		return n == 0, fmt.Sprint(n, " live")
	})
	if err := lambda.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	var armed int
	if err := db.QueryRow(ctx, "SELECT count(*) FROM doze.bells WHERE armed_at IS NOT NULL").Scan(&armed); err != nil || armed != 0 {
		t.Errorf("%d queues have an alarm and nothing to do; %v", armed, err)
	}
	if left := scheduler.Schedules(); len(left) != 0 {
		t.Errorf("%d alarms are left", len(left))
	}
}

// The first alarms go off before their time by the database's clock, and are set again.
func TestFunctionsOnLambdaRunWhatIsDueLaterByAlarms(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	api, url, lambda, scheduler := withAlarms(t, lambdatest.Faults{})
	for i := range 5 {
		postJob(t, api, fmt.Sprintf(`{"kind":"hello","payload":{},"delay":"%dms"}`, 500+700*i))
	}
	db := pool(t, url)
	eventually(t, ctx, "all jobs have finished", func() (bool, string) {
		n := live(t, ctx, db, "doze")
		return n == 0, fmt.Sprint(n, " live")
	})
	if err := lambda.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	var early, armed int
	err := db.QueryRow(ctx, "SELECT (SELECT count(*) FROM doze.history WHERE finished_at < run_at), (SELECT count(*) FROM doze.bells WHERE armed_at IS NOT NULL)").Scan(&early, &armed)
	if err != nil || early != 0 || armed != 0 {
		t.Errorf("%d jobs ran early, %d queues have an alarm and nothing to do; %v", early, armed, err)
	}
	t.Logf("drains %+v, alarms %+v", lambda.Counters("Handler").Invocations, scheduler.Counters())
}
