// Command fn is the function that the tests of lambdatest run. Its events say
// what it shall do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/awslambda"
)

type request struct {
	Do    string `json:"do"`
	Hop   int    `json:"hop"`
	Reach string `json:"reach"`
}

type answer struct {
	PID      int
	Calls    int   // of this environment
	Ticks    int64 // of a ticker that runs besides the invocations
	Name     string
	ARN      string
	Left     time.Duration
	Trace    string
	Endpoint string
}

var calls int

// ticks counts while the process runs.
var ticks = make(chan int64)

func count() {
	t := time.NewTicker(time.Millisecond)
	var n int64
	for {
		select {
		case <-t.C:
			n++
		case ticks <- n:
		}
	}
}

func handle(ctx context.Context, raw json.RawMessage) (any, error) {
	calls++
	var r request
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	switch r.Do {
	case "fail":
		return nil, errors.New("it failed")
	case "panic":
		panic("it panicked")
	case "exit":
		os.Exit(3)
	case "hang":
		select {}
	case "until file": // run until the file is there, so a test decides when
		for {
			if _, err := os.Stat(r.Reach); err == nil {
				return "seen", nil
			}
			time.Sleep(time.Millisecond)
		}
	case "url":
		return map[string]any{"statusCode": 201, "body": string(raw), "cookies": []string{"a=1", "b=2"}}, nil
	}
	if r.Do == "chain" || json.Valid(raw) && isWake(raw) {
		return nil, chain(ctx, raw)
	}
	lc, _ := lambdacontext.FromContext(ctx)
	deadline, _ := ctx.Deadline()
	return answer{
		PID: os.Getpid(), Calls: calls, Ticks: <-ticks,
		Name: lambdacontext.FunctionName, ARN: lc.InvokedFunctionArn,
		Left: time.Until(deadline), Trace: os.Getenv("_X_AMZN_TRACE_ID"),
		Endpoint: os.Getenv("AWS_ENDPOINT_URL_LAMBDA"),
	}, nil
}

func isWake(raw []byte) bool {
	var w queue.Wake
	return json.Unmarshal(raw, &w) == nil && w.Queue != ""
}

// chain wakes this function again, without an end of its own.
func chain(ctx context.Context, raw []byte) error {
	var w queue.Wake
	if err := json.Unmarshal(raw, &w); err != nil {
		return err
	}
	if w.Queue == "bounded" && w.Hop >= 20 {
		return nil
	}
	t, err := awslambda.New(awslambda.Config{Function: lambdacontext.FunctionName})
	if err != nil {
		return err
	}
	return t.Fire(ctx, queue.Wake{Queue: w.Queue, Reason: queue.ReasonHandoff, Hop: w.Hop + 1})
}

func main() {
	if os.Getenv("FN_INIT") == "exit" {
		os.Exit(7)
	}
	if os.Getenv("FN_INIT") == "hang" {
		time.Sleep(time.Hour)
	}
	go count()
	lambda.Start(handle)
}
