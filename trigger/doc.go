// Package trigger starts drains, now or later: each type here is a [queue.Trigger] or a [queue.Alarm].
//
// [HTTP] calls the URL of a drain, [None] calls nobody. [HTTPAlarm] has a service call it later. The
// ones for AWS are in awslambda and awsscheduler, so that a program that does not use them is not linked
// to an SDK. The one in notify tells processes that listen. The ones that drain in the same process are in handler.
//
// A trigger or an alarm of your own should pass the suite in triggertest.
package trigger
