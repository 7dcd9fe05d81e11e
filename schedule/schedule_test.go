package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/migrations"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/schedule"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

type world struct {
	*testing.T
	ctx    context.Context
	pool   *pgxpool.Pool
	schema string
	store  *queue.Store
	all    *schedule.Schedules
	alarms chan time.Duration
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{T: t, ctx: t.Context(), schema: dbtest.Schema(t), alarms: make(chan time.Duration, 100)}
	w.pool = dbtest.Pool(t, dbtest.MaxConns(8))
	conn, err := w.pool.Acquire(w.ctx)
	w.must(err)
	defer conn.Release()
	_, err = migrations.Up(w.ctx, conn.Conn(), w.schema)
	w.must(err)
	w.store, err = queue.NewStore(w.schema)
	w.must(err)
	w.all, err = schedule.New(w.pool, w.schema, queue.AlarmFunc(func(_ context.Context, _ queue.Wake, in time.Duration) error {
		w.alarms <- in
		return nil
	}))
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.pool.Exec(w.ctx, queue.Qualify(sql, w.schema), args...)
	w.must(err)
}

// tick evaluates what is due and returns how many jobs it made.
func (w *world) tick() int {
	w.Helper()
	due, now, err := w.store.DueSchedules(w.ctx, w.pool, "")
	w.must(err)
	made, err := schedule.Tick(w.ctx, w.pool, w.store, due, now)
	w.must(err)
	return len(made)
}

// asleep moves the schedules' next ticks into the past, as if nobody had been awake since.
func (w *world) asleep(d time.Duration) {
	w.Helper()
	w.exec("UPDATE doze.schedules SET next_at = date_trunc('minute', now() - $1::bigint * interval '1 second')", int64(d/time.Second))
}

func minutely(name string, catchUp queue.CatchUp) queue.Schedule {
	return queue.Schedule{Name: name, Kind: "report", Payload: []byte(`{"a":1,"a":2}`), Cron: "* * * * *", CatchUp: catchUp, CatchUpLimit: 5}
}

func TestPutSetsTheAlarmForTheNextTick(t *testing.T) {
	w := newWorld(t)
	w.must(w.all.Put(w.ctx, minutely("m", "")))
	if in := <-w.alarms; in <= 0 || in > time.Minute {
		t.Errorf("the alarm is in %v, want within a minute", in)
	}
	found, err := w.all.List(w.ctx)
	if err != nil || len(found) != 1 || found[0].CatchUp != queue.CatchUpLatest || found[0].TimeZone != "UTC" || found[0].Queue != "default" {
		t.Errorf("List: %+v, %v", found, err)
	}
}

func TestMissedTicksAreCaughtUpAsTheScheduleSays(t *testing.T) {
	for catchUp, want := range map[queue.CatchUp]int{queue.CatchUpSkip: 0, queue.CatchUpLatest: 1, queue.CatchUpAll: 5} {
		t.Run(string(catchUp), func(t *testing.T) {
			w := newWorld(t)
			s := minutely("m", catchUp)
			s.Cron = "*/10 * * * *"
			w.must(w.all.Put(w.ctx, s))
			w.exec("UPDATE doze.schedules SET next_at = date_trunc('hour', now()) - interval '10 hours'")
			// The last of these ticks may be so fresh that it is on time, which skip keeps.
			var fresh int
			w.must(w.pool.QueryRow(w.ctx, "SELECT (extract(minute FROM now())::integer % 10 < 2)::integer").Scan(&fresh))
			if catchUp == queue.CatchUpSkip {
				want = fresh
			}
			if made := w.tick(); made != want {
				t.Errorf("%d jobs, want %d", made, want)
			}
			if made := w.tick(); made != 0 {
				t.Errorf("%d jobs of a schedule that is not due", made)
			}
			jobs, err := w.store.List(w.ctx, w.pool, queue.Filter{})
			w.must(err)
			for _, j := range jobs {
				full, err := w.store.Get(w.ctx, w.pool, j.ID)
				w.must(err)
				if full.Kind != "report" || string(full.Payload) != `{"a":1,"a":2}` || full.RunAt.Minute()%10 != 0 || full.RunAt.After(time.Now()) {
					t.Errorf("job %+v", full)
				}
			}
		})
	}
}

