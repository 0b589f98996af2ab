package datatype

import (
	"fmt"
	"math"
	"sync/atomic"
)

// A Type is an MPI datatype. Constructors return it uncommitted: it can be used to build others,
// and for messages after Commit. It never changes otherwise and needs no freeing.
type Type struct {
	name     string
	size     int64 // of the data
	extent   int64 // from bounds, computed once
	external int64 // bytes of the data in external32
	bounds   bounds
	sig      Signature
	shape    shape
	contents Contents

	// Computed when first needed. Two goroutines may both compute it; either result is valid.
	copying atomic.Pointer[node] // nil until known; see nodeOf
	typed   atomic.Pointer[node]
	plan    atomic.Pointer[plan] // set by Commit
}

// String returns the name of a named type, and the combiner of another.
func (t *Type) String() string {
	if t.name != "" {
		return t.name
	}
	return fmt.Sprintf("%v of %d bytes", t.contents.Combiner, t.size)
}

// Size returns the size in bytes of the data in one element (MPI_Type_size_x).
func (t *Type) Size() int64 { return t.size }

// Extent returns the lower bound and the distance from one element to the
// next (MPI_Type_get_extent; MPI-4.1, 5.1.7).
func (t *Type) Extent() (lb, extent int64) {
	lb, _ = t.bounds.limits(&sum{}) // checked to fit when the type was made
	return lb, t.extent
}

// TrueExtent returns where the first byte of data lies and how many bytes
// there are from it to the end of the last (MPI_Type_get_true_extent;
// MPI-4.1, 5.1.8). Both are 0 for a type without data.
func (t *Type) TrueExtent() (lb, extent int64) {
	if !t.bounds.data {
		return 0, 0
	}
	return t.bounds.low, t.bounds.top - t.bounds.low
}

// Align returns the strictest alignment of a basic element in bytes, at least 1.
func (t *Type) Align() int64 { return t.bounds.align }

// Commit prepares t for messages (MPI_Type_commit; MPI-4.1, 5.1.9). Its cost is about that of
// describing the type; committing again does nothing.
func (t *Type) Commit() {
	if t.plan.Load() == nil {
		t.plan.Store(t.newPlan())
	}
}

// Committed reports whether t may be used for messages.
func (t *Type) Committed() bool { return t.plan.Load() != nil }

// Contiguous reports whether messages of t are one piece of memory, and returns its displacement
// from the base. It is false for uncommitted types.
func (t *Type) Contiguous() (displacement int64, ok bool) {
	p := t.plan.Load()
	if p == nil || !p.dense {
		return 0, false
	}
	return p.body.disp, true
}

// Span returns the range of bytes, relative to the base address, in which count elements have their
// data: from low to before high. Both are 0 if there is no data.
func (t *Type) Span(count int64) (low, high int64, err error) {
	if count < 0 {
		return 0, 0, badArg("Span", "count", "is %d", count)
	}
	if count == 0 || t.size == 0 {
		return 0, 0, nil
	}
	var s sum
	s.mul(count, t.size)
	last := s.mul(count-1, t.extent)
	b := t.bounds.spread(min(0, last), max(0, last), &s)
	if s.overflow {
		return 0, 0, badArg("Span", "count", "%d of %v is beyond 64 bits", count, t)
	}
	return b.low, b.top, nil
}

// maxCount returns how many elements a message may have before its size or its last address exceeds
// 64 bits.
func (t *Type) maxCount() int64 {
	if t.size == 0 {
		return math.MaxInt64
	}
	// The room that is left for displacing an element, in its direction.
	room := uint64(math.MaxInt64) - uint64(max(t.bounds.top, 0))
	if t.extent < 0 {
		room = uint64(math.MaxInt64) + 1 - magnitude(min(t.bounds.low, 0))
	}
	n := math.MaxInt64 / t.size
	if t.extent != 0 {
		n = min(n, int64(min(room/magnitude(t.extent), math.MaxInt64-1))+1)
	}
	return n
}
