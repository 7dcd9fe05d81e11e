//go:build unix

package lambdatest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// bootstrap is the binary of testdata/fn.
var bootstrap string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lambdatest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bootstrap = filepath.Join(dir, "bootstrap")
	build := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", bootstrap, "./testdata/fn")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build testdata/fn: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// reply is what testdata/fn answers to an ordinary event.
type reply struct {
	PID      int
	Calls    int
	Ticks    int64
	Name     string
	ARN      string
	Left     time.Duration
	Trace    string
	Endpoint string
}

func start(t *testing.T, f Function) *Server {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if f.Name == "" {
		f.Name = "fn"
	}
	if f.Bootstrap == "" && f.Handler == nil {
		f.Bootstrap = bootstrap
	}
	if f.Log == nil {
		f.Log = t.Output()
	}
	if err := s.Add(f); err != nil {
		t.Fatal(err)
	}
	return s
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// call invokes fn and reads its answer.
func call(t *testing.T, s *Server, event string) reply {
	t.Helper()
	out, err := s.Invoke(patient(t), "fn", []byte(event))
	if err != nil {
		t.Fatal(err)
	}
	var r reply
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

func idle(t *testing.T, s *Server) Counters {
	t.Helper()
	if err := s.WaitIdle(patient(t)); err != nil {
		t.Fatalf("%v: %+v", err, s.Counters("fn"))
	}
	return s.Counters("fn")
}

// send makes n async events.
func send(t *testing.T, s *Server, n int, event string) {
	t.Helper()
	for range n {
		if _, err := s.accept("fn", []byte(event), ""); err != nil {
			t.Fatal(err)
		}
	}
}
