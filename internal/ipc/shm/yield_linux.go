package shm

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// YieldCPU offers the processor to other threads, behind the scheduler's back:
// telling the runtime would take longer.
func YieldCPU() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// NapCPU gives the processor away for the shortest time that the system sleeps, some 60 us,
// behind the scheduler's back as well.
func NapCPU() {
	moment := unix.Timespec{Nsec: 1}
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&moment)), 0, 0)
}

// CPU returns the processor on which the caller runs at the moment, or -1.
func CPU() int {
	var cpu uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); err != 0 {
		return -1
	}
	return int(cpu)
}

// Leave moves the calling thread to another of the processors on which it may run, and
// reports whether there was one. It takes some tens of microseconds. Two processes that
// yield to each other on one processor look to the scheduler like two that
// are well placed, while another is idle or does somebody else's work.
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
