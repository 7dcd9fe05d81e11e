// Package trigger starts drains: each type here is a [queue.Trigger].
//
// [HTTP] calls the URL of a drain, [None] calls nobody. The one for AWS Lambda
// is in awslambda, so that a program that does not use it is not linked to an
// SDK. The one that drains in the same process is in handler.
//
// A trigger of your own should pass the suite in triggertest.
package trigger
