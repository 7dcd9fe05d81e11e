package awsscheduler

import (
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
)

// schedule is what is sent to create one and to replace it.
type schedule struct{ scheduler.CreateScheduleInput }

// update says everything again: the service gives fields that are left out their defaults, among them
// ActionAfterCompletion. The SDK makes a token for it.
func (s *schedule) update() *scheduler.UpdateScheduleInput {
	return &scheduler.UpdateScheduleInput{
		Name:                       s.Name,
		GroupName:                  s.GroupName,
		ScheduleExpression:         s.ScheduleExpression,
		ScheduleExpressionTimezone: s.ScheduleExpressionTimezone,
		State:                      s.State,
		FlexibleTimeWindow:         s.FlexibleTimeWindow,
		ActionAfterCompletion:      s.ActionAfterCompletion,
		Description:                s.Description,
		Target:                     s.Target,
	}
}

// explain names the schedule, and what to do where the error alone does not say it.
func (s *schedule) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s schedule %s: %w", what, *s.Name, err)
	if missing := (*types.ResourceNotFoundException)(nil); errors.As(err, &missing) && what == "create" {
		return fmt.Errorf("%w (does the group %s exist?)", err, *s.GroupName)
	}
	return err
}
