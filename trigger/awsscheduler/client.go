package awsscheduler

import (
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"

	"github.com/dozequeue/doze/trigger/internal/awsenv"
)

// New gives an alarm for use inside Lambda. Credentials are read from AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN at each request. Nothing is sent yet.
func New(config Config) (*Alarm, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Region = awsenv.Region(config.Region); config.Region == "" {
		return nil, errors.New("awsscheduler: Region: empty, want a region such as eu-central-1: set it or AWS_REGION")
	}
	config.Endpoint = awsenv.Endpoint(config.Endpoint, "SCHEDULER")
	options := scheduler.Options{Credentials: aws.CredentialsProviderFunc(awsenv.Credentials)}
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
		o.HTTPClient = awsenv.HTTPClient(config.Timeout)
		o.Retryer = awsenv.Retryer(config.Attempts)
	}
}
