//go:build amd64 || arm64

package shm

// Pause tells the processor that this is a waiting loop, which relieves its other hyperthread and
// takes some tens of cycles on amd64.
func Pause()
