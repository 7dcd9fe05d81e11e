package pgdev_test

import "testing"

func killServerOf(t *testing.T, _ string) {
	t.Skip("no kill by process id here")
}
