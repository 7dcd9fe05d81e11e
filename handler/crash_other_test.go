//go:build !unix

package handler_test

const childEnv = "DOZE_HANDLER_TEST_CHILD"

func child() {}
