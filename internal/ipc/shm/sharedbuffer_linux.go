package shm

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CreateSharedBuffer makes the segment of a shared buffer for 2 to MaxSharedBufferRanks processes;
// the others open it with [OpenSharedBuffer]. Memory is allocated page by page at the first use.
func CreateSharedBuffer(processes int) (*Segment, error) {
	size, err := sharedBufferSize(processes)
	if err != nil {
		return nil, fmt.Errorf("shm.CreateSharedBuffer: %w", err)
	}
	s, err := createFile(size, sharedBufferLayout)
	if err != nil {
		return nil, fmt.Errorf("shm.CreateSharedBuffer: %w", err)
	}
	return s, nil
}

// OpenSharedBuffer maps the shared buffer for a number of processes that a peer of this machine
// described, and fails as [Open] does.
func OpenSharedBuffer(o Descriptor, processes int) (*Segment, error) {
	size, err := sharedBufferSize(processes)
	if err == nil && o.Size != uint64(size) {
		err = fmt.Errorf("a segment of %d bytes is no shared buffer for %d processes", o.Size, processes)
	}
	if err != nil {
		return nil, fmt.Errorf("shm.OpenSharedBuffer: %w", err)
	}
	s, err := openFile(o, sharedBufferLayout)
	if err != nil {
		return nil, fmt.Errorf("shm.OpenSharedBuffer: %w", err)
	}
	return s, nil
}

const (
	futexWait = 0
	futexWake = 1
)

// waitFutex sleeps until it is woken, unless the word no longer has this value, but no longer than
// d.
func waitFutex(word *atomic.Uint32, value uint32, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// wakeFutex wakes a process that sleeps there.
func wakeFutex(word *atomic.Uint32) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1, 0, 0, 0)
}
