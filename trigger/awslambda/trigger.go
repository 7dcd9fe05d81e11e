package awslambda

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger/internal/wire"
)

// Invoker is the one method of [lambda.Client] that a [Trigger] calls.
type Invoker interface {
	Invoke(context.Context, *lambda.InvokeInput, ...func(*lambda.Options)) (*lambda.InvokeOutput, error)
}

// Trigger invokes a function for each wake. Make one with [New], with
// [NewWithClient], or with the New of awsdefault. Several goroutines may use
// it.
type Trigger struct {
	config Config
	client Invoker
}

var _ queue.Trigger = (*Trigger)(nil)

// NewWithClient gives a trigger that invokes through client. Of config only
// Function and Functions count: set region, endpoint, timeout and retries on
// the client, for instance with [ClientOptions].
func NewWithClient(client Invoker, config Config) (*Trigger, error) {
	if client == nil {
		return nil, errors.New("awslambda: client: nil, want a Lambda client")
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Trigger{config: config.WithDefaults(), client: client}, nil
}

// Fire hands the wake to Lambda, which answers 202 when it has queued the
// event. That is no promise that the function runs: Lambda may drop an event
// that it cannot place in time, or deliver it twice.
func (t *Trigger) Fire(ctx context.Context, wake queue.Wake) error {
	payload, err := wire.Encode(wake)
	if err != nil {
		return err
	}
	function, err := t.config.function(wake.Queue)
	if err != nil {
		return err
	}
	out, err := t.client.Invoke(ctx, &lambda.InvokeInput{
		FunctionName:   aws.String(function),
		InvocationType: types.InvocationTypeEvent,
		Payload:        payload,
	})
	if err != nil {
		return fmt.Errorf("awslambda: invoke %s: %w", function, err)
	}
	if out.StatusCode != http.StatusAccepted {
		return fmt.Errorf("awslambda: invoke %s: status %d, want %d", function, out.StatusCode, http.StatusAccepted)
	}
	return nil
}
