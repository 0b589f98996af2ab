package buffer

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

type padded struct {
	A int8
	B int32
	C int16
}

// column is every second of five int32.
func column(t *testing.T) *datatype.Type {
	t.Helper()
	c, err := datatype.Vector(3, 1, 2, datatype.Int32)
	if err != nil {
		t.Fatal(err)
	}
	c.Commit()
	return c
}

// over returns n elements of a type over buf.
func over[T any](t *testing.T, buf []T, n int64, of *datatype.Type) Part {
	t.Helper()
	b, err := View(buf)
	if err != nil {
		t.Fatal(err)
	}
	return Lay(b, 0, n, of, of)
}

func bytesOf[T any](buf []T) []byte {
	b, err := View(buf)
	if err != nil {
		panic(err)
	}
	return b
}

func sizeAs[T any]() func() (int, error) { return Size[T] }

// Only plain data is sent: what refers to the memory of a process has no meaning at another.
func TestSize(t *testing.T) {
	type inner struct{ Names []string }
	for name, c := range map[string]struct {
		size func() (int, error)
		want int
		err  string
	}{
		"a number":    {sizeAs[complex64](), 8, ""},
		"named":       {sizeAs[mpiRank](), 4, ""},
		"an array":    {sizeAs[[3]uint16](), 6, ""},
		"with gaps":   {sizeAs[padded](), 12, ""},
		"a string":    {sizeAs[string](), 0, "string: a string refers to this process's memory"},
		"a pointer":   {sizeAs[*int](), 0, "a ptr refers"},
		"far below":   {sizeAs[struct{ B [2]inner }](), 0, "field B, field Names, a slice refers"},
		"nothing":     {sizeAs[struct{}](), 0, "has no bytes"},
		"no elements": {sizeAs[[0]int](), 0, "has no bytes"},
	} {
		for range 2 { // the second time from the cache
			got, err := c.size()
			if got != c.want || (c.err == "") != (err == nil) || c.err != "" && (!errors.Is(err, mpi.ErrType) || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%s: %d, %v; want %d, %q", name, got, err, c.want, c.err)
			}
		}
	}
}

type mpiRank int32

