package cost

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// typical is a use in which everything plays a part.
func typical() Use {
	return Use{
		Jobs: 10_000, Burst: 10, Later: 3, Ticks: 24, Job: time.Second, Together: 10, Overhead: 200 * time.Millisecond, FunctionTime: 5 * time.Minute, Memory: 256,
		SuspendAfter: 5 * time.Minute, Units: 0.25, SweepEvery: time.Hour, PollEvery: time.Second, DrainEvery: 10 * time.Minute,
	}
}

var prices = Prices{ComputeHour: 0.106, GBSecond: 0.0000133334, Invocation: 0.0000002, Alarm: 0.000001, QueueRequest: 0.0000004, WorkerHour: 0.009875}

func compare(t *testing.T, u Use) Comparison {
	t.Helper()
	c, err := Compare(u, prices)
	if err != nil {
		t.Fatalf("%+v: %v", u, err)
	}
	return c
}

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-9*math.Max(1, math.Abs(want)) }

func TestByHand(t *testing.T) {
	t.Parallel()
	alone := typical()
	alone.Later, alone.Ticks, alone.SweepEvery, alone.Overhead, alone.Job = 0, 0, 0, 0, 0
	sweeps := alone
	sweeps.Jobs, sweeps.SweepEvery = 0, time.Hour
	both := alone
	both.SweepEvery = time.Hour
	busy := alone
	busy.Job = 6 * time.Minute // the union of [work, work + timeout]: eleven minutes
	busy.FunctionTime = 15 * time.Minute
	long := alone
	long.Burst, long.Job = 10_000, time.Minute // 1,000 minutes of work at ten at a time, in functions of five
	arrivals := alone
	arrivals.Arrivals = 10 // a day
	for _, tt := range []struct {
		name               string
		use                Use
		awake, invocations float64
	}{
		{"1,000 bursts of 5 minutes in 720 h", alone, 720 * (1 - math.Exp(-1000./12/720)), 1000},
		{"a sweep each hour of 5 minutes", sweeps, 60, 720},
		{"both", both, 720 * (1 - math.Exp(-1000./12/720)*11/12), 1720},
		{"jobs that take a while", busy, 720 * (1 - math.Exp(-1000*11./60/720)), 1000},
		{"a backlog for many functions", long, 720 * (1 - math.Exp(-(1000+5)/60./720)), 200},
		{"300 moments a month", arrivals, 720 * (1 - math.Exp(-300./12/720)), 300},
	} {
		p := compare(t, tt.use).Plans[0]
		if !near(p.AwakeHours, tt.awake) || !near(p.Invocations, tt.invocations) {
			t.Errorf("%s: awake %v h in %v invocations, want %v h in %v", tt.name, p.AwakeHours, p.Invocations, tt.awake, tt.invocations)
		}
	}
}

func TestMoneyByHand(t *testing.T) {
	t.Parallel()
	u := typical()
	u.Later, u.Ticks, u.SweepEvery, u.HTTP = 0, 0, 0, true
	c := compare(t, u)
	doze := c.Plans[0]
	invocations := 11_000. // a burst each, and each job's enqueue
	seconds := 1000*1 + invocations*0.2
	if want := invocations*0.0000002 + seconds*256/1024*0.0000133334; !near(doze.Money.Functions, want) {
		t.Errorf("functions cost %v, want %v", doze.Money.Functions, want)
	}
	if want := doze.AwakeHours * 0.25 * 0.106; !near(doze.Money.Database, want) {
		t.Errorf("the database costs %v, want %v", doze.Money.Database, want)
	}
	listener := c.Plans[2].Money
	if want := 720 * (0.25*0.106 + 0.009875); !near(listener.Total, want) {
		t.Errorf("a worker that listens costs %v, want %v", listener.Total, want)
	}
	sqs := c.Plans[4]
	if want := 10_000. + 2*1000 + 2*720*180; !near(sqs.QueueRequests, want) {
		t.Errorf("SQS takes %v requests, want %v", sqs.QueueRequests, want)
	}
}

// anyUse is a use at random, of any size.
func anyUse(r *rand.Rand) Use {
	size := func(most float64) float64 { return math.Floor(math.Pow(most, r.Float64())*100) / 100 }
	period := func(least, most time.Duration) time.Duration {
		return least + time.Duration(math.Pow(float64(most-least), r.Float64()))
	}
	u := Use{
		Jobs: size(1e8), Burst: size(1e4), Job: period(0, 5*time.Minute), Together: size(100), Overhead: period(0, 10*time.Second),
		FunctionTime: 5*time.Minute + period(0, 10*time.Minute), Memory: size(1e4), HTTP: r.IntN(2) == 0,
		SuspendAfter: period(0, 24*time.Hour), Units: size(16), PollEvery: period(time.Millisecond, time.Hour), DrainEvery: period(time.Second, 24*time.Hour),
	}
	if r.IntN(2) == 0 {
		u.Arrivals = size(1e4)
	}
	if r.IntN(2) == 0 {
		u.Later, u.Ticks, u.SweepEvery = size(1e3), size(1e4), period(time.Second, 48*time.Hour)
	}
	if r.IntN(10) == 0 {
		u.Jobs = 0
	}
	u.Together, u.Burst = max(1, u.Together), max(1, u.Burst)
	return u
}

