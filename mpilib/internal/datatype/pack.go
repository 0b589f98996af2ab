package datatype

import (
	"fmt"
	"unsafe"
)

// Pack copies a part of the message of count elements at base into packed: as many of its bytes
// from position pos on as packed has room for. It returns how many it copied, which is less than
// len(packed) only at the message's end. base may be nil if the displacements are addresses
// (MPI_BOTTOM) or if there is no data.
//
// All the memory that [Type.Span] describes must be readable, and must not overlap packed. No
// address is kept.
func (t *Type) Pack(packed []byte, base unsafe.Pointer, count, pos int64) (int, error) {
	return t.move(packed, base, 0, count, pos, false)
}

// Unpack is the inverse of Pack: it copies bytes of the message, from position pos on, to where
// they belong in count elements at base. It returns how many it took, which is less than
// len(packed) only at the message's end. Where a type has several elements in the same place, one
// of their values remains (the standard forbids such receives; MPI-4.1, 5.1.11).
func (t *Type) Unpack(base unsafe.Pointer, count int64, packed []byte, pos int64) (int, error) {
	return t.move(packed, base, 0, count, pos, true)
}

// move is Pack or Unpack of elements at offset origin from base.
func (t *Type) move(packed []byte, base unsafe.Pointer, origin, count, pos int64, unpack bool) (int, error) {
	p := t.plan.Load()
	if p == nil || uint64(count) > uint64(p.maxCount) || uint64(pos) > uint64(count*p.size) {
		return 0, t.refuse(p, count, pos)
	}
	n := min(int64(len(packed)), count*p.size-pos)
	if n == 0 {
		return 0, nil
	}
	m := mover{memory: base, packed: unsafe.Pointer(unsafe.SliceData(packed)), unpack: unpack}
	if p.dense {
		m.blocks(origin+p.body.disp+pos, 0, 0, 0, n, 1)
	} else {
		m.loop(p.body, origin, p.step, pos, pos+n, 0)
	}
	return int(n), nil
}

// refuse returns an error for an invalid message of count elements, or an invalid position.
func (t *Type) refuse(p *plan, count, pos int64) error {
	switch {
	case p == nil:
		return fmt.Errorf("datatype: %v: %w: call Commit before using it", t, ErrUncommitted)
	case count < 0:
		return fmt.Errorf("datatype: %d elements of %v: %w", count, t, ErrRange)
	case count > p.maxCount:
		return fmt.Errorf("datatype: %d elements of %v: size or addresses are beyond 64 bits: %w", count, t, ErrRange)
	}
	return fmt.Errorf("datatype: position %d in %d elements of %v, a message of %d bytes: %w", pos, count, t, count*p.size, ErrRange)
}

// PackSlice is Pack from a slice: the base address is that of memory[origin]. It returns an error
// if the elements reach beyond memory.
func (t *Type) PackSlice(packed, memory []byte, origin, count, pos int64) (int, error) {
	base, err := t.within(memory, origin, count)
	if err != nil {
		return 0, err
	}
	return t.move(packed, base, origin, count, pos, false)
}

// UnpackSlice is Unpack into a slice: the base address is that of memory[origin]. It returns an
// error if the elements reach beyond memory.
func (t *Type) UnpackSlice(memory []byte, origin, count int64, packed []byte, pos int64) (int, error) {
	base, err := t.within(memory, origin, count)
	if err != nil {
		return 0, err
	}
	return t.move(packed, base, origin, count, pos, true)
}

// within returns memory's address if count elements at origin lie in it.
func (t *Type) within(memory []byte, origin, count int64) (unsafe.Pointer, error) {
	low, high, err := t.Span(count)
	if err != nil {
		return nil, err
	}
	var s sum
	first, end := s.add(low, origin), s.add(high, origin)
	if low < high && (s.overflow || first < 0 || end > int64(len(memory))) {
		return nil, fmt.Errorf("datatype: %d elements of %v at byte %d of a slice of %d need bytes %d to %d around there: %w",
			count, t, origin, len(memory), low, high, ErrRange)
	}
	return unsafe.Pointer(unsafe.SliceData(memory)), nil
}

// PackedSize returns the size in bytes of a message of count elements (MPI_Pack_size; MPI-4.1,
// 5.2), which contains only their data.
func (t *Type) PackedSize(count int64) (int64, error) {
	if count < 0 || count > t.maxCount() {
		return 0, badArg("PackedSize", "count", "is %d of %v", count, t)
	}
	return count * t.size, nil
}
