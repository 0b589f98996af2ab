//go:build !linux

package shm

import "runtime"

// YieldCPU lets other goroutines run.
func YieldCPU() { runtime.Gosched() }
