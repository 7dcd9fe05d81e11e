package schedulertest

import "time"

// Faults says what goes wrong; nil means never. The funcs are called one at a time and must not call
// the [Server]. Nth, Fraction and When of internal/lambdatest make them.
type Faults struct {
	// Reject answers request n, from 1, with this HTTP status and does nothing; zero lets it pass.
	Reject func(n int) int
	// Vanish does what request n asks for, and cuts the connection instead of answering.
	Vanish func(n int) bool

	// The n of those below counts the creates and updates that were accepted, from 1: each sets a
	// time, and the fault befalls that time.

	// Drop does not invoke the target at all.
	Drop func(n int) bool
	// Delay invokes it later by this much.
	Delay func(n int) time.Duration
	// Early invokes it sooner by this much, but not before it was set.
	Early func(n int) time.Duration
	// Duplicate invokes it twice.
	Duplicate func(n int) bool
	// Fail has this attempt, from 1, fail without the target being called.
	Fail func(n, attempt int) bool
}

// Counters counts what happened since the start.
type Counters struct {
	Requests int // to the API
	Rejected int // by Faults.Reject

	Created   int // schedules that were made
	Repeated  int // creates that a client token showed to be a repetition
	Updated   int // schedules that were replaced
	Deleted   int // schedules that a request deleted
	Conflicts int // creates of a name that there is
	NotFound  int // requests for a name or a group that there is not
	Invalid   int // requests that were refused for what they said

	Invoked    int // calls of the target that it took
	Failed     int // calls that it did not take, or that Faults.Fail failed
	Abandoned  int // times that were given up after the last retry
	Dropped    int // by Faults.Drop
	Duplicated int // by Faults.Duplicate
	Completed  int // schedules that were deleted after they went off
	Lost       int // of these, those that an update had set anew
}
