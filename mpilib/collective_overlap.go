package mpilib

import (
	"fmt"
	"unsafe"
)

// This file refuses calls whose two buffers share memory in another way than in place
// (MPI-4.1, section 6.2.2): what would come of them depends on the algorithm.

// overlap says why s and to cannot be the buffers of one call, unless they share no memory
// or are in place.
func (r *round) overlap(s, to []byte, inPlace bool) error {
	switch {
	case apart(s, to) || inPlace && !r.inter():
		return nil
	case r.inter():
		return fmt.Errorf("%w: send and recv share memory; nothing is in place on an intercommunicator", ErrArg)
	}
	return fmt.Errorf("%w: send and recv share memory otherwise than in place", ErrArg)
}

// atRoot checks a root, and what it has to send and to receive.
func (r *round) atRoot(root int, s, to []byte, inPlace bool) error {
	if !r.inter() {
		if err := r.comm.checkRoot(root); err != nil {
			return err
		}
	}
	if !r.rooted(root) {
		return nil
	}
	return r.overlap(s, to, inPlace)
}

// apart reports whether two slices share no memory.
func apart(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	first, second := address(a), address(b)
	return first+uintptr(len(a)) <= second || second+uintptr(len(b)) <= first
}

// shares reports whether what arrives at q may lie where p's message is.
func (p *Part) shares(q *Part) bool {
	if p.pieces || q.pieces {
		return !apart(p.memory, q.memory)
	}
	return !apart(p.message, q.message)
}

// same reports whether they are the same memory.
func same(a, b []byte) bool { return len(a) == len(b) && address(a) == address(b) }

// sameBlock reports whether a is the bytes of whole from off on.
func sameBlock(a, whole []byte, off int) bool {
	return off >= 0 && off <= len(whole)-len(a) && address(a) == address(whole)+uintptr(off)
}

// inside reports whether a is within whole.
func inside(a, whole []byte) bool { return sameBlock(a, whole, int(address(a)-address(whole))) }

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
