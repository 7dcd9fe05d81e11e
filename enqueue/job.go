package enqueue

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

// ErrTooLarge is found by errors.Is in the [*queue.FieldError] for a payload of more than
// [Config.MaxPayload] bytes, and for a request body that is too long.
var ErrTooLarge = errors.New("enqueue: too large")

// Entry is one job of an AddMany.
type Entry struct {
	Args    queue.Args
	Options []Option
}

// RawEntry is one job of an AddJobs, with a payload that is JSON already.
type RawEntry struct {
	Kind string
	// Payload is stored byte for byte. Empty: null.
	Payload json.RawMessage
	Options []Option
}

// Added says what became of one job.
type Added struct {
	// ID of the job that now stands for what was asked: the new one, or for a
	// duplicate the one that was there.
	ID uuid.UUID
	// Queue and Kind as they were asked for.
	Queue, Kind string
	// Duplicate is true if the job was found and not inserted: its key is
	// held, or its id is there. The latter is also so where an earlier try of this
	// very call was committed and its answer was lost.
	Duplicate bool

	delay time.Duration // zero if it may be due, so that its queue is rung; else there is an alarm to set
	runAt time.Time     // by the database's clock; zero if it is not known
}

// never is when a job is due that others have rung for: no look for jobs has to begin earlier for it.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// batch is jobs that have been checked.
type batch struct {
	jobs []queue.NewJob
	// repeat is true if some of them may have been inserted before.
	repeat bool
}

func (b *batch) added(inserted []queue.Inserted) []Added {
	all := make([]Added, len(inserted))
	for i, in := range inserted {
		n := &b.jobs[i]
		all[i] = Added{ID: in.ID, Queue: n.Queue, Kind: n.Kind, Duplicate: in.Duplicate, delay: n.Delay, runAt: in.RunAt}
		if in.Duplicate && in.ID != n.ID { // by its key: whoever added it has rung for it
			all[i].runAt = never
		}
	}
	return all
}

// unknown are the jobs as they are if they were inserted.
func (b *batch) unknown() []Added {
	inserted := make([]queue.Inserted, len(b.jobs))
	for i := range b.jobs {
		inserted[i].ID = b.jobs[i].ID
	}
	return b.added(inserted)
}

func (b *batch) ids() []uuid.UUID {
	ids := make([]uuid.UUID, len(b.jobs))
	for i := range b.jobs {
		ids[i] = b.jobs[i].ID
	}
	return ids
}

// one makes a batch of one job; its errors carry no index.
func (c *Client) one(entry RawEntry) (*batch, error) {
	b, err := c.batch([]RawEntry{entry})
	if field := (*queue.FieldError)(nil); errors.As(err, &field) {
		field.Index = -1
	}
	return b, err
}

// batch makes jobs of entries and checks all that the database would refuse.
func (c *Client) batch(entries []RawEntry) (*batch, error) {
	b := &batch{jobs: make([]queue.NewJob, 0, len(entries))}
	seen := make(map[uuid.UUID]int)
	total := 0
	for i, entry := range entries {
		d := draft{job: queue.NewJob{
			Queue:       queue.DefaultQueue,
			Kind:        entry.Kind,
			MaxAttempts: c.cfg.MaxAttempts,
			Payload:     entry.Payload,
		}}
		if len(entry.Payload) == 0 {
			d.job.Payload = json.RawMessage("null")
		}
		for _, option := range entry.Options {
			option(&d)
		}
		if err := c.check(&d); err != nil {
			if field := (*queue.FieldError)(nil); errors.As(err, &field) {
				field.Index = i
			}
			return nil, err
		}
		if !d.given {
			id, err := uuid.NewV7()
			if err != nil {
				return nil, fmt.Errorf("make id: %w", err)
			}
			d.job.ID = id
		} else if j, ok := seen[d.job.ID]; ok {
			return nil, &queue.FieldError{Index: i, Field: "id", Rule: fmt.Sprintf("the same as that of job %d; give each job its own", j)}
		} else {
			seen[d.job.ID] = i
			b.repeat = true
		}
		c.place(&d.job)
		if total += len(d.job.Payload); total > MaxBatch {
			return nil, tooLarge(&queue.FieldError{Index: i, Field: "payload", Rule: fmt.Sprintf("the payloads have more than %d bytes together; split the batch", MaxBatch)})
		}
		b.jobs = append(b.jobs, d.job)
	}
	return b, nil
}

