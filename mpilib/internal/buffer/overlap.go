package buffer

import "unsafe"

// Apart reports whether two slices share no memory.
func Apart(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	first, second := address(a), address(b)
	return first+uintptr(len(a)) <= second || second+uintptr(len(b)) <= first
}

// Shares reports whether data received at q may overlap p's message.
func (p *Part) Shares(q *Part) bool {
	if p.Pieces || q.Pieces {
		return !Apart(p.Memory, q.Memory)
	}
	return !Apart(p.Message, q.Message)
}

// Same reports whether they are the same memory.
func Same(a, b []byte) bool { return len(a) == len(b) && address(a) == address(b) }

// SameBlock reports whether a is the bytes of whole from off on.
func SameBlock(a, whole []byte, off int) bool {
	return off >= 0 && off <= len(whole)-len(a) && address(a) == address(whole)+uintptr(off)
}

// Inside reports whether a is within whole.
func Inside(a, whole []byte) bool { return SameBlock(a, whole, int(address(a)-address(whole))) }

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
