//go:build !unix

package lambdatest

import "os/exec"

// Without process groups and SIGSTOP, environments are killed but not stopped.
func ownGroup(*exec.Cmd)    {}
func halt(*exec.Cmd)        {}
func thaw(*exec.Cmd)        {}
func destroy(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
