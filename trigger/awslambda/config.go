package awslambda

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"time"
)

// Config says which function a wake invokes, and how.
type Config struct {
	// Function is invoked for queues that are not in Functions: a name, an ARN,
	// or either with :alias. Required unless Functions holds every queue.
	Function string

	// Functions names a function for each of these queues.
	Functions map[string]string

	// Region of the functions. Default: the variables AWS_REGION, then
	// AWS_DEFAULT_REGION.
	Region string

	// Endpoint of the Lambda API, for tests and private endpoints. Default: the
	// variables AWS_ENDPOINT_URL_LAMBDA, then AWS_ENDPOINT_URL, then the
	// region's own.
	Endpoint string

	// Timeout of one try. Default 3 s.
	Timeout time.Duration

	// Attempts is the most tries for one wake, when Lambda is throttled or
	// fails or the connection breaks. Default 3; 1 does not try again. Waits
	// between them are at most half a second.
	Attempts int
}

// WithDefaults fills in Timeout and Attempts where they are zero.
func (c Config) WithDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 3 * time.Second
	}
	if c.Attempts == 0 {
		c.Attempts = 3
	}
	c.Functions = maps.Clone(c.Functions)
	return c
}

// A name, a partial ARN or an ARN, as the FunctionName of
// https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html.
var functionName = regexp.MustCompile(`^(arn:aws[a-zA-Z-]*:lambda:[a-z0-9-]+:\d{12}:function:|\d{12}:function:)?[a-zA-Z0-9-_]{1,64}(:(\$LATEST|[a-zA-Z0-9-_]+))?$`)

// Validate tells what cannot work.
func (c Config) Validate() error {
	if c.Function == "" && len(c.Functions) == 0 {
		return errors.New("awslambda: Function: empty, want the name or ARN of the drain's function")
	}
	if c.Function != "" && !functionName.MatchString(c.Function) {
		return fmt.Errorf("awslambda: Function: %q, want the name or ARN of a function", c.Function)
	}
	for name, f := range c.Functions {
		if !functionName.MatchString(f) {
			return fmt.Errorf("awslambda: Functions[%q]: %q, want the name or ARN of a function", name, f)
		}
	}
	if c.Endpoint != "" {
		if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" {
			return errors.New("awslambda: Endpoint: want a URL such as https://lambda.eu-central-1.amazonaws.com")
		}
	}
	if c.Timeout < 0 || c.Attempts < 0 {
		return fmt.Errorf("awslambda: Timeout %s and Attempts %d, want 0 for the default or more", c.Timeout, c.Attempts)
	}
	return nil
}

// function to invoke for a queue.
func (c Config) function(queueName string) (string, error) {
	if f := c.Functions[queueName]; f != "" {
		return f, nil
	}
	if c.Function == "" {
		return "", fmt.Errorf("awslambda: queue %q: no function for it, set Function or Functions[%q]", queueName, queueName)
	}
	return c.Function, nil
}
