package datatype

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"unsafe"
)

// must returns a constructor's result, committed.
func must(t *Type, err error) *Type {
	if err != nil {
		panic(err)
	}
	t.Commit()
	return t
}

// wantMap packs memory in which every byte encodes its position and compares with the displacements
// that the standard gives for the basic elements.
func wantMap(t *testing.T, d *Type, count int64, basic *Type, at ...int64) {
	t.Helper()
	e := entry{kind(basic.shape.(interface{ build(bool) *node }).build(true).kind), 0}
	m := typemap{entries: []entry{e}}.at(at...)
	d.Commit()
	p := newPlayground(sample{d, m, "the example"}, 1, m.bytes(1))
	p.count = count
	p.checkPack(t, 0, len(p.at))
	p.checkUnpack(t, 0, len(p.at))
}

func wantExtent(t *testing.T, d *Type, lb, extent, trueLB, trueExtent int64) {
	t.Helper()
	l, e := d.Extent()
	tl, te := d.TrueExtent()
	if [4]int64{l, e, tl, te} != [4]int64{lb, extent, trueLB, trueExtent} {
		t.Errorf("extent %d from %d, true %d from %d; want %d from %d, true %d from %d", e, l, te, tl, extent, lb, trueExtent, trueLB)
	}
}

// Section 5.1.1: Type = {(double,0), (char,8)} with doubles aligned to 8.
func doubleChar() *Type {
	return must(Struct([]int64{1, 1}, []int64{0, 8}, []*Type{Double, Char}))
}

func TestStandardGeneral(t *testing.T) { // 5.1.1
	wantExtent(t, doubleChar(), 0, 16, 0, 9)
	if n := doubleChar().Size(); n != 9 {
		t.Errorf("size %d", n)
	}
}

func TestStandardContiguous(t *testing.T) { // 5.1.2
	c := must(Contiguous(3, doubleChar()))
	wantExtent(t, c, 0, 48, 0, 41)
	same := must(Struct([]int64{1, 1, 1, 1, 1, 1}, []int64{0, 8, 16, 24, 32, 40}, []*Type{Double, Char, Double, Char, Double, Char}))
	if c.sig != same.sig {
		t.Error("the signature is not (double char) three times")
	}
	m := typemap{entries: []entry{{kind(Double.shape.(basic)), 0}, {kind(Char.shape.(basic)), 8}}}
	check(t, sample{c, m.run(3, 0), "the example"}, 2)
}

func TestStandardVector(t *testing.T) { // 5.1.2
	m := typemap{entries: []entry{{kind(Double.shape.(basic)), 0}, {kind(Char.shape.(basic)), 8}}}
	v := must(Vector(2, 3, 4, doubleChar()))
	check(t, sample{v, m.at(0, 16, 32, 64, 80, 96), "the example"}, 2)
	v = must(Vector(3, 1, -2, doubleChar()))
	check(t, sample{v, m.at(0, -32, -64), "the example"}, 2)
	c, same := must(Contiguous(5, doubleChar())), must(Vector(5, 1, 1, doubleChar()))
	other := must(Vector(1, 5, 99, doubleChar()))
	if c.sig != same.sig || c.sig != other.sig || c.extent != same.extent || c.extent != other.extent {
		t.Error("contiguous(n) is not vector(n,1,1) and vector(1,n,x)")
	}
}

func TestStandardIndexed(t *testing.T) { // 5.1.2
	m := typemap{entries: []entry{{kind(Double.shape.(basic)), 0}, {kind(Char.shape.(basic)), 8}}}
	i := must(Indexed([]int64{3, 1}, []int64{4, 0}, doubleChar()))
	check(t, sample{i, m.at(64, 80, 96, 0), "the example"}, 2)
}

func TestStandardStruct(t *testing.T) { // 5.1.2
	k := func(t *Type) kind { return kind(t.shape.(basic)) }
	type1 := doubleChar()
	s := must(Struct([]int64{2, 1, 3}, []int64{0, 16, 26}, []*Type{Float, type1, Char}))
	m := typemap{entries: []entry{{k(Float), 0}, {k(Float), 4}, {k(Double), 16}, {k(Char), 24}, {k(Char), 26}, {k(Char), 27}, {k(Char), 28}}}
	check(t, sample{s, m, "the example"}, 2)
}

// Section 5.1.3: an array of 100 x 100 doubles of which a 10 x 10 part is sent, here made smaller,
// in both orders.
func TestStandardSubarray(t *testing.T) {
	s := must(Subarray([]int64{4, 6}, []int64{2, 3}, []int64{1, 2}, OrderC, Double))
	wantExtent(t, s, 0, 4*6*8, (1*6+2)*8, (6+3)*8)
	wantMap(t, s, 1, Double, 64, 72, 80, 112, 120, 128)
	f := must(Subarray([]int64{6, 4}, []int64{3, 2}, []int64{2, 1}, OrderFortran, Double))
	wantMap(t, f, 1, Double, 64, 72, 80, 112, 120, 128)
}

