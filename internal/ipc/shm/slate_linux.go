package shm

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CreateSlate makes the segment of a slate for so many processes, 2 to MostOnSlate, and
// [OpenSlate] opens it for the others. Memory is taken page by page when it is first used.
func CreateSlate(processes int) (*Segment, error) {
	size, err := slateSize(processes)
	if err != nil {
		return nil, fmt.Errorf("shm.CreateSlate: %w", err)
	}
	s, err := createFile(size, slateLayout)
	if err != nil {
		return nil, fmt.Errorf("shm.CreateSlate: %w", err)
	}
	return s, nil
}

// OpenSlate maps the slate for so many processes that a peer of this machine offered, and fails as
// [Open] does.
func OpenSlate(o Offer, processes int) (*Segment, error) {
	size, err := slateSize(processes)
	if err == nil && o.Size != uint64(size) {
		err = fmt.Errorf("a segment of %d bytes is no slate for %d processes", o.Size, processes)
	}
	if err != nil {
		return nil, fmt.Errorf("shm.OpenSlate: %w", err)
	}
	s, err := openFile(o, slateLayout)
	if err != nil {
		return nil, fmt.Errorf("shm.OpenSlate: %w", err)
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
