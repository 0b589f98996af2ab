//go:build !amd64 && !arm64

package shm

// Pause does nothing on this architecture.
func Pause() {}
