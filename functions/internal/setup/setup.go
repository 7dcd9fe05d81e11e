// Package setup makes what the functions have in common out of their settings.
package setup

import (
	"fmt"

	"github.com/dozequeue/doze/internal/env"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger"
	"github.com/dozequeue/doze/trigger/awslambda"
	"github.com/dozequeue/doze/trigger/awsscheduler"
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

// Alarm returns the alarm that the settings name, nil for none.
func Alarm(cfg env.Alarm) (queue.Alarm, error) {
	if cfg.Alarm != "scheduler" {
		return nil, nil
	}
	a, err := awsscheduler.New(awsscheduler.Config{
		TargetARN: cfg.AlarmTarget, RoleARN: cfg.AlarmRole, Group: cfg.AlarmGroup, Prefix: cfg.AlarmPrefix,
	})
	if err != nil {
		return nil, fmt.Errorf("DOZE_ALARM=scheduler: %w", err)
	}
	return a, nil
}
