package cost

import (
	"fmt"
	"math"
	"time"
)

// Use is what a month looks like.
type Use struct {
	// Jobs a month.
	Jobs float64
	// Burst is how many of them come together, at least 1. Arrivals, if it is not 0, says instead at how many
	// separate moments of a day they come.
	Burst, Arrivals float64
	// Later is at how many further moments of a day a delayed job or a retry falls due. Each is an attempt
	// besides Jobs.
	Later float64
	// Ticks of schedules a day, each a job besides Jobs.
	Ticks float64
	// Job is how long one takes, and Together how many a function runs at once.
	Job      time.Duration
	Together float64
	// Overhead is what a function takes besides its jobs: its start, the connection, the statements.
	Overhead time.Duration
	// FunctionTime is the limit of one invocation; what is left then is handed over to another.
	FunctionTime time.Duration
	// Memory of a function in MB.
	Memory float64
	// HTTP says that jobs enter through the enqueue function, one invocation each, rather than from your program.
	HTTP bool

	// SuspendAfter is the database's suspend time, and Units its size while it is awake.
	SuspendAfter time.Duration
	Units        float64

	// SweepEvery is the period of sweeps; 0 for none.
	SweepEvery time.Duration
	// PollEvery is the poller's period, and DrainEvery that of the scheduled drain.
	PollEvery, DrainEvery time.Duration
}

// Prices of one of each, in one currency.
type Prices struct {
	ComputeHour  float64 `json:"compute_hour"` // of the database, for one unit
	GBSecond     float64 `json:"lambda_gb_second"`
	Invocation   float64 `json:"invocation"`
	Alarm        float64 `json:"alarm"` // an invocation by the alarm service, or by what calls the sweep
	QueueRequest float64 `json:"queue_request"`
	WorkerHour   float64 `json:"worker_hour"`
}

// Plan is one way to run the jobs, and what a month of it takes.
type Plan struct {
	Name        string  `json:"name"`
	AwakeHours  float64 `json:"awake_hours"`
	Wakes       float64 `json:"wakes"`
	Invocations float64 `json:"invocations"`
	GBSeconds   float64 `json:"gb_seconds"`
	// Alarms are invocations by a scheduler, and QueueRequests those to a queue service.
	Alarms        float64 `json:"alarms"`
	QueueRequests float64 `json:"queue_requests"`
	WorkerHours   float64 `json:"worker_hours"`
	Money         Money   `json:"money"`
}

// Money a month, in the currency of the prices.
type Money struct {
	Database  float64 `json:"database"`
	Functions float64 `json:"functions"`
	Services  float64 `json:"services"` // alarms and queue requests
	Worker    float64 `json:"worker"`
	Total     float64 `json:"total"`
}

// Comparison is all plans for one use, Doze first.
type Comparison struct {
	Plans []Plan `json:"plans"`
	// Parts is what keeps Doze's database awake.
	Parts  []Part `json:"parts"`
	Prices Prices `json:"prices"`
}

// Lambda's side of an SQS queue: messages in a batch, and long polls at least, each of 20 s.
const (
	batch    = 10
	pollers  = 2
	longPoll = 20 * time.Second
)

// Compare estimates each plan.
func Compare(u Use, p Prices) (Comparison, error) {
	if err := check(u, p); err != nil {
		return Comparison{}, err
	}
	touches := u.touches()
	c := Comparison{
		Plans:  []Plan{u.doze(touches), u.poller(), u.listener(), u.scheduled(), u.sqs()},
		Parts:  parts(touches),
		Prices: p,
	}
	for i := range c.Plans {
		c.Plans[i].Money = p.of(c.Plans[i], u.Units)
	}
	return c, nil
}

func (p Prices) of(plan Plan, units float64) Money {
	m := Money{
		Database:  plan.AwakeHours * units * p.ComputeHour,
		Functions: plan.Invocations*p.Invocation + plan.GBSeconds*p.GBSecond,
		Services:  plan.Alarms*p.Alarm + plan.QueueRequests*p.QueueRequest,
		Worker:    plan.WorkerHours * p.WorkerHour,
	}
	m.Total = m.Database + m.Functions + m.Services + m.Worker
	return m
}

func check(u Use, p Prices) error {
	for _, f := range []struct {
		name  string
		value float64
		least float64
	}{
		{"jobs", u.Jobs, 0}, {"burst", u.Burst, 1}, {"arrivals", u.Arrivals, 0}, {"later", u.Later, 0}, {"schedules", u.Ticks, 0},
		{"seconds", u.Job.Seconds(), 0}, {"concurrency", u.Together, 1}, {"overhead", u.Overhead.Seconds(), 0}, {"function-time", u.FunctionTime.Seconds(), 1},
		{"memory", u.Memory, 0}, {"suspend-after", u.SuspendAfter.Seconds(), 0}, {"compute-units", u.Units, 0},
		{"sweep-every", u.SweepEvery.Seconds(), 0}, {"poll-every", u.PollEvery.Seconds(), 0.001}, {"drain-every", u.DrainEvery.Seconds(), 1},
		{"price-compute-hour", p.ComputeHour, 0}, {"price-lambda-gb-second", p.GBSecond, 0}, {"price-invocation", p.Invocation, 0},
		{"price-alarm", p.Alarm, 0}, {"price-queue-request", p.QueueRequest, 0}, {"price-worker-hour", p.WorkerHour, 0},
	} {
		if !(f.value >= f.least && f.value <= 1e15) { // NaN is neither
			return fmt.Errorf("%s is %v: want %v or more", f.name, f.value, f.least)
		}
	}
	if u.SweepEvery > 0 && u.SweepEvery < time.Second {
		return fmt.Errorf("sweep-every is %v: want 0 for no sweep, or 1s or more", u.SweepEvery)
	}
	if u.Job > u.FunctionTime {
		return fmt.Errorf("seconds is %v, longer than function-time, %v: such a job never ends; want a longer function or shorter jobs", u.Job.Seconds(), u.FunctionTime)
	}
	return nil
}

