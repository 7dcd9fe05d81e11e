package awsscheduler

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
)

// New gives an alarm for use inside Lambda. Credentials are read from AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN at each request. Nothing is sent yet.
func New(config Config) (*Alarm, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.Region = cmp.Or(config.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if config.Region == "" {
		return nil, errors.New("awsscheduler: Region: empty, want a region such as eu-central-1: set it or AWS_REGION")
	}
	// The SDK reads these two only through its config package.
	config.Endpoint = cmp.Or(config.Endpoint, os.Getenv("AWS_ENDPOINT_URL_SCHEDULER"), os.Getenv("AWS_ENDPOINT_URL"))
	options := scheduler.Options{Credentials: aws.CredentialsProviderFunc(credentials)}
	return NewWithClient(scheduler.New(options, ClientOptions(config)), config)
}

// ClientOptions sets region, endpoint, timeout and retries of a client to what config says; an empty
// Region or Endpoint leaves what the client has.
func ClientOptions(config Config) func(*scheduler.Options) {
	config = config.WithDefaults()
	return func(o *scheduler.Options) {
		if config.Region != "" {
			o.Region = config.Region
		}
		if config.Endpoint != "" {
			o.BaseEndpoint = aws.String(config.Endpoint)
		}
		o.HTTPClient = awshttp.NewBuildableClient().WithTimeout(config.Timeout)
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts = config.Attempts
			r.MaxBackoff = 500 * time.Millisecond
		})
	}
}

// credentials are the ones that Lambda gives to a function's role.
func credentials(context.Context) (aws.Credentials, error) {
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
