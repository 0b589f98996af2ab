//go:build !linux

package shm

import (
	"fmt"
	"sync/atomic"
	"time"
)

// CreateSlate fails: this is not Linux.
func CreateSlate(processes int) (*Segment, error) {
	if _, err := slateSize(processes); err != nil {
		return nil, fmt.Errorf("shm.CreateSlate: %w", err)
	}
	return nil, fmt.Errorf("shm.CreateSlate: %w", errNoLinux)
}

// OpenSlate fails: this is not Linux.
func OpenSlate(Offer, int) (*Segment, error) {
	return nil, fmt.Errorf("shm.OpenSlate: %w", errNoLinux)
}

func waitFutex(_ *atomic.Uint32, _ uint32, d time.Duration) { time.Sleep(d) }
func wakeFutex(*atomic.Uint32)                              {}
