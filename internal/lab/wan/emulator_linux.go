package wan

import (
	"context"
	"errors"
)

// An Emulator applies Shapes to the packets of its namespace.
type Emulator struct{}

// New installs the rules and opens the queues in the calling thread's network namespace.
func New(paths []Path, opt Options) (*Emulator, error) {
	return nil, errors.New("wan: not ready")
}

// Serve runs until ctx is done.
func (e *Emulator) Serve(ctx context.Context) error { return nil }

// Close releases sockets and rules when Serve is never called.
func (e *Emulator) Close() error { return nil }

// Counters returns a Counter per path, in the order New was given.
func (e *Emulator) Counters() []Counter { return nil }

// Overruns returns how many packets the kernel dropped before the emulator saw them.
func (e *Emulator) Overruns() uint64 { return 0 }

// Shape changes a path while the emulator runs.
func (e *Emulator) Shape(from, to string, s Shape) error { return nil }
