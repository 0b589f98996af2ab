//go:build !linux

package shm

import (
	"errors"
	"fmt"
	"runtime"
)

var errNoLinux = fmt.Errorf("shared memory between processes is for Linux, not for %s: %w", runtime.GOOS, errors.ErrUnsupported)

// Create fails: this is not Linux.
func Create(data int) (*Segment, error) {
	if _, err := sizeOf(data); err != nil {
		return nil, fmt.Errorf("shm.Create: %w", err)
	}
	return nil, fmt.Errorf("shm.Create: %w", errNoLinux)
}

// Open fails: this is not Linux.
func Open(Descriptor) (*Segment, error) { return nil, fmt.Errorf("shm.Open: %w", errNoLinux) }

// Allowed returns the empty set: unknown.
func Allowed() CPUs { return CPUs{} }

// CloseFile does nothing.
func (s *Segment) CloseFile() error { return nil }

// Close does nothing.
func (s *Segment) Close() error { return nil }
