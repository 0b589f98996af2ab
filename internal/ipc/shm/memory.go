package shm

import "errors"

// ErrOtherProcess is in the error of a read from a peer's memory when the process with that number
// is no longer the one that made the descriptor.
var ErrOtherProcess = errors.New("the process is not the one that made the descriptor")

// Memory is the private memory of a peer, to read from and write to: the single copy of a large
// message. It is safe for concurrent use.
type Memory struct {
	pid   int
	proof uint64
	nonce [16]byte
}
