package shm

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CreateSharedBuffer makes the segment of a shared buffer for so many processes, 2 to MaxSharedBufferRanks, and
// [OpenSharedBuffer] opens it for the others. Memory is taken page by page when it is first used.
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

// OpenSharedBuffer maps the shared buffer for so many processes that a peer of this machine described, and fails as
// [Open] does.
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

// waitFutex sleeps until it is woken, unless the word is not value any more; for as long as d at most.
func waitFutex(word *atomic.Uint32, value uint32, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// wakeFutex wakes who sleeps there.
func wakeFutex(word *atomic.Uint32) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1, 0, 0, 0)
}
