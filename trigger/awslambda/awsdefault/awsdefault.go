// Package awsdefault makes the trigger of awslambda for programs outside
// Lambda. Region and credentials come from where the AWS tools look: variables,
// shared files, SSO, containers and instances.
package awsdefault

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/dozequeue/doze/trigger/awslambda"
)

// New gives a trigger with the SDK's default configuration; what c sets goes
// before it. Shared files are read now, credentials are fetched when a wake is
// fired.
func New(ctx context.Context, c awslambda.Config) (*awslambda.Trigger, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	loaded, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("awslambda: load configuration: %w", err)
	}
	if c.Region == "" && loaded.Region == "" {
		return nil, errors.New("awslambda: Region: empty, want a region such as eu-central-1: set it, AWS_REGION or a profile's")
	}
	return awslambda.NewWithClient(lambda.NewFromConfig(loaded, awslambda.ClientOptions(c)), c)
}
