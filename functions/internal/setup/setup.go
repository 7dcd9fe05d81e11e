// Package setup makes what the functions have in common out of their settings.
package setup

import (
	"fmt"

	"github.com/dozequeue/doze/internal/env"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger"
	"github.com/dozequeue/doze/trigger/awslambda"
)

// Trigger returns the trigger that the settings name.
func Trigger(cfg env.Trigger) (queue.Trigger, error) {
	switch cfg.Trigger {
	case "lambda":
		t, err := awslambda.New(awslambda.Config{Function: cfg.TriggerFunction, Timeout: cfg.TriggerTimeout})
		if err != nil {
			return nil, fmt.Errorf("DOZE_TRIGGER=lambda: %w", err)
		}
		return t, nil
	case "http":
		t, err := trigger.NewHTTP(trigger.HTTPConfig{URL: cfg.TriggerURL, Secret: cfg.TriggerSecrets.Bytes()[0], SendTimeout: cfg.TriggerTimeout})
		if err != nil {
			return nil, fmt.Errorf("DOZE_TRIGGER=http: %w", err)
		}
		return t, nil
	}
	return trigger.None(), nil
}
