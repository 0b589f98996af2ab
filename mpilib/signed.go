package mpilib

import (
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// ErrSignature is that of a receive whose type does not match that of its message
// (MPI-4.1, section 3.3.1). It is noticed with WithTypeCheck only.
var ErrSignature = mpi.ErrSignature

// WithTypeCheck has point-to-point messages carry the signature of their type, and
// receives compare it with theirs, as ISTHMUS_DEBUG=types does. Every process must
// do the same. Each message is then copied at both ends.
func WithTypeCheck() Option { return func(cfg *config) { cfg.signs = true } }

// signs reports whether c's messages begin with a signature.
func (c *Comm) signs() bool { return c.world.config.signs }

// head returns how many bytes of each message are not the program's.
func (c *Comm) head() int {
	if c.signs() {
		return buffer.SignatureSize
	}
	return 0
}