// Section 5.1.4: a 100 x 200 x 300 array of Fortran over 2 x 3 processes of a
// 3-dimensional grid: cyclic(10), not distributed, block.
func TestStandardDarray(t *testing.T) {
	g := Grid{
		Sizes:         []int64{100, 200, 300},
		Distributions: []Distribution{DistributeCyclic, DistributeNone, DistributeBlock},
		Arguments:     []int64{10, DistributeDefault, DistributeDefault},
		Processes:     []int64{2, 1, 3},
	}
	total := int64(0)
	for rank := range int64(6) {
		d := must(Darray(6, rank, g, OrderFortran, Float))
		total += d.Size()
		row, block := rank/3, rank%3
		lb, _ := d.TrueExtent()
		if want := (row*10 + block*100*100*200) * 4; lb != want {
			t.Errorf("rank %d: the data begin at %d, want %d", rank, lb, want)
		}
		if l, e := d.Extent(); l != 0 || e != 100*200*300*4 || d.Size() != 50*200*100*4 {
			t.Errorf("rank %d: extent %d from %d, size %d", rank, e, l, d.Size())
		}
	}
	if total != 100*200*300*4 {
		t.Errorf("all ranks have %d bytes", total)
	}
}

func TestStandardResized(t *testing.T) { // 5.1.6 and 5.1.7
	// type1 = {(lb_marker,-3), (int,0), (ub_marker,6)}.
	type1 := must(Resized(Int, -3, 9))
	wantExtent(t, type1, -3, 9, 0, 4)
	// type2 has two of them: the marks are -3, 6, 6 and 15.
	type2 := must(Contiguous(2, type1))
	wantExtent(t, type2, -3, 18, 0, 13)
	wantMap(t, type2, 1, Int, 0, 9)
	// A marked part's bounds win over unmarked data outside of them.
	mixed := must(Struct([]int64{1, 1}, []int64{0, 100}, []*Type{type1, Double}))
	wantExtent(t, mixed, -3, 9, 0, 108)
	// Resizing again removes the marks below.
	wantExtent(t, must(Resized(type2, 0, 4)), 0, 4, 0, 13)
}

func TestStandardEmpty(t *testing.T) {
	empty := must(Contiguous(0, Double))
	wantExtent(t, empty, 0, 0, 0, 0)
	// A block of no elements adds neither data, bounds nor alignment.
	s := must(Struct([]int64{1, 0}, []int64{0, -100}, []*Type{Char, Double}))
	wantExtent(t, s, 0, 1, 0, 1)
	// Marks without data still count.
	marked := must(Contiguous(2, must(Resized(empty, -3, 9))))
	wantExtent(t, marked, -3, 18, 0, 0)
	for _, d := range []*Type{empty, marked, must(Struct(nil, nil, nil)), must(IndexedBlock(3, nil, Int))} {
		n, err := d.Pack(make([]byte, 8), nil, math.MaxInt64, 0)
		if n != 0 || err != nil {
			t.Errorf("%v: Pack = %d, %v", d, n, err)
		}
	}
}

// Section 5.1.14, the section of a 3-dimensional array: a(1:17:2, 3:11,
// 2:10) of a Fortran array of reals.
func TestStandardArraySection(t *testing.T) {
	const n = 20
	one := must(Vector(9, 1, 2, Real))
	two := must(Hvector(9, 1, n*4, one))
	three := must(Hvector(9, 1, n*n*4, two))
	at := func(i, j, k int64) int64 { return (i + n*j + n*n*k) * 4 }
	var want []int64
	for k := range int64(9) {
		for j := range int64(9) {
			for i := int64(0); i < 17; i += 2 {
				want = append(want, at(i, j, k))
			}
		}
	}
	wantMap(t, three, 1, Real, want...)
}

// Section 5.1.14, the lower triangular part of a matrix, in Fortran's order.
func TestStandardTriangle(t *testing.T) {
	const n = 12
	var lengths, at, want []int64
	for i := range int64(n) {
		at = append(at, n*i+i)
		lengths = append(lengths, n-i)
		for j := i; j < n; j++ {
			want = append(want, (n*i+j)*4)
		}
	}
	wantMap(t, must(Indexed(lengths, at, Real)), 1, Real, want...)
}

// Section 5.1.14, transposing a matrix: columns received as rows, and the
// variant where one row's type is resized and sent many times.
func TestStandardTranspose(t *testing.T) {
	const n = 9
	row := must(Vector(n, 1, n, Real))
	var want []int64
	for i := range int64(n) {
		for j := range int64(n) {
			want = append(want, (i+n*j)*4)
		}
	}
	wantMap(t, must(Hvector(n, 1, 4, row)), 1, Real, want...)
	wantMap(t, must(Resized(row, 0, 4)), n, Real, want...)
}