// bursts is at how many moments of a month jobs come.
func (u Use) bursts() float64 {
	if u.Arrivals > 0 {
		return math.Min(u.Arrivals*days, u.Jobs)
	}
	return u.Jobs / u.Burst
}

func (u Use) later() float64    { return u.Later * days }
func (u Use) ticks() float64    { return u.Ticks * days }
func (u Use) attempts() float64 { return u.Jobs + u.later() + u.ticks() }

// times is how often something with this period happens in a month.
func times(period time.Duration) float64 {
	if period == 0 {
		return 0
	}
	return Hours / period.Hours()
}

// runs is how long so many runs take for so many jobs in all, in seconds: each at least as long as a job.
func (u Use) runs(runs, jobs float64) float64 {
	return math.Max(runs, jobs/u.Together) * u.Job.Seconds()
}

func (u Use) gbSeconds(invocations, seconds float64) float64 {
	return (invocations*u.Overhead.Seconds() + seconds) * u.Memory / 1024
}

// invocations is how many functions it takes for so many runs, which work for so many seconds in all.
func (u Use) invocations(runs, seconds float64) float64 {
	return math.Max(runs, seconds/u.FunctionTime.Seconds())
}

// touches is what touches the database with Doze.
func (u Use) touches() []source {
	kept := func(seconds float64) float64 { return u.SuspendAfter.Hours() + u.Overhead.Hours() + seconds/3600 }
	each := 0.0
	if n := u.bursts(); n > 0 {
		each = u.runs(n, u.Jobs) / n
	}
	return []source{
		{name: "jobs that come", n: u.bursts(), length: kept(each)},
		{name: "delayed jobs and retries", n: u.later(), length: kept(u.Job.Seconds())},
		{name: "schedules", n: u.ticks(), length: kept(u.Job.Seconds()), regular: true},
		{name: "sweeps", n: times(u.SweepEvery), length: kept(0), regular: true},
	}
}

func (u Use) doze(touches []source) Plan {
	working := u.runs(u.bursts(), u.Jobs)
	alarms := u.later() + u.ticks() + times(u.SweepEvery)
	p := Plan{Name: "Doze", Invocations: u.invocations(u.bursts(), working) + alarms, Alarms: alarms}
	if u.HTTP {
		p.Invocations += u.Jobs
	}
	p.AwakeHours, p.Wakes = awake(touches)
	p.GBSeconds = u.gbSeconds(p.Invocations, working+(u.later()+u.ticks())*u.Job.Seconds())
	return p
}

// polled is the time at work, in seconds, and the time awake of whoever looks for jobs at a fixed period. An
// enqueue touches the database all the same.
func (u Use) polled(period, overhead time.Duration) (working, hours, wakes float64) {
	looks := times(period)
	working = u.runs(math.Min(looks, u.bursts()+u.later()+u.ticks()), u.attempts())
	hours, wakes = awake([]source{
		{n: u.bursts(), length: u.SuspendAfter.Hours()},
		{n: looks, length: u.SuspendAfter.Hours() + overhead.Hours() + working/looks/3600, regular: true},
	})
	return working, hours, wakes
}

func (u Use) poller() Plan {
	p := Plan{Name: fmt.Sprintf("worker that polls each %s", short(u.PollEvery)), WorkerHours: Hours}
	_, p.AwakeHours, p.Wakes = u.polled(u.PollEvery, 0)
	return p
}

func (u Use) listener() Plan {
	return Plan{Name: "worker that listens", AwakeHours: Hours, WorkerHours: Hours}
}

func (u Use) scheduled() Plan {
	p := Plan{Name: fmt.Sprintf("function each %s", short(u.DrainEvery))}
	looks := times(u.DrainEvery)
	working, hours, wakes := u.polled(u.DrainEvery, u.Overhead)
	p.AwakeHours, p.Wakes = hours, wakes
	p.Alarms = looks
	p.Invocations = u.invocations(looks, working)
	p.GBSeconds = u.gbSeconds(p.Invocations, working)
	return p
}

// sqs is a queue outside the database. Its functions are given no overhead, and its idle queue the fewest
// polls that are documented.
func (u Use) sqs() Plan {
	runs := math.Max(u.bursts(), u.Jobs/batch) + u.later() + u.ticks()
	return Plan{
		Name:          "SQS and Lambda",
		Invocations:   runs,
		GBSeconds:     u.runs(runs, u.attempts()) * u.Memory / 1024,
		Alarms:        u.later() + u.ticks(),
		QueueRequests: u.attempts() + 2*runs + pollers*times(longPoll), // send; receive and delete; idle polls
	}
}

// short is a duration without its zero units.
func short(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if len(s) > len(zero) && s[len(s)-len(zero):] == zero {
			s = s[:len(s)-len(zero)+1]
		}
	}
	return s
}