func TestATickBecomesOneJobWhoeverEvaluatesIt(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.must(w.all.Put(w.ctx, minutely(fmt.Sprint("m", i), queue.CatchUpAll)))
	}
	w.asleep(3 * time.Minute)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			due, now, err := w.store.DueSchedules(w.ctx, w.pool, "")
			if err == nil {
				_, err = schedule.Tick(w.ctx, w.pool, w.store, due, now)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var jobs, ticks, twice int
	w.must(w.pool.QueryRow(w.ctx, queue.Qualify(`SELECT (SELECT count(*) FROM doze.jobs), (SELECT count(*) FROM doze.ticks),
		(SELECT count(*) FROM doze.jobs j WHERE (SELECT count(*) FROM doze.ticks t WHERE t.job_id = j.id) <> 1)`, w.schema)).Scan(&jobs, &ticks, &twice))
	if jobs != ticks || twice != 0 || jobs < 15 || jobs > 25 { // three or four ticks each, a fifth if a minute passed
		t.Errorf("%d jobs of %d ticks, %d of them not of one tick", jobs, ticks, twice)
	}
}

func TestATickThatWasMadeBeforeIsNotMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.must(w.all.Put(w.ctx, minutely("m", queue.CatchUpLatest)))
	w.asleep(0)
	if made := w.tick(); made != 1 {
		t.Fatalf("%d jobs, want 1", made)
	}
	w.asleep(0) // as after a failover, or by hand
	due, now, err := w.store.DueSchedules(w.ctx, w.pool, "")
	w.must(err)
	made, err := schedule.Tick(w.ctx, w.pool, w.store, due, now)
	w.must(err)
	// A minute may have begun in between, and that tick is a new one.
	var total, distinct int
	w.must(w.pool.QueryRow(w.ctx, queue.Qualify("SELECT count(*), count(DISTINCT run_at) FROM doze.jobs", w.schema)).Scan(&total, &distinct))
	if total != distinct {
		t.Errorf("%d jobs of %d ticks; the second evaluation made %d", total, distinct, len(made))
	}
}

func TestPuttingAgainLosesNoTick(t *testing.T) {
	w := newWorld(t)
	s := minutely("m", queue.CatchUpLatest)
	w.must(w.all.Put(w.ctx, s))
	w.asleep(time.Minute)
	s.Payload = []byte(`2`)
	w.must(w.all.Put(w.ctx, s))
	if made := w.tick(); made != 1 {
		t.Errorf("%d jobs after a put of the same times, want 1", made)
	}
	w.asleep(time.Minute)
	s.Cron = "0 0 1 1 *"
	w.must(w.all.Put(w.ctx, s))
	if made := w.tick(); made != 0 {
		t.Errorf("%d jobs after a put of other times, want 0", made)
	}
}

func TestAPausedScheduleDoesNotTickAndGoesOnWithoutCatchingUp(t *testing.T) {
	w := newWorld(t)
	w.must(w.all.Put(w.ctx, minutely("m", queue.CatchUpAll)))
	w.must(w.all.Pause(w.ctx, "m"))
	w.must(w.all.Pause(w.ctx, "m"))
	w.asleep(time.Hour)
	if made := w.tick(); made != 0 {
		t.Errorf("%d jobs of a paused schedule", made)
	}
	w.must(w.all.Resume(w.ctx, "m"))
	if made := w.tick(); made != 0 {
		t.Errorf("%d jobs of the time in which it was paused", made)
	}
	w.must(w.all.Delete(w.ctx, "m"))
	for _, err := range []error{w.all.Delete(w.ctx, "m"), w.all.Pause(w.ctx, "m"), w.all.Resume(w.ctx, "m"), w.all.Resume(w.ctx, "")} {
		if !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
	}
}

