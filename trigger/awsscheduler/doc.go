// Package awsscheduler is a [queue.Alarm] on Amazon EventBridge Scheduler: a schedule that invokes the
// drain's function once, at its time, and is then deleted by the service.
//
// [New] is for use inside Lambda, where credentials and region are in the environment; elsewhere use
// awsdefault.New. It costs one request an alarm and nothing while nothing is set.
//
// # Precision
//
// The service goes off somewhere in the minute that a schedule names, and never before it:
// https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html. So times are rounded up
// to the minute, and one nearer than a minute becomes a minute. An alarm is thus never early, and
// about two minutes late at most; what is due sooner a drain should wait for itself.
//
// # Names
//
// The database has one alarm a queue at a time (armed_id), and each has a schedule of its own, whose
// name is made of prefix, queue and the alarm's id. One name a queue would be tidier and is wrong:
//
//   - A drain sets the next alarm moments after the last one woke it, while the service may not yet
//     have deleted that one's schedule. What becomes of an update in that moment is not documented; if
//     it is deleted with the schedule, every second alarm is lost.
//   - Two alarms that are set at once may reach the service in the other order than the database, and
//     the later time would replace the earlier. An update cannot be made conditional.
//
// With a name an alarm a repeated request finds its own schedule, and no request can touch another's.
// An alarm that was replaced may still go off; its wake carries its own id, clears nothing and finds
// nothing. An [Alarm] deletes the last one that it set itself for the queue when it sets one that is
// sooner by more than a second; [Alarm.Clear] deletes one that is no longer wanted.
//
// # Rights
//
// Whoever sets alarms needs, on the schedules of the group, and on the role that the service assumes:
//
//	scheduler:CreateSchedule, scheduler:UpdateSchedule, scheduler:DeleteSchedule
//	    on arn:aws:scheduler:<region>:<account>:schedule/<group>/*
//	iam:PassRole
//	    on Config.RoleARN, if iam:PassedToService is scheduler.amazonaws.com
//
// That role trusts scheduler.amazonaws.com and may lambda:InvokeFunction on the target. The group must
// exist. See https://docs.aws.amazon.com/scheduler/latest/UserGuide/setting-up.html.
package awsscheduler
