package core

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/core/datatypes"
	"github.com/isthmus-grid/isthmus/cabi/core/handles"
	"github.com/isthmus-grid/isthmus/cabi/core/reductions"
)

// typeMap is a type as the standard's type map has it: where each of its ints lies, and its bounds.
type typeMap struct {
	at         []int64
	lb, extent int64
}

// placed joins copies of a list at displacements in bytes; its bounds are those of its data, since
// ints need no padding between them.
func (l typeMap) placed(displacements ...int64) typeMap {
	var out typeMap
	low, high := int64(1<<40), int64(-1<<40)
	for _, d := range displacements {
		for _, at := range l.at {
			out.at = append(out.at, d+at)
		}
		low, high = min(low, d+l.lb), max(high, d+l.lb+l.extent)
	}
	out.lb, out.extent = low, high-low
	return out
}

// run is n displacements from first on.
func run(first, n, step int64) []int64 {
	var out []int64
	for i := range n {
		out = append(out, first+i*step)
	}
	return out
}

var anInt = typeMap{[]int64{0}, 0, 4}

// derived are types of ints, and what they should be.
func derived() map[string]struct {
	make func(newtype uintptr) int32
	want typeMap
} {
	lengths, displs := &[2]int32{2, 1}, &[2]int32{5, 1}
	wide, bytes := &[2]int64{2, 1}, &[2]int64{20, -8}
	ints := &[2]uintptr{typeInt, typeInt}
	sizes, subsizes, starts := &[2]int32{4, 5}, &[2]int32{2, 3}, &[2]int32{1, 2}
	distribs, arguments, grid := &[2]int32{datatypes.DistributeCyclic, datatypes.DistributeNone}, &[2]int32{datatypes.DistributeDefault, datatypes.DistributeDefault}, &[2]int32{2, 1}
	rows := func(from ...int64) typeMap {
		l := anInt.placed(from...)
		l.lb, l.extent = 0, 80
		return l
	}
	return map[string]struct {
		make func(newtype uintptr) int32
		want typeMap
	}{
		"contiguous": {func(n uintptr) int32 { return TypeContiguous(3, typeInt, n) }, anInt.placed(0, 4, 8)},
		"vector":     {func(n uintptr) int32 { return TypeVector(2, 2, 3, typeInt, n) }, anInt.placed(0, 4, 12, 16)},
		"back":       {func(n uintptr) int32 { return TypeVector(2, 1, -3, typeInt, n) }, anInt.placed(0, -12)},
		"hvector":    {func(n uintptr) int32 { return TypeCreateHvector(2, 2, 20, typeInt, n) }, anInt.placed(0, 4, 20, 24)},
		"indexed": {func(n uintptr) int32 { return TypeIndexed(2, address(lengths), address(displs), typeInt, n, 0) },
			anInt.placed(20, 24, 4)},
		"hindexed": {func(n uintptr) int32 { return TypeCreateHindexed(2, address(wide), address(bytes), typeInt, n, 1) },
			anInt.placed(20, 24, -8)},
		"indexed block": {func(n uintptr) int32 { return TypeCreateIndexedBlock(2, 2, address(displs), typeInt, n, 0) },
			anInt.placed(20, 24, 4, 8)},
		"hindexed block": {func(n uintptr) int32 { return TypeCreateHindexedBlock(2, 2, address(bytes), typeInt, n) },
			anInt.placed(20, 24, -8, -4)},
		"struct": {func(n uintptr) int32 {
			return TypeCreateStruct(2, address(lengths), address(bytes), address(ints), n, 0)
		}, anInt.placed(20, 24, -8)},
		"subarray": {func(n uintptr) int32 {
			return TypeCreateSubarray(2, address(sizes), address(subsizes), address(starts), datatypes.OrderC, typeInt, n, 0)
		}, rows(28, 32, 36, 48, 52, 56)},
		"darray": {func(n uintptr) int32 {
			return TypeCreateDarray(2, 1, 2, address(sizes), address(distribs), address(arguments), address(grid), datatypes.OrderC, typeInt, n, 0)
		}, rows(slices.Concat(run(20, 5, 4), run(60, 5, 4))...)},
		"resized": {func(n uintptr) int32 { return TypeCreateResized(typeInt, -4, 12, n) }, typeMap{[]int64{0}, -4, 12}},
		"dup":     {func(n uintptr) int32 { return TypeDup(typeInt, n) }, anInt},
	}
}

