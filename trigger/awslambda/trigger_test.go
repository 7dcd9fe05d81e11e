package awslambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/dozequeue/doze/internal/lambdatest"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/awslambda"
	"github.com/dozequeue/doze/trigger/awslambda/awsdefault"
	"github.com/dozequeue/doze/trigger/triggertest"
)

var mail = queue.Wake{Version: 1, Queue: "mail", Reason: queue.ReasonEnqueue}

// double starts a Lambda whose function "drain" tells of each wake, and then
// runs until it is released.
func double(t *testing.T) (*lambdatest.Server, triggertest.Fixture) {
	t.Helper()
	s, err := lambdatest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var mu sync.Mutex
	gate := make(chan struct{})
	close(gate)
	deliveries := make(chan triggertest.Delivery, 64)
	err = s.Add(lambdatest.Function{Name: "drain", Handler: func(ctx context.Context, p []byte) ([]byte, error) {
		var w queue.Wake
		if err := json.Unmarshal(p, &w); err != nil {
			t.Errorf("decode: %v", err)
		}
		mu.Lock()
		g := gate
		mu.Unlock()
		deliveries <- triggertest.Delivery{Wake: w, Body: p}
		select {
		case <-g:
		case <-ctx.Done():
		}
		return nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range s.Env() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	return s, triggertest.Fixture{
		Deliveries: deliveries,
		Block: func() func() {
			mu.Lock()
			defer mu.Unlock()
			g := make(chan struct{})
			gate = g
			return func() { close(g) }
		},
		Break: func() { _ = s.Close() },
	}
}

func TestTrigger_KeepsTheContract(t *testing.T) {
	for name, create := range map[string]func(*testing.T) (*awslambda.Trigger, error){
		"inside Lambda": func(*testing.T) (*awslambda.Trigger, error) {
			return awslambda.New(awslambda.Config{Function: "drain"})
		},
		"outside Lambda": func(t *testing.T) (*awslambda.Trigger, error) {
			t.Setenv("HOME", t.TempDir()) // no shared files of this machine
			t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			return awsdefault.New(t.Context(), awslambda.Config{Function: "drain"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			triggertest.Run(t, func(t *testing.T) triggertest.Fixture {
				_, f := double(t)
				trg, err := create(t)
				if err != nil {
					t.Fatal(err)
				}
				f.Trigger = trg
				return f
			})
		})
	}
}

func TestFire_TriesAgainAndGivesUp(t *testing.T) {
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
			s, _ := double(t)
			s.SetFaults("drain", lambdatest.Faults{Reject: func(n int) int {
				if n <= c.bad {
					return c.status
				}
				return 0
			}})
			trg, err := awslambda.New(awslambda.Config{Function: "drain", Attempts: c.attempts})
			if err != nil {
				t.Fatal(err)
			}
			err = trg.Fire(t.Context(), mail)
			if (err != nil) != c.failed {
				t.Errorf("got %v", err)
			}
			counters := s.Counters("drain")
			if got := counters.Rejected + counters.Events; got != c.want {
				t.Errorf("%d tries, want %d", got, c.want)
			}
		})
	}
}

func TestFire_ChoosesTheFunctionByQueue(t *testing.T) {
	s, f := double(t)
	trg, err := awslambda.New(awslambda.Config{Functions: map[string]string{
		"mail": "arn:aws:lambda:eu-central-1:123456789012:function:drain",
		"lost": "nobody",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := trg.Fire(t.Context(), mail); err != nil {
		t.Fatal(err)
	}
	if d := <-f.Deliveries; d.Wake != mail {
		t.Errorf("got %+v", d.Wake)
	}
	var missing *types.ResourceNotFoundException
	if err := trg.Fire(t.Context(), queue.Wake{Queue: "lost"}); !errors.As(err, &missing) {
		t.Errorf("got %v, want ResourceNotFoundException", err)
	}
	if err := trg.Fire(t.Context(), queue.Wake{Queue: "other"}); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("got %v, want that there is no function for the queue", err)
	}
	if c := s.Counters("drain"); c.Events != 1 {
		t.Errorf("%d events, want 1", c.Events)
	}
}

func TestFire_ReadsCredentialsEachTime(t *testing.T) {
	double(t)
	trg, err := awslambda.New(awslambda.Config{Function: "drain", Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := trg.Fire(t.Context(), mail); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	err = trg.Fire(t.Context(), mail)
	if err == nil || !strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY") {
		t.Errorf("got %v, want that a variable is empty", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another")
	if err := trg.Fire(t.Context(), mail); err != nil {
		t.Error(err)
	}
}

func TestFire_GivesUpOnAnEndpointThatIsSilent(t *testing.T) {
	double(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	config := awslambda.Config{Function: "drain", Endpoint: "http://" + l.Addr().String(), Timeout: 20 * time.Millisecond}
	trg, err := awslambda.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := trg.Fire(t.Context(), mail); err == nil {
		t.Error("no error")
	}
	config.Timeout = time.Hour
	if trg, err = awslambda.New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := trg.Fire(ctx, mail); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's end", err)
	}
}

func TestFire_HandsOnTheTraceThatShowsLoops(t *testing.T) {
	double(t)
	traces := make(chan string, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		traces <- r.Header.Get("X-Amzn-Trace-Id")
		w.WriteHeader(http.StatusAccepted)
	}), ReadHeaderTimeout: time.Second}
	go func() { _ = front.Serve(l) }()
	defer front.Close()
	t.Setenv("AWS_LAMBDA_FUNCTION_NAME", "drain")
	t.Setenv("_X_AMZN_TRACE_ID", "Root=1-0;Lineage=3:drain:0")
	trg, err := awslambda.New(awslambda.Config{Function: "drain", Endpoint: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if err := trg.Fire(t.Context(), mail); err != nil {
		t.Fatal(err)
	}
	if got := <-traces; got != "Root=1-0;Lineage=3:drain:0" {
		t.Errorf("trace %q", got)
	}
}

func TestNew_RefusesBadConfig(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	for want, c := range map[string]awslambda.Config{
		"Function: empty":     {Region: "eu-central-1"},
		"Function: \"a b\"":   {Region: "eu-central-1", Function: "a b"},
		"Functions[\"mail\"]": {Region: "eu-central-1", Functions: map[string]string{"mail": "arn:aws:sqs:eu-central-1:123456789012:q"}},
		"Region: empty":       {Function: "drain"},
		"Endpoint":            {Region: "eu-central-1", Function: "drain", Endpoint: "localhost"},
		"Timeout":             {Region: "eu-central-1", Function: "drain", Timeout: -1},
	} {
		if _, err := awslambda.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, name := range []string{"drain", "drain:live", "drain:$LATEST", "123456789012:function:drain",
		"arn:aws:lambda:eu-central-1:123456789012:function:drain:live", "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:drain"} {
		if err := (awslambda.Config{Function: name}).Validate(); err != nil {
			t.Error(err)
		}
	}
}
