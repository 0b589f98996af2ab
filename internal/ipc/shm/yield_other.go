//go:build !linux

package shm

import (
	"runtime"
	"time"
)

// YieldCPU lets other goroutines run.
func YieldCPU() { runtime.Gosched() }

// NapCPU sleeps briefly.
func NapCPU() { time.Sleep(50 * time.Microsecond) }

// CPU returns -1: unknown.
func CPU() int { return -1 }

// Leave does nothing.
func Leave(int) bool { return false }