// Each constructor makes the type that the list says: its size and bounds, and what is packed and
// unpacked of two elements.
func TestDerived(t *testing.T) {
	joined()
	for name, c := range derived() {
		t.Run(name, func(t *testing.T) {
			var d uintptr
			check(t, "constructor", c.make(address(&d)), success)
			check(t, "TypeCommit", TypeCommit(address(&d)), success)
			var size, lb, extent, low, length int64
			TypeSize(d, address(&size))
			TypeGetExtent(d, address(&lb), address(&extent))
			TypeGetTrueExtentX(d, address(&low), address(&length))
			first, last := slices.Min(c.want.at), slices.Max(c.want.at)+4
			if size != int64(4*len(c.want.at)) || lb != c.want.lb || extent != c.want.extent || low != first || length != last-first {
				t.Errorf("size %d, bounds %d %d, data %d %d; want %+v", size, lb, extent, low, length, c.want)
			}
			memory, into := new([512]byte), new([512]byte)
			var want []byte
			expected := [512]byte{}
			for i := range memory {
				memory[i] = byte(i * 7)
			}
			const base = 128
			for i := range int64(2) {
				for _, at := range c.want.at {
					from := base + i*c.want.extent + at
					want = append(want, memory[from:from+4]...)
					copy(expected[from:], memory[from:from+4])
				}
			}
			packed, position := new([512]byte), int64(3)
			check(t, "Pack", Pack(address(&memory[base]), 2, d, address(packed), 512, address(&position), commWorld), success)
			if position != int64(3+len(want)) || !bytes.Equal(packed[3:position], want) {
				t.Errorf("packed %v to %d, want %v", packed[:position], position, want)
			}
			position = 3
			check(t, "Unpack", Unpack(address(packed), 512, address(&position), address(&into[base]), 2, d, commWorld), success)
			if position != int64(3+len(want)) || *into != expected {
				t.Errorf("unpacked to %d: %v, want %v", position, into, expected)
			}
			check(t, "TypeFree", TypeFree(address(&d)), success)
			if d != datatypeNull {
				t.Errorf("the handle is %#x", d)
			}
		})
	}
}

// Displacements may be addresses; a type lives as long as a request uses it; errors have their classes.
func TestDerivedMessages(t *testing.T) {
	joined()
	memory := &[6]int32{1, 2, 3, 4, 5, 6}
	got := new([6]int32)
	places := new([2]int64)
	GetAddress(address(&memory[1]), address(&places[0]))
	GetAddress(address(&memory[4]), address(&places[1]))
	var d, every uintptr
	check(t, "TypeCreateHindexedBlock", TypeCreateHindexedBlock(2, 1, address(places), typeInt, address(&d)), success)
	check(t, "an uncommitted type", Send(0, 1, d, 0, 0, commWorld), errType)
	TypeCommit(address(&d))
	TypeVector(3, 1, 2, typeInt, address(&every))
	TypeCommit(address(&every))
	var request uintptr
	var st status
	var n, elements int64
	freed := every
	check(t, "Irecv", Irecv(address(got), 1, every, 0, 3, commWorld, address(&request)), success)
	check(t, "TypeFree", TypeFree(address(&freed)), success)
	check(t, "Send", Send(0, 1, d, 0, 3, commWorld), success)
	check(t, "Wait", Wait(address(&request), address(&st)), success)
	if *got != [6]int32{2, 0, 5} {
		t.Errorf("got %v", got)
	}
	check(t, "a freed type", Send(address(got), 1, every, 0, 0, commWorld), errType)
	TypeVector(3, 1, 2, typeInt, address(&every))
	GetCount(address(&st), every, address(&n))
	GetElements(address(&st), every, address(&elements))
	if n != int64(undefined) || elements != 2 {
		t.Errorf("%d elements and %d ints of a part of an element", n, elements)
	}
	check(t, "StatusSetElements", StatusSetElements(address(&st), every, 4), success)
	if GetElements(address(&st), every, address(&elements)); elements != 4 || st.low != 16 {
		t.Errorf("%d ints in %d bytes", elements, st.low)
	}
	predefined := typeInt
	check(t, "freeing MPI_INT", TypeFree(address(&predefined)), errType)
	check(t, "-1 blocks", TypeIndexed(-1, 0, 0, typeInt, address(&d), 0), errCount)
	check(t, "-1 elements", TypeContiguous(-1, typeInt, address(&d)), errArg)
	check(t, "no old type", TypeContiguous(1, datatypeNull, address(&d)), errType)
}

