//go:build !linux

package shm

import (
	"fmt"
	"sync/atomic"
	"time"
)

// CreateSharedBuffer fails: this is not Linux.
func CreateSharedBuffer(processes int) (*Segment, error) {
	if _, err := sharedBufferSize(processes); err != nil {
		return nil, fmt.Errorf("shm.CreateSharedBuffer: %w", err)
	}
	return nil, fmt.Errorf("shm.CreateSharedBuffer: %w", errNoLinux)
}

// OpenSharedBuffer fails: this is not Linux.
func OpenSharedBuffer(Descriptor, int) (*Segment, error) {
	return nil, fmt.Errorf("shm.OpenSharedBuffer: %w", errNoLinux)
}

func waitFutex(_ *atomic.Uint32, _ uint32, d time.Duration) { time.Sleep(d) }
func wakeFutex(*atomic.Uint32)                              {}
