package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dozequeue/doze/internal/dbtest"
	"github.com/dozequeue/doze/queue"
)

// The wake protocol is played in rounds: enqueuers and drains take its steps, each with the real statements and in
// a transaction of its own, and stop between any two of them for as long as it takes others to take
// as many steps as they like. Which goes on is drawn by lot, so a round is its seed, and no machine is too
// slow or too fast for it. Each order that model/run_all.sh calls broken must lose a job, and the right one
// must lose none in the same rounds.
//
// Pauses by lot do not find everything. The four broken starts need three jobs, a full house and six steps in
// one order, which would take thousands of rounds; there some of the actors are held at the steps that matter, see
// fullHouse. Two need a stranger who holds a row's lock: look-skips-locked-rows, and free-where-not-exists,
// which is one statement, so that the only pause in it is that it waits for a lock, see inTheWay. The right
// order gets the same holds and the same strangers.

// order is how the steps are put together.
type order string

// The orders, by their names in model/run_all.sh.
const (
	right            order = "right"
	naive            order = "naive-free-then-exit"
	lookThenFree     order = "look-then-free"
	freeIfNone       order = "free-where-not-exists"
	ringInside       order = "ring-inside-insert-tx"
	fireFirst        order = "fire-before-commit"
	oneStart         order = "answer-and-take-one-tx"
	takeFirst        order = "take-then-answer"
	answerAfterClaim order = "answer-after-first-claim"
	noSlotNoAnswer   order = "no-answer-without-a-slot"
	lookSkipsLocked  order = "look-skips-locked-rows"
	saturatedOpen    order = "saturated-still-open"
	busyNoRing       order = "busy-without-ring"
)

// workload is what happens in a round.
type workload struct {
	jobs, slots, claim int
	waits              bool   // the handler of the first job waits until the second is done
	stranger           string // selects a row FOR UPDATE that somebody else locks for a while; $1 is the queue
	steering           func(*rand.Rand) []hold
}

var workloads = map[string]workload{
	"two jobs":            {jobs: 2, slots: 1, claim: 9},
	"a full house":        {jobs: 3, slots: 1, claim: 9, steering: fullHouse},
	"a job that waits":    {jobs: 2, slots: 2, claim: 1, waits: true},
	"a stranger at a job": {jobs: 2, slots: 1, claim: 9, stranger: "SELECT 1 FROM doze.jobs WHERE queue = $1 AND token IS NULL ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"},
	// A slot that is held: nobody but an operator locks a free one, and a start that finds it locked would leave.
	"a stranger at a slot": {jobs: 2, slots: 1, claim: 9, stranger: "SELECT 1 FROM doze.slots WHERE queue = $1 AND token IS NOT NULL LIMIT 1 FOR UPDATE SKIP LOCKED", steering: inTheWay},
}

var brokenOrders = map[order]string{
	naive: "two jobs", lookThenFree: "two jobs", ringInside: "two jobs", fireFirst: "two jobs",
	oneStart: "a full house", takeFirst: "a full house", answerAfterClaim: "a full house", noSlotNoAnswer: "a full house",
	saturatedOpen: "a job that waits", busyNoRing: "a job that waits",
	lookSkipsLocked: "a stranger at a job", freeIfNone: "a stranger at a slot",
}

// fullHouse is how a bell is set while the only slot is held, and a start is under way to it: the second enqueuer rings
// between the first drain's free and its last look, which then sees that job. The start stands still at one
// of its steps until the first drain has left and the third enqueuer has relied on the bell. Each
// hold is left out now and then, so that what comes near this order happens too.
func fullHouse(r *rand.Rand) []hold {
	all := []hold{
		{"enqueuer 2", "insert", 1, "drain 1", "free", 1},
		{"drain 1", "look", 1, "enqueuer 2", "ring", 1},
		{"drain 2", "start", 1, "drain 1", "take", 2},
		{"enqueuer 3", "insert", 1, "drain 1", "look", 2},
		{"enqueuer 3", "insert", 1, "drain 2", "take", 1},
		{"drain 1", "look", 2, "drain 2", "take", 1},
		{"drain 2", []string{"answer", "take", "commit"}[r.IntN(3)], 1, "enqueuer 3", "ring", 1},
	}
	return slices.DeleteFunc(all, func(hold) bool { return r.IntN(8) == 0 })
}