// Section 5.1.14, particles: a C struct of a class, coordinates and bytes;
// only the coordinates; and particles of one class by index.
func TestStandardParticles(t *testing.T) {
	type particle struct {
		class int32
		d     [6]float64
		b     [7]byte
	}
	const stride = int64(unsafe.Sizeof(particle{}))
	p := make([]particle, 20)
	for i := range p {
		p[i].class = int32(i % 3)
		for j := range p[i].d {
			p[i].d[j] = float64(i) + float64(j)/10
		}
		p[i].b[6] = byte(i)
	}
	base := unsafe.Pointer(&p[0])
	whole := must(Struct([]int64{1, 6, 7}, []int64{0, int64(unsafe.Offsetof(p[0].d)), int64(unsafe.Offsetof(p[0].b))},
		[]*Type{Int, Double, Byte}))
	if whole.Size() != 4+48+7 {
		t.Errorf("size %d", whole.Size())
	}
	wantExtent(t, whole, 0, stride, 0, 8+48+7)
	var zero []int64
	for i := range p {
		if p[i].class == 0 {
			zero = append(zero, int64(i))
		}
	}
	picked := must(IndexedBlock(1, zero, whole))
	packed := make([]byte, picked.Size())
	if n, err := picked.Pack(packed, base, 1, 0); n != len(zero)*59 || err != nil {
		t.Fatalf("Pack = %d, %v", n, err)
	}
	back := make([]particle, len(zero))
	if n, err := whole.Unpack(unsafe.Pointer(&back[0]), int64(len(zero)), packed, 0); n != len(packed) || err != nil {
		t.Fatalf("Unpack = %d, %v", n, err)
	}
	for i, z := range zero {
		if back[i] != p[z] {
			t.Errorf("particle %d is %v, want %v", z, back[i], p[z])
		}
	}
	coords := must(Resized(must(Contiguous(3, Double)), 0, stride))
	xyz := make([]byte, 20*24)
	if _, err := coords.Pack(xyz, unsafe.Pointer(&p[0].d), 20, 0); err != nil {
		t.Fatal(err)
	}
	for i := range p {
		for j := range 3 {
			if v := math.Float64frombits(binary.NativeEndian.Uint64(xyz[i*24+j*8:])); v != p[i].d[j] {
				t.Errorf("particle %d has coordinate %v, want %v", i, v, p[i].d[j])
			}
		}
	}
}

// TestOriginOutside: with slices, the origin may lie where no pointer may.
func TestOriginOutside(t *testing.T) {
	memory := []byte{0, 1, 2, 3, 4, 5, 6, 7}
	for _, at := range []int64{100, -100} {
		d := must(Hindexed([]int64{2, 1}, []int64{at + 3, at}, Byte))
		got := make([]byte, 3)
		if _, err := d.PackSlice(got, memory, 1-at, 1, 0); err != nil || !slices.Equal(got, []byte{4, 5, 1}) {
			t.Errorf("PackSlice at %d: %v, %v", at, got, err)
		}
	}
}

// Section 5.1.5: displacements that are addresses, from MPI_BOTTOM.
func TestStandardBottom(t *testing.T) {
	offHeap := outsideGo(t, 64)
	for i := range offHeap {
		offHeap[i] = byte(i)
	}
	at := int64(uintptr(unsafe.Pointer(&offHeap[0])))
	d := must(Hindexed([]int64{2, 3}, []int64{at + 40, at + 8}, Byte))
	got := make([]byte, 5)
	if n, err := d.Pack(got, nil, 1, 0); n != 5 || err != nil || !slices.Equal(got, []byte{40, 41, 8, 9, 10}) {
		t.Errorf("Pack = %d, %v, %v", n, err, got)
	}
}

func TestStandardDup(t *testing.T) { // 5.1.10
	v, err := Vector(2, 1, 2, Int)
	if err != nil {
		t.Fatal(err)
	}
	if v.Dup().Committed() {
		t.Error("the copy of an uncommitted type is committed")
	}
	v.Commit()
	d := v.Dup()
	c, err := d.Contents()
	if !d.Committed() || err != nil || c.Combiner != CombinerDup || c.Types[0] != v {
		t.Errorf("the copy is %+v, %v", c, err)
	}
	wantMap(t, d, 1, Int, 0, 8)
}

// Section 6.9.4: the pair types are C's structs, and stay named.
func TestStandardPairs(t *testing.T) {
	for _, p := range []struct {
		t            *Type
		size, extent int64
	}{{FloatInt, 8, 8}, {DoubleInt, 12, 16}, {LongInt, 12, 16}, {TwoInt, 8, 8}, {ShortInt, 6, 8},
		{LongDoubleInt, longDoubleSize + 4, 2 * longDoubleSize}, {TwoReal, 8, 8}, {TwoDoublePrecision, 16, 16}, {TwoInteger, 8, 8}} {
		if combiner, _, _, _ := p.t.Envelope(); combiner != CombinerNamed || p.t.Size() != p.size || p.t.extent != p.extent {
			t.Errorf("%v: %v, size %d, extent %d", p.t, combiner, p.t.Size(), p.t.extent)
		}
		if Named(p.t.String()) != p.t {
			t.Errorf("%v is not found by its name", p.t)
		}
	}
}
