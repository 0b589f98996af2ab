package datatype

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"unsafe"
)

// ExternalSize returns the bytes of count elements in external32, the standard's
// machine-independent form: big-endian, with its own sizes (MPI_Pack_external_size; MPI-4.1, 5.3
// and 14.5.2).
func (t *Type) ExternalSize(count int64) (int64, error) {
	size, ok := mulOK(count, t.external)
	if count < 0 || !ok || count > t.maxCount() {
		return 0, badArg("ExternalSize", "count", "is %d of %v", count, t)
	}
	return size, nil
}

// PackExternal copies the message of count elements at base into the front of external, in
// external32 (MPI_Pack_external). It returns the bytes written. For a number too large for its
// form, such as a C long above 32 bits, it returns [ErrConversion]; external then holds the message
// up to that number.
func (t *Type) PackExternal(external []byte, base unsafe.Pointer, count int64) (int, error) {
	return t.convert(external, base, 0, count, false)
}

// UnpackExternal is the inverse of PackExternal (MPI_Unpack_external). It
// returns the bytes taken from the front of external.
func (t *Type) UnpackExternal(base unsafe.Pointer, count int64, external []byte) (int, error) {
	return t.convert(external, base, 0, count, true)
}

// PackExternalSlice is PackExternal from a slice: the base address is that of memory[origin]. It
// returns an error if the elements reach beyond memory.
func (t *Type) PackExternalSlice(external, memory []byte, origin, count int64) (int, error) {
	base, err := t.within(memory, origin, count)
	if err != nil {
		return 0, err
	}
	return t.convert(external, base, origin, count, false)
}

// UnpackExternalSlice is UnpackExternal into a slice: the base address is that of memory[origin].
// It returns an error if the elements reach beyond memory.
func (t *Type) UnpackExternalSlice(memory []byte, origin, count int64, external []byte) (int, error) {
	base, err := t.within(memory, origin, count)
	if err != nil {
		return 0, err
	}
	return t.convert(external, base, origin, count, true)
}

// convert is PackExternal or UnpackExternal of elements at offset origin from base.
func (t *Type) convert(external []byte, base unsafe.Pointer, origin, count int64, unpack bool) (int, error) {
	p := t.plan.Load()
	if p == nil || uint64(count) > uint64(p.maxCount) {
		return 0, t.refuse(p, count, 0)
	}
	size, err := t.ExternalSize(count)
	if err != nil {
		return 0, err
	}
	if size > int64(len(external)) {
		return 0, fmt.Errorf("datatype: %d elements of %v are %d bytes in external32, the buffer has %d: %w",
			count, t, size, len(external), ErrRange)
	}
	if size == 0 {
		return 0, nil
	}
	c := converter{memory: base, external: external, unpack: unpack}
	n := t.nodeOf(true)
	for i := range count {
		if err := c.node(n, origin+i*t.extent); err != nil {
			return c.pos, fmt.Errorf("datatype: external32: element %d of %v: %w", i, t, err)
		}
	}
	return c.pos, nil
}

// A converter walks a typed plan and converts one basic element after the other.
type converter struct {
	memory   unsafe.Pointer
	external []byte
	pos      int
	unpack   bool
}

func (c *converter) node(n *node, mem int64) error {
	mem += n.disp
	switch n.op {
	case opRun:
		return c.run(n.kind, mem, n.size)
	case opLoop:
		for i := range n.count {
			if err := c.node(n.body, mem+i*n.step); err != nil {
				return err
			}
		}
	case opIndexed:
		for _, at := range n.at {
			if err := c.node(n.body, mem+at); err != nil {
				return err
			}
		}
	case opPieces:
		for i, at := range n.at {
			if err := c.run(n.kind, mem+at, n.ends[i]-n.start(i)); err != nil {
				return err
			}
		}
	case opSeq:
		for i, at := range n.at {
			if err := c.node(n.kids[i], mem+at); err != nil {
				return err
			}
		}
	}
	return nil
}

// run converts size bytes of memory, all of one kind.
func (c *converter) run(k kind, mem, size int64) error {
	info := &kinds[k]
	in := unsafe.Slice((*byte)(unsafe.Add(c.memory, mem)), size)
	out := c.external[c.pos:][:size/info.size*info.external]
	if info.class == octets {
		if c.unpack {
			copy(in, out)
		} else {
			copy(out, in)
		}
		c.pos += len(out)
		return nil
	}
	native, external := info.size/info.parts, info.external/info.parts
	for len(in) > 0 {
		if c.unpack {
			fromExternal(info.class, in[:native], out[:external])
		} else if err := toExternal(info.class, out[:external], in[:native]); err != nil {
			return fmt.Errorf("%s at displacement %d: %w", info.name, mem, err)
		}
		in, out = in[native:], out[external:]
		mem += native
		c.pos += int(external)
	}
	return nil
}

// toExternal converts one number to its big-endian form.
func toExternal(c class, out, in []byte) error {
	switch c {
	case longDouble:
		f := nativeLongDouble.toQuad(in)
		binary.BigEndian.PutUint64(out, f.high)
		binary.BigEndian.PutUint64(out[8:], f.low)
		return nil
	case boolean:
		putBig(out, zeroOrOne(getNative(in)))
		return nil
	case wide:
		swapBytes(out, in)
		return nil
	}
	v := getNative(in)
	if !fits(c, v, len(in), len(out)) {
		return fmt.Errorf("%#x does not fit %d bytes: %w", v, len(out), ErrConversion)
	}
	putBig(out, v)
	return nil
}

// fromExternal converts one number from its big-endian form.
func fromExternal(c class, out, in []byte) {
	switch c {
	case longDouble:
		nativeLongDouble.fromQuad(out, quad{binary.BigEndian.Uint64(in), binary.BigEndian.Uint64(in[8:])})
		return
	case boolean:
		putNative(out, zeroOrOne(getBig(in)))
		return
	case wide:
		swapBytes(out, in)
		return
	}
	v := getBig(in)
	if c == signed { // widen
		shift := 64 - 8*len(in)
		v = uint64(int64(v<<shift) >> shift)
	}
	putNative(out, v)
}

// swapBytes copies a number between the machine's order of bytes and big-endian.
func swapBytes(out, in []byte) {
	copy(out, in)
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		slices.Reverse(out)
	}
}

// fits reports whether the number v of from bytes keeps its value in to bytes.
func fits(c class, v uint64, from, to int) bool {
	if to >= from {
		return true
	}
	if c == signed {
		shift := 64 - 8*from
		s := int64(v<<shift) >> shift
		return s>>(8*to-1) == 0 || s>>(8*to-1) == -1
	}
	return bits.Len64(v) <= 8*to
}

func zeroOrOne(v uint64) uint64 {
	if v != 0 {
		return 1
	}
	return 0
}

// getNative and putNative read and write a number of 1, 2, 4 or 8 bytes in the machine's order;
// getBig and putBig in big-endian order.
func getNative(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func putNative(b []byte, v uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(v))
	default:
		binary.NativeEndian.PutUint64(b, v)
	}
}

func getBig(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}

func putBig(b []byte, v uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.BigEndian.PutUint16(b, uint16(v))
	case 4:
		binary.BigEndian.PutUint32(b, uint32(v))
	default:
		binary.BigEndian.PutUint64(b, v)
	}
}
