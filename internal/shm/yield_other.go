//go:build !linux

package shm

import "runtime"

// YieldCPU lets other goroutines run.
func YieldCPU() { runtime.Gosched() }

// CPU returns -1: it is not known.
func CPU() int { return -1 }

// Leave does nothing.
func Leave(int) bool { return false }
