//go:build !linux

package main

import (
	"math"
	"time"
)

// None of these is known here.

func foreignLoad() func() float64 { return func() float64 { return 0 } }

func (*server) cpu() time.Duration { return 0 }

func ownCPU() time.Duration { return 0 }

func mostMemory(int) float64 { return math.NaN() }