// inTheWay has the stranger lock the slot of the first drain before that gives it up, and until the second enqueuer has rung.
func inTheWay(r *rand.Rand) []hold {
	all := []hold{
		{"stranger", "lock", 1, "drain 1", "claim", 1},
		{"drain 1", "free", 1, "stranger", "lock", 1},
		{"enqueuer 2", "insert", 1, "drain 1", "free", 1},
		{"stranger", "commit", 1, "enqueuer 2", "ring", 1},
	}
	return slices.DeleteFunc(all, func(hold) bool { return r.IntN(8) == 0 })
}

// hold keeps an actor from taking a step for the nth time until another has taken one m times. When nobody else can
// go on, it goes on all the same.
type hold struct {
	who, at    string
	nth        int
	until, has string
	times      int
}

// stressRounds is how many rounds the right order is played with each workload (DOZE_STRESS_ROUNDS), and the seed of the first
// (DOZE_STRESS_SEED). A broken order is played until it has lost a job: each does so in three of a hundred rounds
// or more, so that not to find one in 2,000 is no accident.
func stressRounds(t *testing.T) (rounds int, seed uint64) {
	t.Helper()
	rounds, seed = 200, rand.Uint64()
	if text := os.Getenv("DOZE_STRESS_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	if text := os.Getenv("DOZE_STRESS_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	return rounds, seed
}

func TestOrders_StressFindsEachBrokenOne(t *testing.T) {
	t.Parallel()
	rounds, seed := stressRounds(t)
	most := max(rounds, 2000)
	for broken, name := range brokenOrders {
		t.Run(string(broken), func(t *testing.T) {
			t.Parallel()
			g := newGround(t, workloads[name], most)
			for n := range most {
				lost := g.play(broken, seed+uint64(n))
				if lost == "" {
					continue
				}
				t.Logf("round %d of seed %d lost a job: %s", n, seed, lost)
				g.reset()
				if lost := g.play(right, seed+uint64(n)); lost != "" {
					t.Errorf("and so did the right order, with seed %d: %s", seed+uint64(n), lost)
				}
				return
			}
			t.Errorf("no job lost in %d rounds, seed %d: this test would not see such a mistake", most, seed)
		})
	}
}

func TestOrders_StressLosesNoJobInTheRightOne(t *testing.T) {
	t.Parallel()
	rounds, seed := stressRounds(t)
	for name, workload := range workloads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, workload, rounds)
			for n := range rounds {
				if lost := g.play(right, seed+uint64(n)); lost != "" {
					t.Fatalf("round %d of seed %d lost a job: %s", n, seed, lost)
				}
			}
			if n := g.int(`SELECT count(*) FROM doze.history WHERE state = 'done' AND attempts = 1`); n != rounds*workload.jobs {
				t.Errorf("%d of %d jobs done at the first attempt", n, rounds*workload.jobs)
			}
			t.Logf("%d rounds, %d steps; seed %d", rounds, g.steps, seed)
		})
	}
}

// The list here is the model's.
func TestOrders_AreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../model/run_all.sh")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[0] != "chk" || fields[4] != "$W" {
			continue
		}
		if name, isBroken := strings.CutPrefix(fields[3], "B/"); isBroken {
			n++
			if _, ok := brokenOrders[order(name)]; !ok {
				t.Errorf("the model has a broken order %s, and this test has not", name)
			}
		}
	}
	if n != len(brokenOrders) {
		t.Errorf("the model has %d broken orders, this test %d", n, len(brokenOrders))
	}
}

// ground is where rounds of one workload are played, one after the other.
type ground struct {
	*world
	load    workload
	monitor *pgx.Conn // asks who waits for a lock
	steps   int
}

