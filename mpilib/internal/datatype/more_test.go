package datatype

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

func checkArithmetic(t *testing.T, a, b int64) {
	t.Helper()
	x, y := big.NewInt(a), big.NewInt(b)
	add, mul := new(big.Int).Add(x, y), new(big.Int).Mul(x, y)
	if c, ok := addOK(a, b); ok != add.IsInt64() || ok && c != add.Int64() {
		t.Errorf("%d + %d = %d, %v", a, b, c, ok)
	}
	if c, ok := subOK(a, b); ok != new(big.Int).Sub(x, y).IsInt64() || ok && c != a-b {
		t.Errorf("%d - %d = %d, %v", a, b, c, ok)
	}
	if c, ok := mulOK(a, b); ok != mul.IsInt64() || ok && c != mul.Int64() {
		t.Errorf("%d * %d = %d, %v", a, b, c, ok)
	}
}

// TestManyElements has enough elements for batches to end in the middle.
func TestManyElements(t *testing.T) {
	for seed := range uint64(60) {
		c := chooseRandom(seed)
		s := c.random(3)
		for len(s.m.entries) > 12 {
			s = c.random(2)
		}
		check(t, s, 1+c(700))
	}
}

// TestPlanSize: the size of a plan follows the description, not the data.
func TestPlanSize(t *testing.T) {
	vector := must(Vector(1e6, 1, 2, Double))
	matrix := must(Hvector(1e6, 1, 1<<30, vector))
	even := make([]int64, 1000)
	for i := range even {
		even[i] = int64(i) * 3
	}
	nest := Double
	for range 20 {
		nest = must(Struct([]int64{1, 1}, []int64{0, nest.extent + 8}, []*Type{nest, nest}))
	}
	for what, c := range map[string]struct {
		t    *Type
		most int
	}{
		"a vector of a million blocks":    {vector, 2},
		"a million of those":              {matrix, 3},
		"a contiguous type of a vector":   {must(Contiguous(1e9, vector)), 3},
		"a vector without gaps":           {must(Vector(1e6, 2, 2, Double)), 1},
		"an even list":                    {must(IndexedBlock(1, even, Double)), 2},
		"an array":                        {must(Subarray([]int64{1e3, 1e3, 1e3}, []int64{9, 9, 9}, []int64{1, 2, 3}, OrderC, Int)), 4},
		"a cyclic array":                  {must(Darray(4, 1, Grid{[]int64{1e9}, []Distribution{DistributeCyclic}, []int64{7}, []int64{4}}, OrderC, Int)), 4},
		"twenty structs in each other":    {nest, 200},
		"a struct without gaps":           {must(Struct([]int64{1, 2, 1}, []int64{0, 8, 16}, []*Type{Double, Int, Double})), 1},
		"a plain vector's elements in it": {must(Resized(must(Vector(4, 1, 2, Double)), 0, 64)), 2},
	} {
		for _, typed := range []bool{false, true} {
			seen := map[*node]bool{}
			if words := countWords(c.t.nodeOf(typed), seen); !typed && words > c.most {
				t.Errorf("%s: %d nodes and displacements, want at most %d", what, words, c.most)
			} else if words > c.most+600 {
				t.Errorf("%s: %d typed nodes and displacements", what, words)
			}
		}
	}
}

func countWords(n *node, seen map[*node]bool) int {
	if n == nil || seen[n] {
		return 0
	}
	seen[n] = true
	words := 1 + len(n.at) + len(n.ends) + countWords(n.body, seen)
	for _, kid := range n.kids {
		words += countWords(kid, seen)
	}
	return words
}

func TestContiguous(t *testing.T) {
	for what, c := range map[string]struct {
		t  *Type
		ok bool
		at int64
	}{
		"named":          {Int, true, 0},
		"contiguous":     {must(Contiguous(9, Int)), true, 0},
		"dense struct":   {must(Struct([]int64{1, 1}, []int64{0, 8}, []*Type{Double, Double})), true, 0},
		"displaced":      {must(Resized(must(HindexedBlock(1, []int64{-8}, Int)), 0, 4)), true, -8},
		"padded":         {doubleChar(), false, 0},
		"vector":         {must(Vector(2, 1, 2, Int)), false, 0},
		"no data":        {must(Contiguous(0, Int)), false, 0},
		"resized larger": {must(Resized(Int, 0, 8)), false, 0},
	} {
		if at, ok := c.t.Contiguous(); ok != c.ok || at != c.at {
			t.Errorf("%s: %d, %v", what, at, ok)
		}
	}
}