func TestAScheduleThatCannotBeEvaluatedHurtsNoOther(t *testing.T) {
	w := newWorld(t)
	w.must(w.all.Put(w.ctx, minutely("bad", queue.CatchUpLatest)))
	w.must(w.all.Put(w.ctx, minutely("good", queue.CatchUpLatest)))
	w.exec("UPDATE doze.schedules SET time_zone = 'Gone/Zone' WHERE name = 'bad'")
	w.asleep(0)
	for round, want := range []int{1, 0} {
		due, now, err := w.store.DueSchedules(w.ctx, w.pool, "")
		w.must(err)
		made, err := schedule.Tick(w.ctx, w.pool, w.store, due, now)
		if round == 0 && (err == nil || len(made) != want) {
			t.Errorf("%d jobs, %v; want 1 and the error of the bad one", len(made), err)
		}
		if round == 1 && len(due) > 1 { // the good one may be due again if a minute has begun
			t.Errorf("due again at once: %+v", due)
		}
	}
}

func TestPutNamesWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	for field, change := range map[string]func(*queue.Schedule){
		"name":           func(s *queue.Schedule) { s.Name = "a b" },
		"kind":           func(s *queue.Schedule) { s.Kind = "" },
		"queue":          func(s *queue.Schedule) { s.Queue = "' OR 1" },
		"payload":        func(s *queue.Schedule) { s.Payload = []byte("{") },
		"priority":       func(s *queue.Schedule) { s.Priority = 11 },
		"catch_up":       func(s *queue.Schedule) { s.CatchUp = "some" },
		"catch_up_limit": func(s *queue.Schedule) { s.CatchUpLimit = -1 },
	} {
		s := minutely("m", "")
		change(&s)
		var wrong *queue.FieldError
		if err := w.all.Put(w.ctx, s); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	var n int
	if err := w.pool.QueryRow(w.ctx, "SELECT count(*) FROM "+pgx.Identifier{w.schema, "schedules"}.Sanitize()).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d schedules are stored, %v", n, err)
	}
}

// However long nobody was awake and however often it ticks, what is caught up are the last ticks.
func TestAYearAsleepIsCaughtUpByTheLastTicks(t *testing.T) {
	for cron, every := range map[string]time.Duration{"* * * * * *": time.Second, "*/5 * * * *": 5 * time.Minute, "0 3 * * *": 24 * time.Hour} {
		for _, asleep := range []time.Duration{time.Hour, 60 * 24 * time.Hour, 365 * 24 * time.Hour} {
			for catchUp, most := range map[queue.CatchUp]int{queue.CatchUpLatest: 1, queue.CatchUpAll: 7} {
				t.Run(fmt.Sprint(cron, asleep, catchUp), func(t *testing.T) {
					w := newWorld(t)
					w.must(w.all.Put(w.ctx, queue.Schedule{Name: "s", Kind: "k", Cron: cron, CatchUp: catchUp, CatchUpLimit: 7}))
					var now time.Time
					w.must(w.pool.QueryRow(w.ctx, "SELECT now()").Scan(&now))
					from := now.Add(-asleep).UTC().Truncate(every)
					if every == 24*time.Hour {
						from = from.Add(3 * time.Hour)
					}
					w.exec("UPDATE doze.schedules SET next_at = $1::timestamptz", from)
					w.tick()
					rows, err := w.pool.Query(w.ctx, queue.Qualify("SELECT run_at FROM doze.jobs ORDER BY run_at DESC", w.schema))
					w.must(err)
					made, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
					w.must(err)
					want := most
					if all := int(asleep/every) + 1; all < most {
						want = all
					}
					if len(made) > want || len(made) < want-1 {
						t.Fatalf("%d jobs, want %d", len(made), want)
					}
					for i, at := range made {
						if old := now.Sub(at); old > time.Duration(i+1)*every+time.Minute {
							t.Errorf("tick %d from the end is %v old", i, old)
						}
					}
				})
			}
		}
	}
}