func newGround(t *testing.T, load workload, rounds int) *ground {
	t.Helper()
	w := newWorld(t, dbtest.MaxConns(16))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute+time.Duration(rounds)*time.Second)
	t.Cleanup(cancel)
	w.ctx = ctx
	g := &ground{world: w, load: load, monitor: w.conn()}
	g.queue("q")
	g.must(g.store.Configure(g.ctx, g.pool, "q", queue.Settings{Slots: load.slots}))
	return g
}

// reset clears what a lost job has left behind.
func (g *ground) reset() {
	g.t.Helper()
	g.exec(`DELETE FROM doze.jobs`)
	g.exec(`UPDATE doze.slots SET state = 'free', token = NULL, locked_until = NULL`)
	g.exec(`UPDATE doze.bells SET bell_until = NULL`)
}

// play plays one round, and says what is lost when nobody has a step left to take: a job is there, and nobody on
// the way. (A bell may be set; but whoever was asked to come has come and gone.)
func (g *ground) play(o order, seed uint64) (lost string) {
	g.t.Helper()
	if o != right { // the last round may have left a bell that nobody answers, and this one is to be lost by itself
		g.reset()
	}
	r := rand.New(rand.NewPCG(seed, 0))
	p := &play{ground: g, order: o, lots: r, doubles: rand.New(rand.NewPCG(seed, 1)), taken: make(map[string]int), finished: make(map[uuid.UUID]bool)}
	if g.load.steering != nil {
		p.holds = g.load.steering(r)
	}
	for range g.load.jobs {
		p.jobs = append(p.jobs, newJob())
	}
	for i := range p.jobs {
		p.join(fmt.Sprint("enqueuer ", i+1), p.enqueue)
	}
	if g.load.stranger != "" {
		p.join("stranger", p.stranger)
	}
	p.run()
	if g.t.Failed() {
		g.t.FailNow()
	}
	g.steps += len(p.log)
	if o == right { // nor is anything else left that would mislead whoever comes next
		if held := g.int(`SELECT (SELECT count(*) FROM doze.bells WHERE bell_until IS NOT NULL) + (SELECT count(*) FROM doze.slots WHERE state <> 'free')`); held != 0 {
			return "nothing, but a bell or a slot is left after " + strings.Join(p.log, ", ")
		}
	}
	if left := g.text(`SELECT id || CASE WHEN locked_until > now() THEN ' is claimed' ELSE ' is due' END FROM doze.jobs ORDER BY id`); left != "" {
		return left + " after " + strings.Join(p.log, ", ")
	}
	return ""
}

// play is one round.
type play struct {
	*ground
	order  order
	lots   *rand.Rand
	holds  []hold
	jobs   []queue.NewJob
	actors []*actor
	log    []string
	clock  int
	taken  map[string]int // how often each actor has taken, or at least begun, each step

	mu       sync.Mutex
	doubles  *rand.Rand
	drains   int
	finished map[uuid.UUID]bool
}

// actor takes steps in a goroutine of its own, each when it is told to.
type actor struct {
	p       *play
	name    string
	arrived chan struct{} // it is about to take a step, or has left
	proceed chan bool     // take it; or else leave, the round is over

	// Set by the actor before it has arrived.
	at   string
	may  func() bool // what it waits for; nil for nothing
	gone bool

	from    int           // it pauses until then
	waiting bool          // for a lock, in the middle of a step
	tx      *pgxpool.Conn // with an open transaction
	mu      sync.Mutex
	pid     uint32 // of the server's process at work for it
}

// join has one more actor take part.
func (p *play) join(name string, acts func(*actor)) {
	a := &actor{p: p, name: name, arrived: make(chan struct{}, 1), proceed: make(chan bool)}
	p.mu.Lock()
	p.actors = append(p.actors, a)
	p.mu.Unlock()
	go func() {
		defer func() {
			if a.tx != nil {
				_, _ = a.tx.Exec(context.WithoutCancel(p.ctx), "ROLLBACK")
				a.tx.Release()
			}
			a.gone = true
			a.arrived <- struct{}{}
		}()
		acts(a)
	}()
}

