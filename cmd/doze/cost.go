package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/dozequeue/doze/internal/cost"
)

type costCmd struct {
	jsonFlag
	Jobs      float64 `default:"10000" help:"Jobs a month."`
	Burst     float64 `default:"10" help:"Jobs that come together."`
	Arrivals  float64 `help:"Moments of a day at which jobs come, instead of --burst."`
	Later     float64 `help:"Further moments of a day at which a delayed job or a retry falls due."`
	Schedules float64 `help:"Ticks of schedules a day."`

	Seconds      float64       `default:"1" help:"How long a job takes."`
	Concurrency  float64       `default:"10" help:"Jobs that a function runs at once."`
	Memory       float64       `default:"256" help:"Memory of a function in MB."`
	Overhead     time.Duration `default:"200ms" help:"What a function takes besides its jobs: start, connection, statements."`
	FunctionTime time.Duration `default:"5m" help:"Time limit of a function."`
	HTTP         bool          `name:"http" help:"Jobs enter through the enqueue function, not from your own program."`

	SuspendAfter time.Duration `default:"5m" help:"Suspend time of the database."`
	ComputeUnits float64       `default:"0.25" help:"Size of the database while it is awake, in the unit of --price-compute-hour."`
	SweepEvery   time.Duration `default:"1h" help:"Period of the sweeps; 0 for none."`
	PollEvery    time.Duration `default:"1s" help:"Period of the poller to compare with."`
	DrainEvery   time.Duration `default:"10m" help:"Period of the scheduled function to compare with."`

	PriceComputeHour    float64 `default:"0.106" help:"An hour of one unit of the database. Default: Neon Launch; 0.222 is Neon Scale, 0.12 Aurora."`
	PriceLambdaGBSecond float64 `name:"price-lambda-gb-second" default:"0.0000133334" help:"A GB-second of a function. Default: Lambda, arm64."`
	PriceInvocation     float64 `default:"0.0000002" help:"An invocation of a function."`
	PriceAlarm          float64 `default:"0.000001" help:"An invocation by EventBridge Scheduler."`
	PriceQueueRequest   float64 `default:"0.0000004" help:"A request to SQS."`
	PriceWorkerHour     float64 `default:"0.009875" help:"An hour of a worker that stays up. Default: Fargate, arm64, 0.25 vCPU and 0.5 GB."`
}

// Run needs no database.
func (c *costCmd) Run(o *output) error {
	compared, err := cost.Compare(cost.Use{
		Jobs: c.Jobs, Burst: c.Burst, Arrivals: c.Arrivals, Later: c.Later, Ticks: c.Schedules,
		Job: time.Duration(math.Round(c.Seconds * 1e9)), Together: c.Concurrency, Memory: c.Memory, Overhead: c.Overhead, FunctionTime: c.FunctionTime, HTTP: c.HTTP,
		SuspendAfter: c.SuspendAfter, Units: c.ComputeUnits, SweepEvery: c.SweepEvery, PollEvery: c.PollEvery, DrainEvery: c.DrainEvery,
	}, cost.Prices{
		ComputeHour: c.PriceComputeHour, GBSecond: c.PriceLambdaGBSecond, Invocation: c.PriceInvocation,
		Alarm: c.PriceAlarm, QueueRequest: c.PriceQueueRequest, WorkerHour: c.PriceWorkerHour,
	})
	if err != nil {
		return err
	}
	return o.print(c.JSON, compared, func(w io.Writer) {
		fmt.Fprintln(w, "A MONTH OF\tAWAKE\tWAKES\tINVOCATIONS\tDATABASE\tFUNCTIONS\tSERVICES\tWORKER\tTOTAL")
		for _, p := range compared.Plans {
			fmt.Fprintf(w, "%s\t%.1f h\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\n", p.Name, p.AwakeHours, count(p.Wakes), count(p.Invocations),
				p.Money.Database, p.Money.Functions, p.Money.Services, p.Money.Worker, p.Money.Total)
		}
		fmt.Fprintln(w, "\nWITH DOZE, AWAKE FOR\tTIMES\tALONE\tADDS\tMONEY")
		for _, p := range compared.Parts {
			fmt.Fprintf(w, "%s\t%s\t%.1f h\t%.1f h\t%.2f\n", p.What, count(p.Times), p.Alone, p.Adds, p.Adds*c.ComputeUnits*c.PriceComputeHour)
		}
		fmt.Fprintln(w, "\nEstimates for a month of 720 hours, without free tiers, storage and network. Prices in USD, the defaults as of 2026:")
		fmt.Fprintln(w, "docs/cost.md has their sources and the formula. SQS leaves the database asleep; jobs that use it wake it there too.")
	})
}

// count prints a whole number with its thousands parted.
func count(n float64) string {
	s := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
