//go:build !linux

package main

// foreignLoad is not known here.
func foreignLoad() func() float64 { return func() float64 { return 0 } }
