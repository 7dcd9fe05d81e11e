package queue

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ms is how durations cross the wire. Parts of a millisecond count as a whole one, so that no
// lease or delay comes out as none.
func ms(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// optional is the text of an id that may be missing.
func optional(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// Insert inserts jobs, all or none, and returns what became of each, in
// order. They must have passed [NewJob.Check], and no two may have one id.
// Ids that were not made for these jobs just now call for repeat.
// Set repeat where this may be the repeat of an insert whose outcome is unknown: then a
// job that has even finished meanwhile is found (as long as history keeps it) and reported
// as a duplicate. To have the jobs drained, ring their queues after the commit.
func (s *Store) Insert(ctx context.Context, db DB, jobs []NewJob, repeat bool) ([]Inserted, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	if conn := connOf(db); conn != nil && copied(jobs, repeat) {
		inserted, err := s.copy(ctx, conn, jobs)
		if err != nil {
			return nil, err
		}
		// They are due from when the transaction began, as all that it says now() for.
		return inserted, run(ctx, db, s.call("insert", "now", func(rows pgx.Rows) error {
			err := rows.Scan(&inserted[0].RunAt)
			for i := range inserted {
				inserted[i].RunAt = inserted[0].RunAt
			}
			return err
		}))
	}
	c, result := s.insert(jobs, repeat)
	if err := run(ctx, db, c); err != nil {
		return nil, err
	}
	return result(), nil
}

// insert prepares the insert of one or more jobs. result is to be called after the call was made.
func (s *Store) insert(jobs []NewJob, repeat bool) (c call, result func() []Inserted) {
	if n := &jobs[0]; len(jobs) == 1 && n.Key == "" && !repeat {
		in := Inserted{ID: n.ID, Duplicate: true}
		c = s.call("insert", "insert_one", func(rows pgx.Rows) error { in.Duplicate = false; return rows.Scan(&in.RunAt) },
			n.ID.String(), n.Queue, n.Kind, int32(n.Priority), ms(n.Delay), n.RunAt.UTC(), int32(n.MaxAttempts), string(n.Payload))
		return c, func() []Inserted { return []Inserted{in} }
	}
	var (
		ids, queues, kinds, keys, payloads []string
		priorities, maxAttempts            []int32
		delays, holds                      []int64
		times                              []time.Time
	)
	for i := range jobs {
		n := &jobs[i]
		ids = append(ids, n.ID.String())
		queues = append(queues, n.Queue)
		kinds = append(kinds, n.Kind)
		priorities = append(priorities, int32(n.Priority))
		delays = append(delays, ms(n.Delay))
		times = append(times, n.RunAt.UTC())
		maxAttempts = append(maxAttempts, int32(n.MaxAttempts))
		keys = append(keys, n.Key)
		holds = append(holds, ms(n.Hold))
		payloads = append(payloads, string(n.Payload))
	}
	inserted := make([]Inserted, 0, len(jobs))
	c = s.call("insert", "insert", func(rows pgx.Rows) error {
		var in Inserted
		if err := rows.Scan(&in.ID, &in.Duplicate, &in.RunAt); err != nil {
			return err
		}
		inserted = append(inserted, in)
		return nil
	}, ids, queues, kinds, priorities, delays, times, maxAttempts, keys, holds, payloads, repeat)
	return c, func() []Inserted { return inserted }
}

// InsertAndRing inserts jobs and then, in a transaction after theirs, rings each of
// their queues, all in one round trip, or two for many jobs. It returns the queues for which the caller
// must fire the trigger. Bell is how long a ring waits for its drain to come before
// another enqueue rings again.
//
// If err is not nil while inserted is not, the jobs are committed and only the ring failed.
func (s *Store) InsertAndRing(ctx context.Context, conn *pgx.Conn, jobs []NewJob, repeat bool, bell time.Duration) (inserted []Inserted, fire []string, err error) {
	if len(jobs) == 0 {
		return nil, nil, nil
	}
	began := time.Now()
	var groups [][]call
	var result func() []Inserted
	if copied(jobs, repeat) {
		switch inserted, err = s.copy(ctx, conn, jobs); {
		case err == nil:
			result = func() []Inserted { return inserted }
		case !isThere(err):
			return nil, nil, err
		}
	}
	if result == nil {
		var insert call
		insert, result = s.insert(jobs, repeat)
		groups = [][]call{{insert}}
	}
	byCopy := len(groups) == 0
	rings := s.rings(dueQueues(jobs), bell)
	for _, r := range rings {
		if from := past(r.queue, jobs); !from.IsZero() {
			groups = append(groups, s.lower(r.queue, from))
		}
		groups = append(groups, []call{r.call})
	}
	err = pipeline(ctx, conn, groups...)
	if failed := (*groupError)(nil); errors.As(err, &failed) && failed.group == 0 && !byCopy {
		return nil, nil, err // even if the rings after it went well
	}
	inserted = result()
	slow := time.Since(began) > recent
	for _, r := range rings {
		since, known := earliest(r.queue, jobs, inserted, repeat)
		again := slow || r.high || repeat && !known
		if !r.known || again {
			rang, ringErr := s.Ring(ctx, conn, r.queue, since, bell)
			r.rang = r.rang || rang || ringErr != nil
			if err == nil {
				err = ringErr
			}
		}
		if r.rang {
			fire = append(fire, r.queue)
		}
	}
	if !slow {
		for i := range inserted {
			inserted[i].RunAt = time.Time{}
		}
	}
	return inserted, fire, err
}

// earliest is when the first of a queue's jobs that we have added is due, and whether that is known: not of what
// an earlier try has added, nor after a COPY.
func earliest(queueName string, jobs []NewJob, inserted []Inserted, repeat bool) (since time.Time, known bool) {
	for i, in := range inserted {
		switch {
		case jobs[i].Queue != queueName || jobs[i].Delay > 0 || in.Duplicate && !repeat:
		case in.RunAt.IsZero():
			return time.Time{}, false
		case since.IsZero() || in.RunAt.Before(since):
			since = in.RunAt
		}
	}
	return since, true
}

// recent is how old a job's run_at may be when it is rung for without lowering its queue's floor. Those who
// raise the floor leave twice as much alone: see raise_floor.sql and docs/wake.md.
const recent = time.Second

// dueQueues are the queues of the jobs that may be due at once, each named once.
func dueQueues(jobs []NewJob) []string {
	var queues []string
	for i := range jobs {
		if jobs[i].Delay == 0 && !slices.Contains(queues, jobs[i].Queue) {
			queues = append(queues, jobs[i].Queue)
		}
	}
	return queues
}

// past is the earliest time that was asked for by jobs of a queue, which may be long ago. Zero: none was.
func past(queueName string, jobs []NewJob) (from time.Time) {
	for i := range jobs {
		if n := &jobs[i]; n.Queue == queueName && n.Delay == 0 && !n.RunAt.IsZero() && (from.IsZero() || n.RunAt.Before(from)) {
			from = n.RunAt
		}
	}
	return from
}

type ring struct {
	queue             string
	rang, known, high bool
	call              call
}

func (s *Store) rings(queues []string, bell time.Duration) []*ring {
	rings := make([]*ring, len(queues))
	for i, name := range queues {
		r := &ring{queue: name}
		r.call = s.call("ring", "ring", func(rows pgx.Rows) error { return rows.Scan(&r.rang, &r.known, &r.high) }, name, ms(bell))
		rings[i] = r
	}
	return rings
}

// Ring asks whether a queue needs a drain, after the commit of a job in it. True: the
// caller must fire the trigger, for this ring answers for everybody until the bell time
// is over. False: somebody will look after the commit. After an error fire the trigger, to be
// safe. It must not run inside the transaction that adds the job. A queue without a
// row gets one.
//
// Since is when the first of the jobs to ring for is due, see [Inserted.RunAt]; looks for jobs must not begin later. The
// zero time says that it is not known, and has the oldest job of the queue looked up.
func (s *Store) Ring(ctx context.Context, db DB, queueName string, since time.Time, bell time.Duration) (bool, error) {
	for range 2 {
		r := s.rings([]string{queueName}, bell)[0]
		if err := separately(ctx, db, s.lower(queueName, since), []call{r.call}); err != nil {
			return false, err
		}
		if r.known {
			return r.rang, nil
		}
		if err := run(ctx, Unnamed(db), s.call("create queue", "create_queue", nil, queueName)); err != nil {
			return false, err
		}
	}
	return true, nil // made, and gone again: ask for one drain too many rather than none
}

// Lower has looks for the jobs of a queue begin no later than since, or than its oldest job if that is zero: for jobs
// that were committed and are not rung for. See [Store.Ring].
func (s *Store) Lower(ctx context.Context, db DB, queueName string, since time.Time) error {
	return separately(ctx, db, s.lower(queueName, since))
}

func (s *Store) lower(queueName string, since time.Time) []call {
	if since.IsZero() {
		return []call{s.inOrder("lower floor"), s.call("lower floor", "lower_floor_to_oldest", nil, queueName)}
	}
	return []call{s.call("lower floor", "lower_floor", nil, queueName, since.UTC())}
}

// Unring takes a ring back, after its trigger could not be fired.
func (s *Store) Unring(ctx context.Context, db DB, queueName string) error {
	return run(ctx, db, s.call("unring", "unring", nil, queueName))
}

// Due returns the queues that have a due job and are not paused.
func (s *Store) Due(ctx context.Context, db DB) ([]string, error) {
	return s.names(ctx, db, s.call("due", "due", nil))
}

// Waiting returns the queues that have live jobs or a schedule and are not paused: those that may need an alarm.
func (s *Store) Waiting(ctx context.Context, db DB) ([]string, error) {
	return s.names(ctx, db, s.call("waiting", "waiting", nil))
}

func (s *Store) names(ctx context.Context, db DB, c call) ([]string, error) {
	var queues []string
	c.read = func(rows pgx.Rows) error {
		var name string
		err := rows.Scan(&name)
		queues = append(queues, name)
		return err
	}
	err := run(ctx, db, c)
	return queues, err
}

// SlotFreeIn returns when a slot of the queue is free at the latest, unless its holder renews its lease;
// negative if one is free now or the queue is unknown.
func (s *Store) SlotFreeIn(ctx context.Context, db DB, queueName string) (time.Duration, error) {
	in := int64(-1)
	err := run(ctx, db, s.call("slot free in", "slot_free_in", func(rows pgx.Rows) error { return rows.Scan(&in) }, queueName))
	return time.Duration(in) * time.Millisecond, err
}

// Reap takes up to limit jobs back from drains whose lease has expired and returns their
// ids. They are queued again, to run alone.
func (s *Store) Reap(ctx context.Context, db DB, limit int) ([]uuid.UUID, error) {
	var ids []uuid.UUID
	err := run(ctx, db, s.call("reap", "reap", readIDs(&ids), int32(limit)))
	return ids, err
}

// Next takes the last look at a queue: see [Next]. For a paused or unknown one nothing is due.
func (s *Store) Next(ctx context.Context, db DB, queueName string) (Next, error) {
	var next Next
	err := separately(ctx, db, []call{s.inOrder("last look"), s.next(queueName, &next)})
	return next, err
}

// separately makes groups of calls, each a transaction of its own, in one round trip if db is not in a
// transaction. If it is they are part of that, without what would tell its other statements how to read.
func separately(ctx context.Context, db DB, groups ...[]call) error {
	inner := db
	if outer, ok := db.(unnamed); ok {
		inner = outer.db
	}
	switch inner := inner.(type) {
	case *pgxpool.Pool:
		return inner.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return pipeline(ctx, c.Conn(), groups...) })
	case *pgx.Conn:
		if inner.PgConn().TxStatus() == 'I' {
			return pipeline(ctx, inner, groups...)
		}
	}
	for _, group := range groups {
		for _, c := range group {
			if c.setting {
				continue
			}
			if err := run(ctx, Unnamed(inner), c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) next(queueName string, next *Next) call {
	return s.call("last look", "next", func(rows pgx.Rows) error {
		var in int64
		if err := rows.Scan(&next.Due, &in); err != nil {
			return err
		}
		next.In = time.Duration(in) * time.Millisecond
		return nil
	}, queueName)
}

// Arm records that an alarm with this id is to go off in the given time, and reports
// whether the caller must set it in the service that keeps alarms. False: one that
// goes off no later is set. An alarm that is overdue by more than grace counts as lost.
func (s *Store) Arm(ctx context.Context, db DB, queueName string, in time.Duration, id uuid.UUID, grace time.Duration) (bool, error) {
	set := false
	err := run(ctx, db, s.call("arm", "arm", func(pgx.Rows) error { set = true; return nil }, queueName, ms(in), id.String(), ms(grace)))
	return set, err
}

// Disarm forgets the alarms of all queues: at the start of a process that keeps them in
// its memory.
func (s *Store) Disarm(ctx context.Context, db DB) error {
	return run(ctx, db, s.call("disarm", "disarm", nil))
}

// Extend renews the leases of jobs for the given time and returns the ids of those that
// are still held.
func (s *Store) Extend(ctx context.Context, db DB, jobs []Claimed, lease time.Duration) ([]uuid.UUID, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	var ids []uuid.UUID
	err := run(ctx, db, s.extend(jobs, lease, &ids))
	return ids, err
}

func (s *Store) extend(jobs []Claimed, lease time.Duration, held *[]uuid.UUID) call {
	ids, attempts, tokens := make([]string, len(jobs)), make([]int32, len(jobs)), make([]string, len(jobs))
	for i := range jobs {
		ids[i], attempts[i], tokens[i] = jobs[i].ID.String(), int32(jobs[i].Attempts), jobs[i].Token.String()
	}
	return s.call("extend", "extend", readIDs(held), ids, attempts, tokens, ms(lease))
}

// Finish ends attempts, and returns the ids of those that were still held. The others had been
// claimed by somebody else, cancelled or finished: nothing was changed for them.
func (s *Store) Finish(ctx context.Context, db DB, outcomes []Outcome) ([]uuid.UUID, error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	var ids []uuid.UUID
	err := run(ctx, db, s.finish(outcomes, &ids))
	return ids, err
}

// finishing is a finish in a transaction of a drain's, of jobs of one queue.
func (s *Store) finishing(queueName string, outcomes []Outcome, held *[]uuid.UUID) []call {
	hint := s.call("finish", "by_index", nil)
	if slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.State != Done || o.Failed || o.Error != "" }) {
		return []call{hint, s.finish(outcomes, held)}
	}
	ids, attempts, tokens := fences(outcomes)
	return []call{hint, s.call("finish", "finish_done", readIDs(held), ids, attempts, tokens, queueName)}
}

func (s *Store) finish(outcomes []Outcome, held *[]uuid.UUID) call {
	ids, attempts, tokens := fences(outcomes)
	n := len(outcomes)
	states, texts, failed, delays := make([]string, n), make([]string, n), make([]int32, n), make([]int64, n)
	for i, o := range outcomes {
		states[i], texts[i] = string(o.State), storable(o.Error)
		delays[i] = ms(o.Delay)
		if o.Delay < 0 {
			delays[i] = -1
		}
		if o.Failed {
			failed[i] = 1
		}
	}
	return s.call("finish", "finish", readIDs(held), ids, attempts, tokens, states, delays, failed, texts)
}

// fences sorts outcomes by id, so that two batches never wait for each other in a ring, and returns what
// their holders must name.
func fences(outcomes []Outcome) (ids []pgtype.UUID, attempts []int32, tokens []pgtype.UUID) {
	slices.SortFunc(outcomes, func(a, b Outcome) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for _, o := range outcomes {
		ids = append(ids, pgtype.UUID{Bytes: o.ID, Valid: true})
		attempts = append(attempts, int32(o.Attempts))
		tokens = append(tokens, pgtype.UUID{Bytes: o.Token, Valid: true})
	}
	return ids, attempts, tokens
}

func readIDs(ids *[]uuid.UUID) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id uuid.UUID
		if err := rows.Scan((*[16]byte)(&id)); err != nil {
			return err
		}
		*ids = append(*ids, id)
		return nil
	}
}