// The arguments of constructors are returned, predefined types as their own handles.
func TestContents(t *testing.T) {
	joined()
	var d uintptr
	sizes := &[2]int32{4, 5}
	arguments, distribs, grid := &[2]int32{datatypes.DistributeDefault, 2}, &[2]int32{datatypes.DistributeBlock, datatypes.DistributeCyclic}, &[2]int32{2, 1}
	TypeCreateDarray(2, 1, 2, address(sizes), address(distribs), address(arguments), address(grid), datatypes.OrderFortran, typeInt, address(&d), 0)
	var nInts, nAddresses, nTypes, combiner int32
	check(t, "TypeGetEnvelope", TypeGetEnvelope(d, address(&nInts), address(&nAddresses), address(&nTypes), address(&combiner)), success)
	integers, types := new([12]int32), new([1]uintptr)
	check(t, "TypeGetContents", TypeGetContents(d, 12, 0, 1, address(integers), 0, address(types)), success)
	want := [12]int32{2, 1, 2, 4, 5, datatypes.DistributeBlock, datatypes.DistributeCyclic, datatypes.DistributeDefault, 2, 2, 1, datatypes.OrderFortran}
	if nInts != 12 || nAddresses != 0 || nTypes != 1 || combiner != 112 || *integers != want || types[0] != typeInt {
		t.Errorf("%d %d %d, combiner %d, %v, %v", nInts, nAddresses, nTypes, combiner, integers, types)
	}
	var outer uintptr
	TypeContiguous(2, d, address(&outer))
	check(t, "TypeGetContents", TypeGetContents(outer, 1, 0, 1, address(integers), 0, address(types)), success)
	if types[0] < handles.First || types[0] == d {
		t.Errorf("the inner type is %#x", types[0])
	}
	check(t, "too little room", TypeGetContents(d, 11, 0, 1, address(integers), 0, address(types)), errArg)
	check(t, "a predefined type", TypeGetContents(typeInt, 0, 0, 0, 0, 0, 0), errType)
}

func TestExternal(t *testing.T) {
	joined()
	name := append([]byte("external32"), 0)
	in, out := &[2]int32{1, -2}, new([8]byte)
	var size, position int64
	check(t, "PackExternalSize", PackExternalSize(address(&name[0]), 2, typeInt, address(&size)), success)
	check(t, "PackExternal", PackExternal(address(&name[0]), address(in), 2, typeInt, address(out), 8, address(&position)), success)
	if size != 8 || position != 8 || binary.BigEndian.Uint64(out[:]) != 0x1_ffff_fffe {
		t.Errorf("size %d, position %d, %x", size, position, out)
	}
	check(t, "no room", PackExternal(address(&name[0]), address(in), 2, typeInt, address(out), 8, address(&position)), errTruncate)
	name[0] = 'E'
	check(t, "another representation", PackExternalSize(address(&name[0]), 2, typeInt, address(&size)), errArg)
}

// A program's operation takes elements with gaps, which stay as they are.
func TestUserOperationOnDerived(t *testing.T) {
	joined()
	defer func(f func(uintptr, uintptr, uintptr, uintptr, int64, uintptr)) { reductions.CallUser = f }(reductions.CallUser)
	reductions.CallUser = func(_, _, in, inout uintptr, n int64, _ uintptr) {
		a, b := elements[int32](in, int(4*n)-1), elements[int32](inout, int(4*n)-1)
		for i := 0; i < len(a); i += 2 {
			b[i] += 10 * a[i]
		}
	}
	var op, d, sized uintptr
	OpCreate(5, 6, 1, address(&op))
	TypeVector(2, 1, 2, typeInt, address(&d))
	TypeCreateResized(d, 0, 16, address(&sized))
	TypeCommit(address(&sized))
	in, inout := &[8]int32{1, 2, 3, 4, 5, 6, 7, 8}, &[8]int32{1, 1, 1, 1, 1, 1, 1, 1}
	check(t, "ReduceLocal", ReduceLocal(address(in), address(inout), 2, sized, op), success)
	if *inout != [8]int32{11, 1, 31, 1, 51, 1, 71, 1} {
		t.Errorf("%v", inout)
	}
	check(t, "Allreduce", Allreduce(inPlace, address(in), 2, sized, op, commWorld), success)
	if *in != [8]int32{1, 2, 3, 4, 5, 6, 7, 8} {
		t.Errorf("%v", in)
	}
}

// Names are those of constants, or what the program sets.
func TestTypeNames(t *testing.T) {
	joined()
	var d, matched uintptr
	var length int32
	text := new([maxObjectName]byte)
	name := func(handle uintptr) string {
		check(t, "TypeGetName", TypeGetName(handle, address(text), address(&length)), success)
		return string(text[:length])
	}
	TypeContiguous(2, typeInt, address(&d))
	if got := name(typeInt) + "," + name(d); got != "MPI_INT," {
		t.Error(got)
	}
	given := append([]byte("pair"), 0)
	check(t, "TypeSetName", TypeSetName(d, address(&given[0])), success)
	check(t, "TypeMatchSize", TypeMatchSize(datatypes.ClassReal, 8, address(&matched)), success)
	if got := name(d) + "," + name(matched); got != "pair,MPI_REAL8" {
		t.Error(got)
	}
	check(t, "a real of 3 bytes", TypeMatchSize(datatypes.ClassReal, 3, address(&matched)), errArg)
}
