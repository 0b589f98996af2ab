//go:build race && linux

package spin

import (
	"runtime"
	"unsafe"
)

// raceSync stands for the socket: a program's accesses are ordered by the bytes it sends to itself, and
// the race detector learns that from package syscall. It must learn it from the calls made here, too.
var raceSync int64

func raceAcquire() { runtime.RaceAcquire(unsafe.Pointer(&raceSync)) }
func raceRelease() { runtime.RaceReleaseMerge(unsafe.Pointer(&raceSync)) }
