package shm

import "golang.org/x/sys/unix"

// YieldCPU offers the processor to other threads, behind the scheduler's back:
// telling the runtime would take longer.
func YieldCPU() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