func TestSignatures(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []*Type{Int, Double, Char, Float}
	seen := map[Signature]string{}
	for range 500 {
		var types []*Type
		var sig Signature
		text := ""
		for range r.IntN(12) {
			d := names[r.IntN(len(names))]
			types = append(types, d)
			sig = sig.then(d.sig)
			text += d.String() + " "
		}
		if was, ok := seen[sig]; ok && was != text {
			t.Errorf("%q and %q have the same signature", was, text)
		}
		seen[sig] = text
		// Cut in the middle, or repeated: always the same.
		k := r.IntN(len(types) + 1)
		var left, right, many Signature
		for i, d := range types {
			if i < k {
				left = left.then(d.sig)
			} else {
				right = right.then(d.sig)
			}
		}
		if left.then(right) != sig {
			t.Errorf("%q cut at %d differs", text, k)
		}
		n := r.Int64N(20)
		for range n {
			many = many.then(sig)
		}
		if sig.times(n) != many {
			t.Errorf("%q %d times differs", text, n)
		}
	}
	if Int.sig == Int32.sig || Byte.sig == Char.sig || Long.sig == Int64.sig {
		t.Error("different named types have the same signature")
	}
	if got := Double.sig.times(1 << 62); got != Double.sig.times(1<<61).then(Double.sig.times(1<<61)) || got.Elements != 1<<62 {
		t.Error("2^62 elements are not twice 2^61")
	}
}

