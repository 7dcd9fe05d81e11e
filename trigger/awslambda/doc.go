// Package awslambda is a [queue.Trigger] that invokes an AWS Lambda function,
// asynchronously: Lambda takes the event and runs the drain later.
//
// [New] is for use inside Lambda, where credentials and region are in the
// environment. It does without the SDK's config package, which keeps the binary
// 2 MB smaller and its start 3 ms shorter. Elsewhere use awsdefault.New.
//
// A drain that invokes its own function is a loop to Lambda, which cuts it
// after about 16 invocations. The SDK hands on the trace that tells Lambda so;
// set RecursiveLoop: Allow on the function, and let the wake's Hop bound the
// chain. See https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html.
package awslambda