func TestProperties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	const more = 1 + 1e-9 // for rounding
	for range 20_000 {
		u := anyUse(r)
		c := compare(t, u)
		touches := u.bursts() + u.later() + u.ticks() + times(u.SweepEvery)
		for _, p := range c.Plans {
			if !(p.AwakeHours >= 0 && p.AwakeHours <= Hours) {
				t.Fatalf("%s: awake %v h of 720: %+v", p.Name, p.AwakeHours, u)
			}
			for i, v := range []float64{p.Wakes, p.Invocations, p.GBSeconds, p.Money.Database, p.Money.Functions, p.Money.Services, p.Money.Worker, p.Money.Total} {
				if !(v >= 0) || math.IsInf(v, 0) {
					t.Fatalf("%s: figure %d is %v: %+v", p.Name, i, v, u)
				}
			}
		}
		if doze := c.Plans[0]; doze.Wakes > touches*more || doze.Invocations < touches/more {
			t.Fatalf("%v wakes and %v invocations for %v touches: %+v", doze.Wakes, doze.Invocations, touches, u)
		}
		if poller := c.Plans[1]; u.PollEvery <= u.SuspendAfter && poller.AwakeHours != Hours {
			t.Fatalf("a poller each %v leaves a database asleep that suspends after %v: awake %v h", u.PollEvery, u.SuspendAfter, poller.AwakeHours)
		}
		if c.Plans[2].AwakeHours != Hours {
			t.Fatalf("a listener leaves the database asleep: %+v", u)
		}

		alone, most := 0., 0.
		for _, p := range c.Parts {
			if p.Adds > p.Alone*more+1e-9 || p.Adds < -1e-9 {
				t.Fatalf("%s: %v h alone, but %v h more: %+v", p.What, p.Alone, p.Adds, u)
			}
			alone, most = alone+p.Alone, math.Max(most, p.Alone)
		}
		if doze := c.Plans[0].AwakeHours; doze > alone*more+1e-9 || doze < most/more-1e-9 {
			t.Fatalf("awake %v h, its parts %v h in all and %v h at most: %+v", doze, alone, most, u)
		}
	}
}

func TestMoreIsNeverCheaper(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	factor := func() float64 { return 1 + r.ExpFloat64() }
	for name, change := range map[string]func(*Use){
		"more jobs":             func(u *Use) { u.Jobs = (u.Jobs + 1) * factor() },
		"more moments":          func(u *Use) { u.Arrivals = u.Arrivals * factor() },
		"more for later":        func(u *Use) { u.Later = (u.Later + 1) * factor() },
		"more ticks":            func(u *Use) { u.Ticks = (u.Ticks + 1) * factor() },
		"a longer suspend time": func(u *Use) { u.SuspendAfter = time.Duration(float64(u.SuspendAfter+1) * factor()) },
		"more frequent sweeps": func(u *Use) {
			u.SweepEvery = max(min(u.SweepEvery, time.Second), time.Duration(float64(u.SweepEvery)/factor()))
		},
		"more memory":            func(u *Use) { u.Memory = u.Memory * factor() },
		"a larger database":      func(u *Use) { u.Units = u.Units * factor() },
		"longer jobs":            func(u *Use) { u.Job = min(u.FunctionTime, time.Duration(float64(u.Job+1)*factor())) },
		"fewer at once":          func(u *Use) { u.Together = math.Max(1, u.Together/factor()) },
		"through the enqueue":    func(u *Use) { u.HTTP = true },
		"more overhead":          func(u *Use) { u.Overhead = time.Duration(float64(u.Overhead+1) * factor()) },
		"more frequent drains":   func(u *Use) { u.DrainEvery = max(time.Second, time.Duration(float64(u.DrainEvery)/factor())) },
		"smaller bursts of jobs": func(u *Use) { u.Burst = math.Max(1, u.Burst/factor()) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 2_000 {
				u := anyUse(r)
				v := u
				change(&v)
				before, after := compare(t, u), compare(t, v)
				for i, p := range before.Plans {
					if q := after.Plans[i]; q.Money.Total < p.Money.Total-1e-9*math.Max(1, p.Money.Total) || q.AwakeHours < p.AwakeHours-1e-9 {
						t.Fatalf("%s: %v h for %v became %v h for %v:\n%+v\n%+v", p.Name, p.AwakeHours, p.Money.Total, q.AwakeHours, q.Money.Total, u, v)
					}
				}
			}
		})
	}
}

