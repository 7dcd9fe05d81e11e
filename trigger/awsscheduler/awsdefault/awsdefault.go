// Package awsdefault makes the alarm of awsscheduler for programs outside Lambda. Region and
// credentials come from where the AWS tools look: variables, shared files, SSO, containers and
// instances.
package awsdefault

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"

	"github.com/dozequeue/doze/trigger/awsscheduler"
)

// New gives an alarm with the SDK's default configuration; what c sets goes before it. Shared files
// are read now, credentials are fetched when an alarm is set.
func New(ctx context.Context, c awsscheduler.Config) (*awsscheduler.Alarm, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	loaded, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("awsscheduler: load configuration: %w", err)
	}
	if c.Region == "" && loaded.Region == "" {
		return nil, errors.New("awsscheduler: Region: empty, want a region such as eu-central-1: set it, AWS_REGION or a profile's")
	}
	return awsscheduler.NewWithClient(scheduler.NewFromConfig(loaded, awsscheduler.ClientOptions(c)), c)
}