// Section 3.3.1: MPI_PACKED matches everything, MPI_BYTE only itself.
func TestAccepts(t *testing.T) {
	sig := func(d *Type, n int64) Signature {
		s, err := d.Signature(n)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	vector := must(Vector(3, 2, 4, doubleChar()))
	for _, c := range []struct {
		receive *Type
		count   int64
		sent    Signature
		want    bool
	}{
		{Int, 4, sig(Int, 4), true},
		{Int, 5, sig(Int, 4), true},
		{Int, 3, sig(Int, 4), false},
		{Int, 0, Signature{}, true},
		{Int, 0, sig(Int, 1), false},
		{Int, 4, sig(Float, 4), false},
		{Packed, 99, sig(vector, 2), true},
		{vector, 1, sig(Packed, 99), true},
		{Byte, 16, sig(Int, 4), false},
		{Byte, 16, sig(Byte, 15), true},
		{vector, 3, sig(doubleChar(), 17), true},
		{vector, 3, sig(doubleChar(), 19), false},
		{vector, 3, sig(doubleChar(), 5).then(Double.sig), true},
		{vector, 3, sig(doubleChar(), 5).then(Char.sig), false},
		{Int, 4, sig(Int32, 4), false},
		{Int, 4, sig(Int32, 4).Nameless(), true},
		{Int, 4, sig(Int32, 5).Nameless(), false},
		{Integer, 4, sig(Int32, 4).Nameless(), true},
		{Int, 4, sig(Uint32, 4).Nameless(), false},
		{Int, 4, sig(Float, 4).Nameless(), false},
		{Long, 4, sig(Int64, 4).Nameless(), true},
		{Long, 4, sig(Int32, 4).Nameless(), false},
		{Double, 4, sig(CFloatComplex, 4).Nameless(), false},
		{Complex, 4, sig(CFloatComplex, 4).Nameless(), true},
		{Byte, 4, sig(Uint8, 4).Nameless(), true},
		{Char, 4, sig(Uint8, 4).Nameless(), true},
		{Char, 4, sig(Int8, 4).Nameless(), false},
		{CBool, 4, sig(Uint8, 4).Nameless(), false},
		{vector, 3, sig(doubleChar(), 5).then(Uint8.sig).Nameless(), false},
		{vector, 3, sig(doubleChar(), 5).then(Double.sig).then(Uint8.sig).Nameless(), true},
		{Packed, 4, sig(Int32, 4).Nameless(), true},
		{Int, 4, Signature{-7, 1, 1}, false}, // no input from a peer panics
	} {
		if got, err := c.receive.Accepts(c.count, c.sent); got != c.want || err != nil {
			t.Errorf("%d x %v of %v = %v, %v", c.count, c.receive, c.sent, got, err)
		}
	}
}

func TestExternalNarrow(t *testing.T) {
	pack := func(d *Type, v int64) ([]byte, error) {
		out := make([]byte, 8)
		n, err := d.PackExternal(out, unsafe.Pointer(&v), 1)
		return out[:n], err
	}
	for _, c := range []struct {
		t    *Type
		v    int64
		want []byte
	}{
		{Long, -2, []byte{0xff, 0xff, 0xff, 0xfe}},
		{Long, math.MaxInt32, []byte{0x7f, 0xff, 0xff, 0xff}},
		{Long, math.MinInt32, []byte{0x80, 0, 0, 0}},
		{Long, math.MaxInt32 + 1, nil},
		{Long, math.MinInt32 - 1, nil},
		{UnsignedLong, math.MaxUint32, []byte{0xff, 0xff, 0xff, 0xff}},
		{UnsignedLong, math.MaxUint32 + 1, nil},
		{UnsignedLong, -1, nil},
		{Wchar, 0x20ac, []byte{0x20, 0xac}},
		{Wchar, 0x1f600, nil},
		{LongLong, -2, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe}},
		{Int, 0x01020304, []byte{1, 2, 3, 4}},
		{CBool, 0x80, []byte{1}},
		{Logical, 0x800000, []byte{0, 0, 0, 1}},
	} {
		got, err := pack(c.t, c.v)
		if c.want == nil {
			if !errors.Is(err, ErrConversion) || !strings.Contains(err.Error(), c.t.String()) {
				t.Errorf("%v of %d: %x, %v", c.t, c.v, got, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v of %d: %x, %v; want %x", c.t, c.v, got, err, c.want)
		}
		var back int64
		if _, err := c.t.UnpackExternal(unsafe.Pointer(&back), 1, got); err != nil {
			t.Error(err)
		}
		if again, err := pack(c.t, back); err != nil || !slices.Equal(again, c.want) {
			t.Errorf("%v of %d came back as %d", c.t, c.v, back)
		}
	}
}

// Numbers of 16 bytes are big-endian in external32, each part of a complex one by itself.
func TestExternalWide(t *testing.T) {
	var v, back [4]uint64
	v[0], v[3] = 1, 2
	for _, c := range []struct {
		t    *Type
		want []int // where bytes are 1 and 2, on a machine whose bytes begin with the least
	}{{Integer16, []int{15}}, {Real16, []int{15}}, {Logical16, []int{15}}, {Complex32, []int{15, 23}}} {
		out := make([]byte, 32)
		n, err := c.t.PackExternal(out, unsafe.Pointer(&v), 1)
		want := make([]byte, n)
		for i, at := range c.want {
			want[at] = byte(i + 1)
		}
		if err != nil || int64(n) != c.t.Size() || !slices.Equal(out[:n], want) && binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
			t.Errorf("%v: %x, %v", c.t, out[:n], err)
		}
		back = [4]uint64{}
		if _, err := c.t.UnpackExternal(unsafe.Pointer(&back), 1, out[:n]); err != nil || back[0] != 1 || n == 32 && back[3] != 2 {
			t.Errorf("%v came back as %v, %v", c.t, back, err)
		}
		if Named(c.t.String()) != c.t {
			t.Errorf("%v is not found by its name", c.t)
		}
	}
}

// exact returns q's value.
func (q quad) exact() *big.Float {
	exp, lead := int(q.high>>48&quadExpBits), uint64(1)<<48
	if exp == 0 {
		exp, lead = 1, 0
	}
	m := new(big.Int).Lsh(new(big.Int).SetUint64(q.high&quadFraction|lead), 64)
	m.Or(m, new(big.Int).SetUint64(q.low))
	v := new(big.Float).SetMantExp(new(big.Float).SetInt(m), exp-quadBias-112)
	if q.high>>63 != 0 {
		v.Neg(v)
	}
	return v
}

func TestLongDouble(t *testing.T) {
	// Known encodings: 1, -2 and pi.
	for _, c := range []struct {
		top      uint16
		mantissa uint64
		want     quad
	}{
		{0x3fff, 1 << 63, quad{0x3fff << 48, 0}},
		{0xc000, 1 << 63, quad{0xc000 << 48, 0}},
		{0x4000, 0xc90fdaa22168c235, quad{0x4000921fb54442d1, 0x846a << 48}},
		{0, 0, quad{}},
		{0x7fff, 1 << 63, quad{0x7fff << 48, 0}},                    // infinity
		{0, 1 << 63, quad{1 << 48, 0}},                              // pseudo-denormal
		{1, 1, quad{1<<48 | 0x7fff<<48 | 1<<47, 0}},                 // unnormal: NaN
		{0, 1, quad{0, 1 << 49}},                                    // the least subnormal
		{0x8001, 1 << 63, quad{0x8001 << 48, 0}},                    // the least normal
		{0x7ffe, 1<<64 - 1, quad{0x7ffeffffffffffff, 0xfffe << 48}}, // the largest
	} {
		got := quadOfX87(c.top, c.mantissa)
		if got != c.want {
			t.Errorf("%#x %#x is %#x, want %#x", c.top, c.mantissa, got, c.want)
		}
		if top, mantissa := got.x87(); !got.nan() && (mantissa != c.mantissa || top != c.top) && !(c.top == 0 && mantissa>>63 == 1) {
			t.Errorf("%#x %#x comes back as %#x %#x", c.top, c.mantissa, top, mantissa)
		}
	}
	// Roundings that carry into the exponent.
	for _, c := range []struct {
		q        quad
		top      uint16
		mantissa uint64
	}{
		{quad{0x3fffffffffffffff, math.MaxUint64}, 0x4000, 1 << 63},
		{quad{0x0000ffffffffffff, math.MaxUint64}, 1, 1 << 63},
		{quad{0xfffeffffffffffff, math.MaxUint64}, 0xffff, 1 << 63},
		{quad{0x3fff << 48, 1 << 48}, 0x3fff, 1 << 63},     // a tie goes to even
		{quad{0x3fff << 48, 1<<48 | 1}, 0x3fff, 1<<63 | 1}, // and above that it rounds up
		{quad{0x3fff << 48, 3 << 48}, 0x3fff, 1<<63 | 2},   // as does the next tie
	} {
		if top, mantissa := c.q.x87(); top != c.top || mantissa != c.mantissa {
			t.Errorf("%#x as x87 is %#x %#x, want %#x %#x", c.q, top, mantissa, c.top, c.mantissa)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		q := quad{r.Uint64(), r.Uint64() >> (r.Uint32() % 64) << (r.Uint32() % 64)}
		switch r.IntN(4) {
		case 0: // near the doubles
			q.high = q.high&^(quadExpBits<<48) | uint64(quadBias-1080+r.IntN(2110))<<48
		case 1:
			q.high &^= quadExpBits << 48 // subnormal
		}
		checkQuad(t, q)
	}
	for _, f := range []float64{0, math.Copysign(0, -1), 1, -math.Pi, math.SmallestNonzeroFloat64, 5e-320, math.MaxFloat64, math.Inf(1), math.Inf(-1)} {
		if got := quadOfDouble(f).double(); math.Float64bits(got) != math.Float64bits(f) {
			t.Errorf("%v comes back as %v", f, got)
		}
	}
	if q := quadOfDouble(math.NaN()); !q.nan() || !math.IsNaN(q.double()) {
		t.Errorf("NaN is %#x", q)
	}
	for format, where := range map[longDoubleFormat]string{x87Format: "linux/amd64", quadFormat: "linux/arm64", doubleFormat: "darwin/arm64"} {
		goos, arch, _ := strings.Cut(where, "/")
		if longDoubleOf(goos, arch) != format {
			t.Errorf("%s has another format", where)
		}
		in := quadOfDouble(-0.1)
		b := make([]byte, 16)
		if format.fromQuad(b, in); format.toQuad(b) != in {
			t.Errorf("%s: -0.1 comes back as %#x", where, format.toQuad(b))
		}
	}
}

// checkQuad compares the roundings of q with arbitrary precision.
func checkQuad(t *testing.T, q quad) {
	t.Helper()
	top, mantissa := q.x87()
	if q.nan() {
		if !quadOfX87(top, mantissa).nan() || !math.IsNaN(q.double()) {
			t.Errorf("NaN %#x became a number", q)
		}
		return
	}
	if q.high>>48&quadExpBits == quadExpBits {
		return
	}
	exact := q.exact()
	if want, _ := exact.Float64(); math.Float64bits(want) != math.Float64bits(q.double()) {
		t.Errorf("%#x as double is %v, want %v", q, q.double(), want)
	}
	if got := quadOfX87(top, mantissa); got.high>>48&quadExpBits != quadExpBits {
		// Rounded to a multiple of the last place, with an error of at most half of it.
		exp := max(int(q.high>>48&quadExpBits), 1)
		off := new(big.Float).Sub(got.exact(), exact)
		half := new(big.Float).SetMantExp(big.NewFloat(1), exp-quadBias-64)
		if off.Abs(off).Cmp(half) > 0 {
			t.Errorf("%#x as x87 is %v off, more than half a place", q, off)
		} else if off.Cmp(half) == 0 && mantissa&1 != 0 {
			t.Errorf("%#x as x87 is rounded to odd", q)
		}
	}
}

type plain struct {
	A int8
	_ [3]byte
	B [2]float64
	C struct {
		D complex64
		E bool
	}
	f uint16
	_ struct{}
}

func TestOf(t *testing.T) {
	d, err := For[plain]()
	if err != nil {
		t.Fatal(err)
	}
	var v plain
	if d.Size() != 1+16+8+1+2 || d.extent != int64(unsafe.Sizeof(v)) || !d.Committed() {
		t.Errorf("size %d, extent %d", d.Size(), d.extent)
	}
	in := []plain{{A: 1, B: [2]float64{2, 3}, f: 4}, {A: 5, f: 6}}
	in[1].C.D, in[1].C.E = 7i, true
	packed := make([]byte, 2*d.Size())
	if _, err := d.Pack(packed, unsafe.Pointer(&in[0]), 2, 0); err != nil {
		t.Fatal(err)
	}
	out := make([]plain, 2)
	if _, err := d.Unpack(unsafe.Pointer(&out[0]), 2, packed, 0); err != nil {
		t.Fatal(err)
	}
	if in[0] != out[0] || in[1] != out[1] {
		t.Errorf("%v came back as %v", in, out)
	}
	if again, _ := For[plain](); again != d {
		t.Error("the type was made twice")
	}
	if f, _ := For[[3][2]int32](); f == nil || f.Size() != 24 || f.sig != Int32.sig.times(6) {
		t.Errorf("an array of arrays is %v", f)
	}
}

func TestOfRefuses(t *testing.T) {
	type inner struct{ Names [2]string }
	type outer struct {
		N  int
		In []int
	}
	refused := func(_ *Type, err error) error { return err }
	for want, err := range map[string]error{
		"outer.In (slice)":                 refused(For[outer]()),
		"inner.Names[] (string)":           refused(For[inner]()),
		"string (string)":                  refused(For[string]()),
		"*int (ptr)":                       refused(For[*int]()),
		"struct { M map[int]int }.M (map)": refused(For[struct{ M map[int]int }]()),
		".P (uintptr)":                     refused(For[struct{ P uintptr }]()),
		".F (func)":                        refused(For[struct{ F func() }]()),
		".U (unsafe.Pointer)":              refused(For[struct{ U unsafe.Pointer }]()),
		".C (chan)":                        refused(For[struct{ C chan int }]()),
		".I (interface)":                   refused(For[struct{ I any }]()),
		"._ (ptr)":                         refused(For[struct{ _ *int }]()),
	} {
		if !errors.Is(err, ErrGoType) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// TestConcurrentUse commits and uses one type from many goroutines.
func TestConcurrentUse(t *testing.T) {
	d, err := Vector(50, 1, 2, doubleChar())
	if err != nil {
		t.Fatal(err)
	}
	memory := make([]byte, 2*50*16)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			d.Commit()
			packed := make([]byte, d.Size())
			if n, err := d.PackSlice(packed, memory, 0, 1, 0); n != len(packed) || err != nil {
				t.Errorf("PackSlice = %d, %v", n, err)
			}
			if _, err := d.PackExternal(packed, unsafe.Pointer(&memory[0]), 1); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestNames(t *testing.T) {
	if fmt.Sprint(must(Vector(2, 1, 2, Int)), Double, CombinerDarray, Combiner(99)) != "MPI_COMBINER_VECTOR of 8 bytes MPI_DOUBLE MPI_COMBINER_DARRAY combiner 99" {
		t.Error(must(Vector(2, 1, 2, Int)), Double, CombinerDarray, Combiner(99))
	}
	for _, d := range []*Type{Byte, Packed, LongLong, CFloatComplex, DoubleComplex} {
		if Named(d.String()) != d {
			t.Errorf("%v is not found", d)
		}
	}
	if Named("MPI_LONG_LONG_INT") != LongLong || Named("MPI_NOTHING") != nil {
		t.Error("names")
	}
}
