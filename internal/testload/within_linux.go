package testload

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// slowdown is Slowdown.
func slowdown() float64 {
	const burst = 50 * time.Millisecond // several turns of the scheduler
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start, before := time.Now(), threadTime()
	for time.Since(start) < burst {
	}
	wall, got := time.Since(start), threadTime()-before
	if got <= 0 {
		return 1
	}
	return float64(wall) / float64(got)
}

func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
