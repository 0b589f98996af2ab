package mpilib

import (
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// ErrSignature is the error of a receive whose type does not match that of its message (MPI-4.1,
// section 3.3.1). It is detected with WithTypeCheck only.
var ErrSignature = mpi.ErrSignature

// WithTypeCheck makes point-to-point messages carry the signature of their type, which receives
// compare with theirs, like ISTHMUS_DEBUG=types. Every process must do the same. Each message is
// then copied at both ends. Elements of slices match all that look alike: an int32 is any of C's and
// Fortran's signed integers of 4 bytes, a byte also MPI_CHAR and MPI_BYTE. Datatypes match by the
// standard's names of their basic elements.
func WithTypeCheck() Option { return func(cfg *config) { cfg.signs = true } }

// signs reports whether c's messages begin with a signature.
func (c *Comm) signs() bool { return c.world.config.signs }

// head returns the number of bytes of each message that are not the program's.
func (c *Comm) head() int {
	if c.signs() {
		return buffer.SignatureSize
	}
	return 0
}