// What overflows, or is negative already, is negative as a number of bytes.
func TestTimes(t *testing.T) {
	if got, want := Times[int64]([]int{0, 3, -1, 1 << 61, 1<<62/8 + 1}), []int{0, 24, -1, -1, -1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := TimesSize([]int{7}, 0); got[0] != 0 {
		t.Errorf("7 elements without bytes: %d", got[0])
	}
	if got := Times[string]([]int{1}); got != nil {
		t.Errorf("of strings: %v", got)
	}
}

func TestOverlap(t *testing.T) {
	b := make([]byte, 12)
	for _, c := range []struct {
		a, b                       []byte
		apart, same, block, inside bool // block: a is b from byte 4 on
	}{
		{b[:4], b[4:8], true, false, false, false},
		{b[:5], b[4:8], false, false, false, false},
		{b[4:8], b[4:8], false, true, false, true},
		{b[4:8], b, false, false, true, true},
		{b[5:8], b, false, false, false, true},
		{b[8:12], b[:9], false, false, false, false},
		{nil, b, true, false, false, false},
		{b[4:4], b[2:8], true, false, false, true},
	} {
		if Apart(c.a, c.b) != c.apart || Apart(c.b, c.a) != c.apart || Same(c.a, c.b) != c.same || SameBlock(c.a, c.b, 4) != c.block || Inside(c.a, c.b) != c.inside {
			t.Errorf("%d bytes of %d: apart %t, same %t, block %t, inside %t; want %+v", len(c.a), len(c.b),
				Apart(c.a, c.b), Same(c.a, c.b), SameBlock(c.a, c.b, 4), Inside(c.a, c.b), c)
		}
	}
	ints := []int32{1, 2, 3, 4, 5, 6}
	first, last, pieces := PartOf(ints[:2]), PartOf(ints[5:]), over(t, ints, 1, column(t))
	if first.Shares(&last) || !first.Shares(&pieces) || !pieces.Shares(&last) {
		t.Errorf("shares %t, %t, %t", first.Shares(&last), first.Shares(&pieces), pieces.Shares(&last))
	}
}

// A Part beyond its memory is an error before a byte is touched.
func TestLay(t *testing.T) {
	back, err := datatype.Hindexed([]int64{1, 1}, []int64{-4, 4}, datatype.Int32)
	if err != nil {
		t.Fatal(err)
	}
	memory := make([]byte, 12)
	if p := Lay(memory, 4, 1, back, back); !errors.Is(p.Err, datatype.ErrUncommitted) || !strings.Contains(p.Err.Error(), "call its Commit") {
		t.Errorf("uncommitted: %v", p.Err)
	}
	back.Commit()
	for _, c := range []struct {
		origin, count int64
		of            *datatype.Type
		ok            bool
	}{
		{4, 1, back, true}, {16, 0, back, true}, {-4, 0, back, true}, {0, 3, datatype.Int32, true},
		{0, 1, back, false}, {8, 1, back, false}, {16, 1, back, false}, {-4, 1, back, false}, {4, -1, back, false},
		{0, 4, datatype.Int32, false}, {0, 1 << 62, datatype.Int32, false},
	} {
		if p := Lay(memory, c.origin, c.count, c.of, c.of); (p.Err == nil) != c.ok || !c.ok && !errors.Is(p.Err, mpi.ErrArg) {
			t.Errorf("%d of %v at %d: %v", c.count, c.of, c.origin, p.Err)
		}
	}
}

// What is in pieces is copied together, whole or from any byte on, and put back into the same pieces.
func TestPieces(t *testing.T) {
	from, into := []int32{1, 2, 3, 4, 5, 6}, []int32{-1, -2, -3, -4, -5, -6}
	p, q, plain := over(t, from, 1, column(t)), over(t, into, 1, column(t)), PartOf(from[:3])
	want := bytesOf([]int32{1, 3, 5})
	if !p.Pieces || p.Size != len(want) || !bytes.Equal(p.Packed(), want) {
		t.Fatalf("packed %v of %+v", p.Packed(), p)
	}
	if plain.Pieces || !Same(plain.Packed(), bytesOf(from[:3])) || !Same(plain.Landing(), plain.Packed()) {
		t.Errorf("a slice is copied: %+v", plain)
	}
	tail := make([]byte, 5)
	if p.Gather(tail, 7); !bytes.Equal(tail, want[7:]) {
		t.Errorf("from byte 7 on: %v", tail)
	}
	for _, part := range []*Part{&p, &plain} {
		c := part.Copied()
		if c.Pieces || Inside(c.Message, part.Memory) || !bytes.Equal(c.Packed(), part.Packed()) {
			t.Errorf("a copy: %+v", c)
		}
	}
	b := q.Landing()
	if len(b) != q.Size || Inside(b, bytesOf(into)) {
		t.Fatalf("a message would be received at %d bytes", len(b))
	}
	copy(b, want)
	if q.Land(b); !slices.Equal(into, []int32{1, -2, 3, -4, 5, -6}) {
		t.Errorf("landed as %v", into)
	}
	if q.Scatter(want[:4], 8); into[4] != 1 {
		t.Errorf("the last four bytes: %v", into)
	}
}

func TestCounted(t *testing.T) {
	slice, pieces := PartOf(make([]int32, 4)), over(t, make([]int32, 12), 2, column(t))
	for _, c := range []struct {
		p    Part
		n    int
		want int
		err  error
	}{
		{slice, 8, 2, nil}, {slice, 0, 0, nil}, {slice, 6, 1, mpi.ErrCount},
		{pieces, 24, 2, nil}, {pieces, 0, 0, nil}, {pieces, 8, mpi.Undefined, nil}, {Part{}, 0, 0, nil},
	} {
		if got, err := c.p.Counted(c.n); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%d bytes: %d, %v; want %d, %v", c.n, got, err, c.want, c.err)
		}
	}
	empty, err := datatype.Contiguous(0, datatype.Int32)
	if err != nil || WholeElements(empty, 0) != 0 || WholeElements(empty, 4) != mpi.Undefined {
		t.Errorf("of a type without data: %d, %d, %v", WholeElements(empty, 0), WholeElements(empty, 4), err)
	}
}

