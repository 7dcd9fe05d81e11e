package queue

import "context"

// Reason says what asked for a drain. It is for logs and metrics only: a drain
// does the same whatever the reason.
type Reason string

// The reasons a wake is fired.
const (
	ReasonEnqueue Reason = "enqueue" // a job was committed
	ReasonScale   Reason = "scale"   // a drain is full and there is more
	ReasonHandoff Reason = "handoff" // a drain's time is up and there is more
	ReasonSweep   Reason = "sweep"   // the sweeper found due jobs
	ReasonAlarm   Reason = "alarm"   // a due time has come
	ReasonResume  Reason = "resume"  // an operator resumed a queue or retried a job
)

// Wake asks that a queue be drained. It is the whole message that a [Trigger]
// carries and a wire format: see testdata/wake.json. It names no job, holds no
// payload and grants nothing, so a forged or repeated one costs a drain that
// finds nothing.
type Wake struct {
	// Version of the message, 1. Zero is read as 1.
	Version int `json:"v"`
	// Queue to drain. Required.
	Queue string `json:"queue"`
	// Reason of the wake, for logs.
	Reason Reason `json:"reason,omitempty"`
	// Hop counts the drains that handed over to each other without a pause,
	// so that a chain can be bounded. Zero for any other reason.
	Hop int `json:"hop,omitempty"`
	// Alarm is the id of the alarm that fired, or of the one that was set in case
	// this wake is lost. The drain that starts takes the queue's alarm down only if
	// it is this one.
	Alarm string `json:"alarm,omitempty"`
}

// Trigger starts a drain somewhere else. A trigger is a hint: it may deliver a
// wake late, more than once or not at all, and the database stays right.
//
// Fire returns when the wake is handed over, without waiting for the drain, and
// no later than its context ends. An error means that the wake may not have
// been delivered. Fire may be called by several goroutines at once.
type Trigger interface {
	Fire(ctx context.Context, wake Wake) error
}

// TriggerFunc makes a function a [Trigger].
type TriggerFunc func(ctx context.Context, wake Wake) error

// Fire calls f.
func (f TriggerFunc) Fire(ctx context.Context, wake Wake) error { return f(ctx, wake) }
