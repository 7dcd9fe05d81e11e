package main

import "github.com/aws/aws-lambda-go/lambda/messages"

// fatalError is an error after which the runtime exits: to aws-lambda-go, one that says so of itself.
func fatalError(text string) error {
	return messages.InvokeResponse_Error{Type: "Stuck", Message: text, ShouldExit: true}
}