// run has one actor at a time take a step, until none can.
func (p *play) run() {
	const most = 20_000
	arrived := 0 // of actors, those that have come to their first step
	for {
		p.mu.Lock()
		actors := slices.Clone(p.actors)
		p.mu.Unlock()
		for ; arrived < len(actors); arrived++ {
			p.await(actors[arrived])
			actors[arrived].from = p.clock + p.pause()
			if p.clock == 0 { // nobody begins together with the others
				actors[arrived].from = p.lots.IntN(50)
			}
		}
		for _, a := range actors {
			if a.waiting {
				p.await(a)
			}
		}
		if p.mu.Lock(); len(p.actors) > len(actors) { // who waited for a lock has gone on, and fired
			p.mu.Unlock()
			continue
		}
		p.mu.Unlock()
		var able, unheld, free []*actor
		for _, a := range actors {
			if a.waiting || a.gone || a.may != nil && !a.may() {
				continue
			}
			able = append(able, a)
			if p.held(a) {
				continue
			}
			unheld = append(unheld, a)
		}
		if len(unheld) == 0 {
			unheld = able
		}
		for _, a := range unheld { // whose pauses are over, or the one whose pause is over next
			switch {
			case len(free) == 0 || a.from < free[0].from && free[0].from > p.clock:
				free = []*actor{a}
			case a.from <= p.clock:
				free = append(free, a)
			}
		}
		if len(free) == 0 && !p.t.Failed() && slices.ContainsFunc(actors, func(a *actor) bool { return a.waiting }) {
			continue
		}
		if len(free) == 0 || len(p.log) > most || p.t.Failed() {
			if len(p.log) > most {
				p.t.Errorf("%s does not come to rest: … %v", p.order, p.log[most-50:])
			}
			p.dismiss(actors)
			return
		}
		a := free[p.lots.IntN(len(free))]
		p.log = append(p.log, a.name+" "+a.at)
		p.taken[a.name+" "+a.at]++
		p.clock = max(p.clock, a.from) + 1
		a.from = p.clock + p.pause()
		a.proceed <- true
		p.await(a)
	}
}

// dismiss has all leave, those first that others may wait for.
func (p *play) dismiss(actors []*actor) {
	for _, waiting := range []bool{false, true} {
		for _, a := range actors {
			if a.waiting != waiting {
				continue
			}
			if waiting {
				<-a.arrived
			}
			if a.gone {
				continue
			}
			a.proceed <- false
			<-a.arrived
		}
	}
}

// pause is how long an actor stops between two of its steps. A step takes 1.
func (p *play) pause() int {
	if p.lots.IntN(2) == 0 {
		return 0
	}
	return p.lots.IntN(16)
}

func (p *play) held(a *actor) bool {
	return slices.ContainsFunc(p.holds, func(h hold) bool {
		return h.who == a.name && h.at == a.at && p.taken[a.name+" "+a.at] == h.nth-1 && p.taken[h.until+" "+h.has] < h.times
	})
}

// await waits until an actor has come to its next step or waits for somebody's lock.
func (p *play) await(a *actor) {
	look := time.NewTimer(2 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-a.arrived:
			a.waiting = false
			return
		case <-look.C:
			a.mu.Lock()
			pid := a.pid
			a.mu.Unlock()
			if pid != 0 {
				err := p.monitor.QueryRow(p.ctx, "SELECT cardinality(pg_blocking_pids($1)) > 0", pid).Scan(&a.waiting)
				if err == nil && a.waiting {
					return
				}
			}
			look.Reset(time.Millisecond)
		}
	}
}

