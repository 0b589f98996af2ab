//go:build !linux

package shm

import "fmt"

// OpenMemory fails: this is not Linux.
func OpenMemory(Descriptor) (*Memory, error) {
	return nil, fmt.Errorf("shm.OpenMemory: %w", errNoLinux)
}

// Read fails: this is not Linux.
func (m *Memory) Read(local []byte, addr uint64) error {
	return fmt.Errorf("shm: read: %w", errNoLinux)
}

// Write fails: this is not Linux.
func (m *Memory) Write(local []byte, addr uint64) error {
	return fmt.Errorf("shm: write: %w", errNoLinux)
}