// 3.3.1 and 5.1.11 of the standard: a message fits a receive whose basic elements begin with its own. A
// struct with gaps is sent as Go has it, and is bytes then.
func TestSignatures(t *testing.T) {
	type pair struct{ A, B int32 }
	ints := PartOf([]int32{1, 2, 3, 4, 5, 6})
	gaps, err := datatype.For[padded]()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		out, in Part
		same    bool
	}{
		{"same", ints, ints, true},
		{"column", over(t, make([]int32, 6), 1, column(t)), ints, true},
		{"struct", PartOf([]pair{{1, 2}}), ints, true},
		{"into struct", ints, PartOf(make([]pair, 4)), true},
		{"packed", ints, over(t, make([]byte, 30), 30, datatype.Packed), true},
		{"nothing", PartOf([]float64{}), ints, true},
		{"into nothing", Part{}, Part{}, true},
		{"gaps both", PartOf(make([]padded, 2)), PartOf(make([]padded, 2)), true},
		{"more", ints, PartOf(make([]int32, 5)), false},
		{"unsigned", PartOf([]uint32{1}), ints, false},
		{"float", PartOf([]float32{1}), ints, false},
		{"order", PartOf([]struct {
			A float32
			B int32
		}{{1, 2}}), PartOf([]struct {
			A int32
			B float32
		}{{1, 2}}), false},
		{"bytes", over(t, make([]byte, 4), 4, datatype.Byte), PartOf(make([]byte, 4)), true},
		{"from C", over(t, make([]int32, 6), 6, datatype.Int), ints, true},
		{"to C", ints, over(t, make([]int32, 6), 6, datatype.Int), true},
		{"to Fortran", ints, over(t, make([]int32, 6), 6, datatype.Integer), true},
		{"to another type of C", ints, over(t, make([]uint32, 6), 6, datatype.Unsigned), false},
		{"by name", over(t, make([]int32, 6), 6, datatype.Int32), over(t, make([]int32, 6), 6, datatype.Int), false},
		{"gaps", PartOf(make([]padded, 1)), over(t, make([]padded, 2), 2, gaps), false},
	} {
		b, err := c.out.Signed()
		if err != nil || len(b) != SignatureSize+c.out.Size || !bytes.Equal(b[SignatureSize:], c.out.Packed()) {
			t.Errorf("%s: %d bytes, %v", c.name, len(b), err)
			continue
		}
		if err := c.in.Accepts(b); c.same && err != nil || !c.same && !errors.Is(err, mpi.ErrSignature) {
			t.Errorf("%s: %v, want same %t", c.name, err, c.same)
		}
	}
	if err := ints.Accepts(make([]byte, SignatureSize)); !errors.Is(err, mpi.ErrSignature) || !strings.Contains(err.Error(), "the message has no signature") {
		t.Errorf("without: %v", err)
	}
}

// A message lands once, where it belongs, and not at all if its signature is another's.
func TestArrival(t *testing.T) {
	from := PartOf([]int32{1, 2, 3})
	signed, err := from.Signed()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		in    func([]int32) Part
		head  int
		count int
		want  []int32
		err   error
	}{
		"slice":             {func(b []int32) Part { return PartOf(b[:5]) }, 0, 3, []int32{1, 2, 3, 0, 0}, nil},
		"pieces":            {func(b []int32) Part { return over(t, b, 1, column(t)) }, 0, 1, []int32{1, 0, 2, 0, 3}, nil},
		"signed":            {func(b []int32) Part { return PartOf(b[:5]) }, SignatureSize, 3, []int32{1, 2, 3, 0, 0}, nil},
		"signed, in pieces": {func(b []int32) Part { return over(t, b, 1, column(t)) }, SignatureSize, 1, []int32{1, 0, 2, 0, 3}, nil},
		"another's":         {func(b []int32) Part { return over(t, b, 12, datatype.Uint8) }, SignatureSize, 0, make([]int32, 5), mpi.ErrSignature},
	} {
		memory := make([]int32, 5)
		p := c.in(memory)
		a := ArrivalAt(p, c.head)
		if a.Room() != p.Size || len(a.Buf) != c.head+p.Size {
			t.Errorf("%s: room for %d, %d bytes", name, a.Room(), len(a.Buf))
		}
		copy(a.Buf, signed[SignatureSize-c.head:])
		for range 2 {
			if got, err := a.Land(from.Size); got != c.count || !errors.Is(err, c.err) || !slices.Equal(memory, c.want) {
				t.Errorf("%s: %d elements, %v, %v; want %d, %v, %v", name, got, memory, err, c.count, c.want, c.err)
			}
		}
	}
}
