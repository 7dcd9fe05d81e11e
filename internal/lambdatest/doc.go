// Package lambdatest is a double of AWS Lambda in one process: tests run real
// bootstrap binaries against it and make it misbehave as the real one may.
//
// It does what matters to a queue. Each invocation has an environment to
// itself; an environment that has answered is stopped (SIGSTOP) until it is
// needed again, so its timers and connections behave as in Lambda; one that
// passes its deadline is killed. Async events wait in a queue: they are retried
// when throttled until they are too old, and can be lost, doubled and delayed
// on demand. A chain of invocations is cut after 16, as loop detection does.
//
// Times are shorter than the real ones: a throttled event is tried again after
// milliseconds. Billing, versions, layers, permissions and signatures of
// requests are not modelled.
//
// Runtime API: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html.
// Invoke API: https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html.
package lambdatest
