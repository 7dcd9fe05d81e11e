// Package awsenv is what AWS clients inside Lambda have in common: they take what the environment
// says, without the SDK's config package, which costs time at each cold start.
package awsenv

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// Credentials are the ones that Lambda gives to a function's role, read at each call.
func Credentials(context.Context) (aws.Credentials, error) {
	c := aws.Credentials{
		AccessKeyID:     os.Getenv("AWS_ACCESS_KEY_ID"),
		SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken:    os.Getenv("AWS_SESSION_TOKEN"),
		Source:          "environment",
	}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return aws.Credentials{}, errors.New("AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is empty: outside Lambda use awsdefault")
	}
	return c, nil
}

// Region is the one that is set, or the environment's; empty if there is none.
func Region(set string) string {
	return cmp.Or(set, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
}

// Endpoint is the one that is set, or the environment's for a service such as LAMBDA; empty if there
// is none. The SDK reads these variables only through its config package.
func Endpoint(set, service string) string {
	return cmp.Or(set, os.Getenv("AWS_ENDPOINT_URL_"+service), os.Getenv("AWS_ENDPOINT_URL"))
}

// HTTPClient bounds each try.
func HTTPClient(timeout time.Duration) interface {
	Do(*http.Request) (*http.Response, error)
} {
	return awshttp.NewBuildableClient().WithTimeout(timeout)
}

// Retryer bounds how often and how slowly a request is tried: somebody waits for it.
func Retryer(attempts int) aws.Retryer {
	return retry.NewStandard(func(r *retry.StandardOptions) {
		r.MaxAttempts = attempts
		r.MaxBackoff = 500 * time.Millisecond
	})
}
