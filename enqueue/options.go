package enqueue

import (
	"time"

	"github.com/google/uuid"

	"github.com/dozequeue/doze/queue"
)

// Option is a choice for one job. Where two options speak of the same thing the later counts.
// What an option is given is checked by the call that takes it.
type Option func(*draft)

// draft is a job on its way to be checked.
type draft struct {
	job   queue.NewJob
	given bool          // the caller chose the id, so the job may be there already
	keyed bool          // a key was asked for, be it an empty one
	hold  bool          // the key is held after the job has finished
	least time.Duration // and for no less than this
}

// On puts the job into this queue instead of [queue.DefaultQueue].
func On(queueName string) Option {
	return func(d *draft) { d.job.Queue = queueName }
}

// At makes the job due at t, which is compared with the database's clock. The zero
// time, like any past one, means now. With a [Config.Alarm] one that is more than a minute ahead
// wakes nobody until then.
func At(t time.Time) Option {
	return func(d *draft) { d.job.RunAt, d.job.Delay = t, 0 }
}

// In makes the job due after a delay of 0 to ten years, counted from the insert by the
// database's clock. Parts of a millisecond count as a whole one.
func In(delay time.Duration) Option {
	return func(d *draft) { d.job.RunAt, d.job.Delay = time.Time{}, delay }
}

// Priority from -10, which runs first, to 10. Without it 0.
func Priority(n int) Option {
	return func(d *draft) { d.job.Priority = n }
}

// Key makes the enqueue idempotent: while a job of the same kind holds this key no other is
// added, and [Added] names the one that was. The key is held as long as its job is live, and for
// [Config.KeyHold] after it has finished. 1 to 512 bytes of UTF-8.
func Key(key string) Option {
	return func(d *draft) { d.job.Key, d.keyed, d.hold = key, true, true }
}

// Unique allows one live job of the kind with this key: like [Key], but the next enqueue after
// its job has finished gets a new job.
func Unique(key string) Option {
	return func(d *draft) { d.job.Key, d.keyed, d.hold = key, true, false }
}

// holdFor holds the key of a job for no less than this after it has finished.
func holdFor(least time.Duration) Option {
	return func(d *draft) { d.least = least }
}

// MaxAttempts is how many failed attempts end the job as failed: 1 to 1000. Without it
// [Config.MaxAttempts].
func MaxAttempts(n int) Option {
	return func(d *draft) { d.job.MaxAttempts = n }
}

// ID gives the job this id instead of a new UUIDv7: to enqueue again what an [OutcomeError]
// left open. If a job with it is there, live or in the history, nothing is
// added and [Added.Duplicate] is true. Ids of other versions than 7 scatter over
// the index and are not listed in order of age.
func ID(id uuid.UUID) Option {
	return func(d *draft) { d.job.ID, d.given = id, true }
}
