// Package setup makes what the functions have in common out of their settings.
package setup

import (
	"fmt"

	"github.com/dozequeue/doze/internal/env"
	"github.com/dozequeue/doze/queue"
	"github.com/dozequeue/doze/trigger"
	"github.com/dozequeue/doze/trigger/awslambda"
	"github.com/dozequeue/doze/trigger/awsscheduler"
	"github.com/dozequeue/doze/trigger/notify"
)

// Trigger returns the trigger that the settings name. Db is what it notifies through, where it does.
func Trigger(cfg env.Trigger, db queue.DB, schema string) (queue.Trigger, error) {
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
	case "notify":
		return sender(db, schema)
	}
	return trigger.None(), nil
}

// sender notifies resident handlers.
func sender(db queue.DB, schema string) (*notify.Trigger, error) {
	t, err := notify.New(db, notify.Config{Schema: schema})
	if err != nil {
		return nil, fmt.Errorf("DOZE_SCHEMA: %w", err)
	}
	return t, nil
}

// Alarm returns the alarm that the settings name, nil for none. Db is what it notifies through, where it does.
func Alarm(cfg env.Alarm, db queue.DB, schema string) (queue.Alarm, error) {
	switch cfg.Alarm {
	case "scheduler":
		return scheduler(cfg)
	case "notify":
		return sender(db, schema)
	}
	return nil, nil
}

// scheduler keeps alarms at EventBridge Scheduler.
func scheduler(cfg env.Alarm) (queue.Alarm, error) {
	a, err := awsscheduler.New(awsscheduler.Config{
		TargetARN: cfg.AlarmTarget, RoleARN: cfg.AlarmRole, Group: cfg.AlarmGroup, Prefix: cfg.AlarmPrefix,
	})
	if err != nil {
		return nil, fmt.Errorf("DOZE_ALARM=scheduler: %w", err)
	}
	return a, nil
}
