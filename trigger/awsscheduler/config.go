package awsscheduler

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"time"
)

// Config says what an alarm invokes, and how it is kept.
type Config struct {
	// TargetARN is the ARN of the drain's function, with :alias or without, for queues that are not in
	// TargetARNs. The service takes no bare name. Required unless TargetARNs holds every queue.
	TargetARN string

	// TargetARNs names a function for each of these queues.
	TargetARNs map[string]string

	// RoleARN is the role that the service assumes to invoke the function. Required; see Rights in the
	// package's documentation.
	RoleARN string

	// Group of the schedules, which must exist. Default "default", the one that every account has.
	Group string

	// Prefix begins the names of the schedules, such as the name of a stack: up to 24 letters, digits
	// and . _ -. It is for people and for lists by name; ids keep the alarms of two stacks apart.
	// Default "doze".
	Prefix string

	// Grain is the least time from now to an alarm, and times are rounded up to a multiple of it. Whole
	// seconds. Default 1 min, the service's precision: less only makes alarms go off early.
	Grain time.Duration

	// Region of the schedules, that of the function. Default: the variables AWS_REGION, then
	// AWS_DEFAULT_REGION.
	Region string

	// Endpoint of the Scheduler API, for tests and private endpoints. Default: the variables
	// AWS_ENDPOINT_URL_SCHEDULER, then AWS_ENDPOINT_URL, then the region's own.
	Endpoint string

	// Timeout of one try. Default 3 s.
	Timeout time.Duration

	// Attempts is the most tries of one request, when the service is throttled or fails or the
	// connection breaks. Default 3; 1 does not try again. Waits between them are at most half a second.
	Attempts int

	// Now is the clock from which times are counted, for tests. Default time.Now.
	Now func() time.Time
}

// WithDefaults fills in Group, Prefix, Grain, Timeout, Attempts and Now where they are zero.
func (c Config) WithDefaults() Config {
	if c.Group == "" {
		c.Group = "default"
	}
	if c.Prefix == "" {
		c.Prefix = "doze"
	}
	if c.Grain == 0 {
		c.Grain = time.Minute
	}
	if c.Timeout == 0 {
		c.Timeout = 3 * time.Second
	}
	if c.Attempts == 0 {
		c.Attempts = 3
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.TargetARNs = maps.Clone(c.TargetARNs)
	return c
}

// As in https://docs.aws.amazon.com/scheduler/latest/APIReference/API_CreateSchedule.html and
// https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html.
var (
	functionARN = regexp.MustCompile(`^arn:aws[a-zA-Z-]*:lambda:[a-z0-9-]+:\d{12}:function:[a-zA-Z0-9-_]{1,64}(:(\$LATEST|[a-zA-Z0-9-_]+))?$`)
	roleARN     = regexp.MustCompile(`^arn:aws[a-zA-Z-]*:iam::\d{12}:role/[\w+=,.@/-]+$`)
	groupName   = regexp.MustCompile(`^[0-9a-zA-Z-_.]{1,64}$`)
	prefixRule  = regexp.MustCompile(`^[0-9a-zA-Z-_.]{1,24}$`)
)

// Validate tells what cannot work.
func (c Config) Validate() error {
	c = c.WithDefaults()
	const function = "arn:aws:lambda:eu-central-1:123456789012:function:drain"
	if c.TargetARN == "" && len(c.TargetARNs) == 0 {
		return fmt.Errorf("awsscheduler: TargetARN: empty, want the ARN of the drain's function, such as %s", function)
	}
	if c.TargetARN != "" && !functionARN.MatchString(c.TargetARN) {
		return fmt.Errorf("awsscheduler: TargetARN: %q, want the ARN of a function, such as %s", c.TargetARN, function)
	}
	for name, target := range c.TargetARNs {
		if !functionARN.MatchString(target) {
			return fmt.Errorf("awsscheduler: TargetARNs[%q]: %q, want the ARN of a function, such as %s", name, target, function)
		}
	}
	switch {
	case !roleARN.MatchString(c.RoleARN):
		return fmt.Errorf("awsscheduler: RoleARN: %q, want the ARN of the role that invokes the function, such as arn:aws:iam::123456789012:role/doze-alarm", c.RoleARN)
	case !groupName.MatchString(c.Group):
		return fmt.Errorf("awsscheduler: Group: %q, want 1 to 64 letters, digits and . _ -", c.Group)
	case !prefixRule.MatchString(c.Prefix):
		return fmt.Errorf("awsscheduler: Prefix: %q, want 1 to 24 letters, digits and . _ -", c.Prefix)
	case c.Grain < time.Second || c.Grain%time.Second != 0:
		return fmt.Errorf("awsscheduler: Grain: %s, want 0 for a minute, or whole seconds", c.Grain)
	case c.Timeout < 0 || c.Attempts < 0:
		return fmt.Errorf("awsscheduler: Timeout %s and Attempts %d, want 0 for the default or more", c.Timeout, c.Attempts)
	}
	if c.Endpoint != "" {
		if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" {
			return fmt.Errorf("awsscheduler: Endpoint: want a URL such as https://scheduler.eu-central-1.amazonaws.com")
		}
	}
	return nil
}

// target to invoke for a queue.
func (c Config) target(queueName string) (string, error) {
	if t := c.TargetARNs[queueName]; t != "" {
		return t, nil
	}
	if c.TargetARN == "" {
		return "", fmt.Errorf("awsscheduler: queue %q: no function for it, set TargetARN or TargetARNs[%q]", queueName, queueName)
	}
	return c.TargetARN, nil
}
