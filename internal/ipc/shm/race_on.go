//go:build race

package shm

import (
	"runtime"
	"unsafe"
)

// raceSync stands for the mapped memory, which the race detector does not follow: it does not know that a
// record orders what its sender did before what its receiver does after, which matters where both are
// in one process.
var raceSync int64

func raceAcquire() { runtime.RaceAcquire(unsafe.Pointer(&raceSync)) }
func raceRelease() { runtime.RaceReleaseMerge(unsafe.Pointer(&raceSync)) }