// step waits for the actor's turn, and then takes a step on a connection: that of its open transaction, if it has one.
func (a *actor) step(at string, may func() bool, take func(conn *pgx.Conn) error) {
	a.at, a.may = at, may
	a.arrived <- struct{}{}
	if !<-a.proceed {
		runtime.Goexit()
	}
	conn := a.tx
	if conn == nil {
		var err error
		if conn, err = a.p.pool.Acquire(a.p.ctx); err != nil {
			a.fail(at, err)
		}
	}
	defer func() {
		if a.tx = nil; conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
			a.tx = conn
		} else {
			conn.Release()
		}
	}()
	a.works(conn.Conn().PgConn().PID())
	err := take(conn.Conn())
	a.works(0)
	if err != nil {
		a.fail(at, err)
	}
}

func (a *actor) works(pid uint32) {
	a.mu.Lock()
	a.pid = pid
	a.mu.Unlock()
}

func (a *actor) fail(at string, err error) {
	a.p.t.Errorf("%s: %s at %s: %v", a.p.order, a.name, at, err)
	runtime.Goexit()
}

func begin(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "BEGIN")
	return err
}

func (a *actor) commit() {
	a.step("commit", nil, func(conn *pgx.Conn) error {
		_, err := conn.Exec(a.p.ctx, "COMMIT")
		return err
	})
}

// fire starts a drain, or two.
func (p *play) fire() {
	p.mu.Lock()
	first := p.drains + 1
	p.drains = first
	if p.doubles.IntN(4) == 0 {
		p.drains++
	}
	last := p.drains
	p.mu.Unlock()
	for n := first; n <= last; n++ {
		p.join(fmt.Sprint("drain ", n), p.drain)
	}
}

// enqueue is an enqueuer: insert, commit, ring, and fire if it rang.
func (p *play) enqueue(a *actor) {
	n, err := strconv.Atoi(strings.TrimPrefix(a.name, "enqueuer "))
	if err != nil {
		panic(err)
	}
	job, rang := p.jobs[n-1], false
	insert := func(conn *pgx.Conn) error {
		_, err := p.store.Insert(p.ctx, conn, []queue.NewJob{job}, false)
		return err
	}
	ring := func(conn *pgx.Conn) (err error) {
		rang, err = p.store.Ring(p.ctx, conn, "q", time.Now().Add(time.Hour), bell) // as for what was inserted just now: no floor is lowered
		return err
	}
	switch p.order {
	case ringInside:
		a.step("insert", nil, func(conn *pgx.Conn) error {
			if err := begin(p.ctx, conn); err != nil {
				return err
			}
			return insert(conn)
		})
		a.step("ring", nil, ring)
		a.commit()
		if rang {
			p.fire()
		}
	case fireFirst:
		a.step("ring", nil, ring)
		if rang {
			p.fire()
		}
		a.step("insert", nil, insert) // whatever was inserted before, it is the commit that others see
	default:
		a.step("insert", nil, insert)
		a.step("ring", nil, ring)
		if rang {
			p.fire()
		}
	}
}

// stranger locks a row for a while.
func (p *play) stranger(a *actor) {
	for range 3 {
		a.step("lock", nil, func(conn *pgx.Conn) error {
			if err := begin(p.ctx, conn); err != nil {
				return err
			}
			_, err := conn.Exec(p.ctx, queue.Qualify(p.load.stranger, p.name), "q")
			return err
		})
		a.commit()
	}
}

// drain is a drain, from its start to its exit.
func (p *play) drain(a *actor) {
	slot := newSlot("q")
	answer := func(conn *pgx.Conn) error { return p.store.AnswerBell(p.ctx, conn, "q") }
	held := false
	take := func(conn *pgx.Conn) (err error) {
		held, err = p.store.TakeSlot(p.ctx, conn, slot)
		return err
	}
	a.step("start", nil, func(*pgx.Conn) error { return nil })
	switch p.order {
	case oneStart:
		a.step("answer", nil, func(conn *pgx.Conn) error {
			if err := begin(p.ctx, conn); err != nil {
				return err
			}
			return answer(conn)
		})
		a.step("take", nil, take)
		a.commit()
	case takeFirst:
		a.step("take", nil, take)
		a.step("answer", nil, answer)
	case answerAfterClaim: // and not at all without a slot, as there is no claim then
		a.step("take", nil, take)
	case noSlotNoAnswer:
		a.step("take", nil, take)
		if held {
			a.step("answer", nil, answer)
		}
	default:
		a.step("answer", nil, answer)
		a.step("take", nil, take)
	}
	if !held {
		return
	}
	answered := p.order != answerAfterClaim
	for {
		p.work(a, slot, func() {
			if !answered {
				a.step("answer", nil, answer)
				answered = true
			}
		})
		if !p.exit(a, slot) {
			return
		}
		if p.order == lookThenFree || p.order == freeIfNone { // the slot is still held
			continue
		}
		slot = newSlot("q")
		if a.step("take", nil, take); !held {
			return
		}
	}
}

