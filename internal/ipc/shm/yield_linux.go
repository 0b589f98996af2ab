package shm

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// YieldCPU offers the processor to other threads, without notifying the Go scheduler, which would
// take longer.
func YieldCPU() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// NapCPU releases the processor for the shortest sleep of the system, some 60 us, also without
// notifying the scheduler.
func NapCPU() {
	moment := unix.Timespec{Nsec: 1}
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&moment)), 0, 0)
}

// CPU returns the processor on which the caller currently runs, or -1.
func CPU() int {
	var cpu uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); err != 0 {
		return -1
	}
	return int(cpu)
}

// Leave moves the calling thread to another of the processors on which it may run, and reports
// whether there was one. It takes some tens of microseconds. To the kernel's scheduler, two
// processes that yield to each other on one processor look well placed, even while another
// processor is idle or runs something else.
func Leave(cpu int) bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var may unix.CPUSet
	if unix.SchedGetaffinity(0, &may) != nil {
		return false
	}
	others := may
	others.Clear(cpu)
	if others.Count() == 0 || unix.SchedSetaffinity(0, &others) != nil {
		return false
	}
	unix.SchedSetaffinity(0, &may) // cannot fail: it was so before
	return true
}
