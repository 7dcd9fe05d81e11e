package queue

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// State is where a job stands.
type State string

// The states of a job. Queued and running jobs are live; the others are final:
// only [Store.Retry] and pruning touch a job in one of them.
const (
	Queued    State = "queued"    // waits, perhaps for its time or after a failure
	Running   State = "running"   // a drain holds it under a lease
	Done      State = "done"      // its handler returned nil
	Failed    State = "failed"    // for good: out of attempts, discarded, or its drains vanished
	Cancelled State = "cancelled" // by [Store.Cancel]
)

// Final reports whether a job in this state has finished.
func (s State) Final() bool { return s == Done || s == Failed || s == Cancelled }

// Valid reports whether s is one of the states.
func (s State) Valid() bool { return s == Queued || s == Running || s.Final() }

// DefaultQueue is the queue of a job that names none.
const DefaultQueue = "default"

// Args are the typed arguments of a kind of job. They travel as JSON.
type Args interface {
	// Kind is the name by which a handler is found: see [CheckKind]. It must
	// be the same for every value of the type, the zero value included.
	Kind() string
}

// Job is one job, live or finished.
type Job struct {
	// ID is made by the client before the job is inserted. A UUIDv7 unless
	// the caller gave one of its own.
	ID uuid.UUID
	// Queue and Kind are names; see [CheckQueue] and [CheckKind].
	Queue, Kind string
	State       State
	// Priority from -10 to 10; lower runs first, 0 is usual.
	Priority int
	// RunAt is the time from which the job is due, by the database's clock.
	RunAt time.Time
	// Attempts counts claims. With a token of the claim it is the fence: it only grows.
	Attempts int
	// Failures counts the attempts that the handler failed. At MaxAttempts the
	// job has failed.
	Failures, MaxAttempts int
	// Reaps counts the drains that vanished while they held the job. Above
	// zero the job runs alone.
	Reaps int
	// CreatedAt and FinishedAt are times of the database. FinishedAt is zero
	// while the job is live.
	CreatedAt, FinishedAt time.Time
	// Key is the idempotency key, empty if the job has none.
	Key string
	// LastError is what the last failed attempt reported, cut to [MaxError] bytes.
	LastError string
	// Payload is the JSON that was enqueued, byte for byte. Nil where a
	// listing leaves it out.
	Payload json.RawMessage
}

// Claimed is a job held under a lease.
type Claimed struct {
	Job
	// Token of the claim. (ID, Attempts, Token) is the fence: what this holder
	// writes is refused once somebody else has claimed the job.
	Token uuid.UUID
}

// NewJob is a job to insert.
type NewJob struct {
	// ID of the job. Required.
	ID uuid.UUID
	// Queue and Kind; required.
	Queue, Kind string
	// Priority from -10 (first) to 10.
	Priority int
	// Delay until the job is due, from the insert by the database's clock.
	// Not used if RunAt is set. Rounded to milliseconds.
	Delay time.Duration
	// RunAt is the time from which the job is due. Zero: now, plus Delay.
	RunAt time.Time
	// MaxAttempts from 1 to 1000.
	MaxAttempts int
	// Key makes the insert idempotent: while a job of this kind holds the key
	// no other is inserted. Empty: none.
	Key string
	// Hold is how long the key stays taken after its job has finished.
	// Zero: the next insert after that gets it.
	Hold time.Duration
	// Payload is JSON of at most 1 GB; callers set a smaller limit.
	Payload json.RawMessage
}

// Inserted says what became of a [NewJob].
type Inserted struct {
	// ID of the job that holds the place: the new one, or for a duplicate
	// the one that was there.
	ID uuid.UUID
	// Duplicate is true if nothing was inserted.
	Duplicate bool
	// RunAt is when the new job is due by the database's clock, for [Store.Ring]. Zero for a duplicate, and
	// after a [Store.InsertAndRing] that took no more than a second: then nothing is left to be done for it.
	RunAt time.Time
}

// Outcome is how one attempt ended.
type Outcome struct {
	// ID, Attempts and Token are the fence, as claimed.
	ID       uuid.UUID
	Attempts int
	Token    uuid.UUID
	// State the job gets: [Queued] to run again, or a final one.
	State State
	// Delay until it runs again, if it does. Negative: it keeps its due time.
	Delay time.Duration
	// Failed is true if this attempt counts as a failure.
	Failed bool
	// Error is kept as the job's last error if it is not empty. It is made
	// storable: valid UTF-8 without NUL, at most [MaxError] bytes.
	Error string
}

// Next is what a drain sees in its last look at a queue.
type Next struct {
	// Due is true if a job is ready to be claimed.
	Due bool
	// In is the time until the next due time or end of a lease; negative if
	// there is none. It has no meaning if Due.
	In time.Duration
}

// Counts of one queue.
type Counts struct {
	Queue  string
	Paused bool
	// Slots is how many drains may run at once, 0 if the queue has no row
	// yet; Held is how many run.
	Slots, Held int
	// Queued jobs include those that are not due yet; Due are the others.
	Queued, Due, Running, Failed int64
	// Oldest is how long the first of the due jobs has been waiting.
	Oldest time.Duration
}

// Filter chooses jobs for [Store.List]. The zero value means all.
type Filter struct {
	Queue, Kind string
	State       State
	// Before is the id to go on from: only older jobs are listed.
	Before uuid.UUID
	// Limit is the most jobs to return: 100 if zero, at most 1000.
	Limit int
}

// Settings of a queue, for [Store.Configure]. Zero leaves a setting as it is.
type Settings struct {
	// Slots is how many drains may run at once: 1 to 1000; 4 on a new queue.
	Slots int
	// MaxReaps is how many drains may vanish with a job before it has failed: 1 to
	// 100; 3 on a new queue.
	MaxReaps int
	// History is "on" or "off": whether done jobs are kept. On for a new queue.
	History string
}
