package schedulertest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Schedule is a schedule as the API shows it. Fields that a create or an update left out have the
// service's defaults.
type Schedule struct {
	Name                       string
	GroupName                  string
	Description                string `json:",omitempty"`
	ScheduleExpression         string
	ScheduleExpressionTimezone string
	State                      string
	ActionAfterCompletion      string
	FlexibleTimeWindow         *Window
	Target                     *TargetOf
	// ClientToken of the create or update. The real API does not show it.
	ClientToken string `json:",omitempty"`

	// At is the time of the expression.
	At time.Time `json:"-"`
	// Ending is true between the end of a schedule and its deletion.
	Ending bool `json:"-"`
}

// Window is how late a schedule may be on purpose.
type Window struct {
	Mode                   string
	MaximumWindowInMinutes int `json:",omitempty"`
}

// TargetOf is what a schedule invokes, and how.
type TargetOf struct {
	Arn         string
	RoleArn     string
	Input       string       `json:",omitempty"`
	RetryPolicy *RetryPolicy `json:",omitempty"`
}

// RetryPolicy bounds the retries of an invocation that failed.
type RetryPolicy struct {
	MaximumEventAgeInSeconds *int
	MaximumRetryAttempts     *int
}

// The retry policy of a schedule that has none, and the bounds:
// https://docs.aws.amazon.com/scheduler/latest/APIReference/API_RetryPolicy.html.
const (
	minAge, maxAge = 60, 86400
	maxRetries     = 185
)

var (
	nameRule  = regexp.MustCompile(`^[0-9a-zA-Z_.-]{1,64}$`)
	tokenRule = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	atRule    = regexp.MustCompile(`^at\((\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})\)$`)
	arnRule   = regexp.MustCompile(`^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(\d{12})?:.+$`)
	roleRule  = regexp.MustCompile(`^arn:aws[a-z-]*:iam::\d{12}:role/.+$`)
)

// check refuses what the service would, and fills in its defaults.
func (d *Schedule) check() error {
	for _, f := range []struct {
		value *string
		def   string
	}{
		{&d.GroupName, "default"},
		{&d.ScheduleExpressionTimezone, "UTC"},
		{&d.State, "ENABLED"},
		{&d.ActionAfterCompletion, "NONE"},
	} {
		if *f.value == "" {
			*f.value = f.def
		}
	}
	zone, err := time.LoadLocation(d.ScheduleExpressionTimezone)
	at := atRule.FindStringSubmatch(d.ScheduleExpression)
	switch {
	case !nameRule.MatchString(d.Name), !nameRule.MatchString(d.GroupName):
		return fmt.Errorf("name %q in group %q: want %s", d.Name, d.GroupName, nameRule)
	case d.ClientToken != "" && !tokenRule.MatchString(d.ClientToken):
		return fmt.Errorf("ClientToken %q: want %s", d.ClientToken, tokenRule)
	case err != nil:
		return fmt.Errorf("ScheduleExpressionTimezone %q: want the name of a time zone", d.ScheduleExpressionTimezone)
	case at == nil:
		return fmt.Errorf("Invalid Schedule Expression %s. (this double knows at() only)", d.ScheduleExpression)
	case d.State != "ENABLED" && d.State != "DISABLED":
		return fmt.Errorf("State %q", d.State)
	case d.ActionAfterCompletion != "NONE" && d.ActionAfterCompletion != "DELETE":
		return fmt.Errorf("ActionAfterCompletion %q", d.ActionAfterCompletion)
	case len(d.Description) > 512:
		return fmt.Errorf("Description: %d characters, want at most 512", len(d.Description))
	case d.FlexibleTimeWindow == nil || d.FlexibleTimeWindow.Mode != "OFF":
		return fmt.Errorf("FlexibleTimeWindow: this double knows mode OFF only")
	case d.Target == nil || !arnRule.MatchString(d.Target.Arn):
		return fmt.Errorf("Target.Arn: want an ARN")
	case !roleRule.MatchString(d.Target.RoleArn):
		return fmt.Errorf("Target.RoleArn: want the ARN of a role")
	case strings.Contains(d.Target.Arn, ":lambda:") && d.Target.Input != "" && !json.Valid([]byte(d.Target.Input)):
		return fmt.Errorf("Target.Input: want JSON")
	}
	if d.At, err = time.ParseInLocation("2006-01-02T15:04:05", at[1], zone); err != nil {
		return fmt.Errorf("Invalid Schedule Expression %s.", d.ScheduleExpression)
	}
	if r := d.Target.RetryPolicy; r != nil {
		if n := r.MaximumRetryAttempts; n != nil && (*n < 0 || *n > maxRetries) {
			return fmt.Errorf("MaximumRetryAttempts %d: want 0 to %d", *n, maxRetries)
		}
		if n := r.MaximumEventAgeInSeconds; n != nil && (*n < minAge || *n > maxAge) {
			return fmt.Errorf("MaximumEventAgeInSeconds %d: want %d to %d", *n, minAge, maxAge)
		}
	}
	return nil
}

// retries of an invocation, and how old it may become.
func (d *Schedule) retries() (int, time.Duration) {
	n, age := maxRetries, maxAge
	if r := d.Target.RetryPolicy; r != nil {
		if r.MaximumRetryAttempts != nil {
			n = *r.MaximumRetryAttempts
		}
		if r.MaximumEventAgeInSeconds != nil {
			age = *r.MaximumEventAgeInSeconds
		}
	}
	return n, time.Duration(age) * time.Second
}
