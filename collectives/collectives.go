// Package collectives holds the algorithms behind MPI's collective operations, one algorithm per
// file. An algorithm writes down what a rank does (package schedule), which is then run over the
// small interface Comm. The package knows bytes, ranks and the order in which messages are sent; it
// does not know sockets, links, sites, datatypes or tags. It keeps no state between calls except a
// Planner's choices and schedules, and every buffer that a call posted is idle again when the call
// returns, even with an error.
//
// Every rank of a communicator calls a collective with matching arguments. Bcast, Allreduce and the
// others check their arguments, let the communicator's Planner choose an algorithm and run it;
// Algorithms and Find return single algorithms, for forcing one and for tests.
//
// Reductions are deterministic: the order in which operands are combined depends on the algorithm
// and the number of ranks, never on the order in which messages arrive, and every rank of an
// Allreduce ends with the same bits.
package collectives

import (
	"errors"

	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// ErrArgument is wrapped by the error of a call with invalid arguments: a root outside the
// communicator, a buffer that is too short, the wrong number of counts. A call that returns it has
// sent nothing.
var ErrArgument = errors.New("bad argument")

// Comm is what a call needs of a communicator. One Comm serves one collective call on one rank; its
// messages match no other call's (the implementer gives each call a tag or context of its own).
//
// No algorithm sends to its own rank. A message whose length differs from the receiver's buffer is
// an error at the receiver, never a truncation. Messages may be empty. Progress does not depend on
// waiting: all requests of a rank advance together.
//
// When a call fails on one rank its peers may be waiting for it. The implementer must make their
// operations with that rank fail too (or let their contexts expire); every algorithm then returns
// on every rank.
//
// A call uses its Comm from one goroutine only.
type Comm interface {
	// Planner returns the rank's planner, which all calls of the communicator share.
	Planner() *Planner
	schedule.Comm
}

// Internal is an optional part of a Comm. Internal reports whether the call is not the program's own,
// but serves another, such as the creation of a communicator. A call of the program fails where
// the algorithm that is forced needs SharedMemory and the ranks are on several nodes; an internal one
// goes by another.
type Internal interface{ Internal() bool }

// Request is one transfer in progress.
type Request = schedule.Request

// Op is a reduction operator on vectors of equal elements.
type Op struct {
	// Name is the operator's name in errors: "sum", "max".
	Name string
	// Elem is the size of an element in bytes, at least 1. Vectors are cut
	// only between elements, and their lengths are multiples of it.
	Elem int
	// Commutative allows operands to be exchanged. Every Op must be
	// associative, up to rounding.
	Commutative bool
	// Apply sets inout[i] = in[i] op inout[i] for every element, in being the
	// operand of the lower ranks (the argument order of MPI_User_function).
	// Both slices have the same length and do not overlap; Apply keeps neither
	// and does not change in.
	Apply func(inout, in []byte) error
}