// ahead is how far a time must be from now by this machine's clock to be later by the database's clock
// for certain.
const ahead = time.Minute

// place gives a job that is due at a later time its delay as well. The insert goes by the time; all that
// has to know who is to be woken goes by the delay: jobs without one may be due now, so their queue is
// rung, and those with one get an alarm. A time that is near counts as now: the drain that comes
// sets the alarm for it. So does any time where this client sets no alarms.
func (c *Client) place(job *queue.NewJob) {
	if in := time.Until(job.RunAt); c.alarm != nil && in > ahead {
		job.Delay = min(in, queue.MaxDelay)
	}
}

func (c *Client) check(d *draft) error {
	switch {
	case d.given && d.job.ID == uuid.Nil:
		return &queue.FieldError{Field: "id", Rule: "all zero; leave the option out to have one made"}
	case d.keyed && d.job.Key == "":
		// Nearly always a variable that was not set. As no key, it would let doubles through.
		return &queue.FieldError{Field: "key", Rule: fmt.Sprintf("empty, want 1 to %d bytes; leave it out for none", queue.MaxKey)}
	case len(d.job.Payload) > c.cfg.MaxPayload:
		return tooLarge(&queue.FieldError{Field: "payload", Rule: fmt.Sprintf(
			"%d bytes, want at most %d; store large data elsewhere and enqueue a reference", len(d.job.Payload), c.cfg.MaxPayload)})
	}
	if d.hold {
		d.job.Hold = max(c.cfg.KeyHold, d.least)
	}
	return d.job.Check(c.cfg.MaxPayload)
}

// sizeError is a field error that is [ErrTooLarge] as well.
type sizeError struct{ field *queue.FieldError }

func tooLarge(field *queue.FieldError) error { return &sizeError{field} }

func (e *sizeError) Error() string   { return e.field.Error() }
func (e *sizeError) Unwrap() []error { return []error{e.field, ErrTooLarge} }

// encode makes raw entries of typed ones.
func encode(entries []Entry) ([]RawEntry, error) {
	raw := make([]RawEntry, len(entries))
	for i, entry := range entries {
		if entry.Args == nil {
			return nil, &queue.FieldError{Index: i, Field: "args", Rule: "nil, want a value whose Kind names the job"}
		}
		payload, err := json.Marshal(entry.Args)
		if err != nil {
			return nil, &queue.FieldError{Index: i, Field: "payload", Rule: fmt.Sprintf("%T does not encode as JSON: %s", entry.Args, reason(err))}
		}
		raw[i] = RawEntry{Kind: entry.Args.Kind(), Payload: payload, Options: entry.Options}
	}
	return raw, nil
}

// encodeOne is encode for one job, whose errors carry no index.
func encodeOne(args queue.Args, options []Option) (RawEntry, error) {
	raw, err := encode([]Entry{{Args: args, Options: options}})
	if err != nil {
		if field := (*queue.FieldError)(nil); errors.As(err, &field) {
			field.Index = -1
		}
		return RawEntry{}, err
	}
	return raw[0], nil
}

// reason is why a value does not encode, without what a MarshalJSON may have put
// into its error: that can be the payload.
func reason(err error) string {
	var (
		badType  *json.UnsupportedTypeError
		badValue *json.UnsupportedValueError
	)
	switch {
	case errors.As(err, &badType):
		return "it holds a " + badType.Type.String()
	case errors.As(err, &badValue):
		return "it holds a number that is not finite, or a cycle"
	}
	return "its MarshalJSON or MarshalText failed"
}