// work claims and runs jobs until there are none.
func (p *play) work(a *actor, slot queue.Slot, claimed func()) {
	var inHand []queue.Outcome
	for mark := queue.SlotState(""); ; {
		var taken queue.Taken
		a.step("claim", nil, func(conn *pgx.Conn) (err error) {
			taken, err = p.store.Step(p.ctx, conn, slot, inHand, p.load.claim, true, mark)
			return err
		})
		p.mu.Lock()
		for _, id := range taken.Held {
			p.finished[id] = true
		}
		p.mu.Unlock()
		inHand, mark = nil, ""
		claimed()
		if len(taken.Claimed) == 0 {
			return
		}
		if len(taken.Claimed) >= p.load.claim { // saturated
			if p.order != saturatedOpen {
				mark = queue.Open // again, with the next claim
				a.step("busy", nil, func(conn *pgx.Conn) error {
					_, err := p.store.Step(p.ctx, conn, slot, nil, 0, false, queue.Busy)
					return err
				})
			}
			if p.order != busyNoRing {
				rang := false
				a.step("ring", nil, func(conn *pgx.Conn) (err error) {
					rang, err = p.store.RingIfDue(p.ctx, conn, "q", bell)
					return err
				})
				if rang {
					p.fire()
				}
			}
		}
		for _, job := range taken.Claimed {
			if p.load.waits && job.ID == p.jobs[0].ID {
				a.step("run", func() bool {
					p.mu.Lock()
					defer p.mu.Unlock()
					return p.finished[p.jobs[1].ID]
				}, func(*pgx.Conn) error { return nil })
			}
			inHand = append(inHand, outcome(job, queue.Done))
		}
	}
}

// exit gives the slot up and takes the last look. True: something is due.
func (p *play) exit(a *actor, slot queue.Slot) (due bool) {
	const someDue = "EXISTS (SELECT FROM doze.jobs WHERE queue = 'q' AND run_at <= now() AND locked_until <= now())"
	free := func(conn *pgx.Conn) error { return p.store.Abandon(p.ctx, conn, slot) }
	look := func(conn *pgx.Conn) error {
		next, err := p.store.Next(p.ctx, conn, "q")
		due = next.Due
		return err
	}
	switch p.order {
	case naive:
		a.step("free", nil, free)
	case lookThenFree:
		if a.step("look", nil, look); !due {
			a.step("free", nil, free)
		}
	case freeIfNone:
		a.step("free", nil, func(conn *pgx.Conn) error {
			freed, err := p.store.FreeSlotIf(p.ctx, conn, slot, "NOT "+someDue)
			due = !freed
			return err
		})
	case lookSkipsLocked:
		a.step("free", nil, free)
		a.step("look", nil, func(conn *pgx.Conn) error {
			rows, err := conn.Query(p.ctx, queue.Qualify(`SELECT true FROM doze.jobs WHERE queue = 'q' AND run_at <= now() AND locked_until <= now()
				LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED`, p.ground.name))
			if err != nil {
				return err
			}
			seen, err := pgx.CollectRows(rows, pgx.RowTo[bool])
			due = len(seen) > 0
			return err
		})
	default:
		a.step("free", nil, free)
		a.step("look", nil, look)
	}
	return due
}
