//go:build !linux

package wan

import "context"

// An Emulator applies Shapes to packets; it exists on Linux only.
type Emulator struct{}

// New returns ErrUnsupported.
func New([]Path, Options) (*Emulator, error) { return nil, ErrUnsupported }

// Serve returns ErrUnsupported.
func (*Emulator) Serve(context.Context) error { return ErrUnsupported }

// Close does nothing.
func (*Emulator) Close() error { return nil }

// Counters returns nil.
func (*Emulator) Counters() []Counter { return nil }

// Overruns returns 0.
func (*Emulator) Overruns() uint64 { return 0 }

// Shape returns ErrUnsupported.
func (*Emulator) Shape(from, to string, s Shape) error { return ErrUnsupported }