// The formula against the definition: the union of [touch, touch + length], drawn at random.
func TestAwakeIsTheUnion(t *testing.T) {
	t.Parallel()
	const h = 400_000 // hours drawn
	for name, sources := range map[string][]source{
		"random":            {{n: 1000, length: 1. / 12}},
		"random, crowded":   {{n: 5000, length: 0.2}},
		"regular":           {{n: 720, length: 1. / 12, regular: true}},
		"regular, touching": {{n: 720, length: 1, regular: true}},
		"both":              {{n: 1000, length: 1. / 12}, {n: 720, length: 1. / 12, regular: true}},
		"two regular":       {{n: 720, length: 0.3, regular: true}, {n: 1234.5, length: 0.1, regular: true}},
		"all kinds":         {{n: 300, length: 0.4}, {n: 90, length: 0.5}, {n: 717, length: 0.1, regular: true}, {n: 30, length: 0.2, regular: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(5, 6))
			type span struct{ from, to float64 }
			var spans []span
			for _, s := range sources {
				gap := func() float64 { return Hours / s.n }
				at := r.Float64() * gap()
				if !s.regular {
					gap = func() float64 { return r.ExpFloat64() * Hours / s.n }
				}
				for ; at < h; at += gap() {
					spans = append(spans, span{at, at + s.length})
				}
			}
			slices.SortFunc(spans, func(a, b span) int {
				if a.from < b.from {
					return -1
				}
				return 1
			})
			total, wakes, end := 0., 0., 0.
			for _, s := range spans {
				if s.from > end+1e-6 {
					wakes++
				}
				total += math.Max(0, s.to-math.Max(end, s.from))
				end = math.Max(end, s.to)
			}
			gotHours, gotWakes := awake(sources)
			wantHours, wantWakes := total/h*Hours, wakes/h*Hours
			if math.Abs(gotHours-wantHours) > 0.01*wantHours || math.Abs(gotWakes-wantWakes) > 0.01*wantWakes+0.1 {
				t.Errorf("awake %.2f h in %.2f wakes; drawn: %.2f h in %.2f wakes", gotHours, gotWakes, wantHours, wantWakes)
			}
		})
	}
}

func TestEachPriceIsUsed(t *testing.T) {
	t.Parallel()
	total := func(p Prices) (sum float64) {
		c, err := Compare(typical(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, plan := range c.Plans {
			sum += plan.Money.Total
		}
		return sum
	}
	if free := total(Prices{}); free != 0 {
		t.Errorf("for nothing it costs %v", free)
	}
	rest := 0.
	for i := range reflect.TypeFor[Prices]().NumField() {
		one := Prices{}
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(prices).Field(i))
		part := total(one)
		if part <= 0 {
			t.Errorf("the price %s changes nothing", reflect.TypeFor[Prices]().Field(i).Name)
		}
		rest += part
	}
	if all := total(prices); !near(all, rest) {
		t.Errorf("all prices make %v, one after the other %v", all, rest)
	}
}

func TestWrongInputIsNamed(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Use, *Prices){
		"jobs is -1: want 0 or more":           func(u *Use, _ *Prices) { u.Jobs = -1 },
		"jobs is NaN":                          func(u *Use, _ *Prices) { u.Jobs = math.NaN() },
		"jobs is +Inf":                         func(u *Use, _ *Prices) { u.Jobs = math.Inf(1) },
		"burst is 0.5: want 1 or more":         func(u *Use, _ *Prices) { u.Burst = 0.5 },
		"concurrency is 0":                     func(u *Use, _ *Prices) { u.Together = 0 },
		"sweep-every is 1ms: want 0":           func(u *Use, _ *Prices) { u.SweepEvery = time.Millisecond },
		"drain-every is 0":                     func(u *Use, _ *Prices) { u.DrainEvery = 0 },
		"longer than function-time":            func(u *Use, _ *Prices) { u.Job = time.Hour },
		"price-worker-hour is -1":              func(_ *Use, p *Prices) { p.WorkerHour = -1 },
		"suspend-after is -1: want 0 or more":  func(u *Use, _ *Prices) { u.SuspendAfter = -time.Second },
		"poll-every is 0: want 0.001 or more":  func(u *Use, _ *Prices) { u.PollEvery = 0 },
		"price-compute-hour is NaN: want 0 or": func(_ *Use, p *Prices) { p.ComputeHour = math.NaN() },
	} {
		u, p := typical(), prices
		change(&u, &p)
		if _, err := Compare(u, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Second: "1s", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", time.Hour: "1h", 24 * time.Hour: "24h", 100 * time.Millisecond: "100ms", 70 * time.Minute: "1h10m",
	} {
		if got := short(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
