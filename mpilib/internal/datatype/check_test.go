package datatype

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// check compares all results of s.t with s.m.
func check(t *testing.T, s sample, count int64) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Fatalf("the type was %d x %s", count, s.text)
		}
	}()
	checkMeasures(t, s, count)
	s.t.Commit()
	at := s.m.bytes(count)
	if n, err := s.t.PackedSize(count); err != nil || n != int64(len(at)) {
		t.Fatalf("PackedSize = %d, %v; want %d", n, err, len(at))
	}
	p := newPlayground(s, count, at)
	for _, cut := range cuts(len(at)) {
		p.checkPack(t, cut[0], cut[1])
		p.checkUnpack(t, cut[0], cut[1])
	}
	p.checkExternal(t)
	checkContents(t, s)
}

func checkMeasures(t *testing.T, s sample, count int64) {
	t.Helper()
	if s.t.Size() != s.m.size() {
		t.Errorf("Size = %d, want %d", s.t.Size(), s.m.size())
	}
	wantLB, wantUB := s.m.limits()
	if lb, extent := s.t.Extent(); lb != wantLB || extent != wantUB-wantLB {
		t.Errorf("Extent = %d, %d; want %d, %d", lb, extent, wantLB, wantUB-wantLB)
	}
	low, high := s.m.trueBounds()
	if lb, extent := s.t.TrueExtent(); lb != low || extent != high-low {
		t.Errorf("TrueExtent = %d, %d; want %d, %d", lb, extent, low, high-low)
	}
	sig, err := s.t.Signature(count)
	if want := s.m.signature(count); err != nil || sig != want {
		t.Errorf("Signature = %v, %v; want %v", sig, err, want)
	}
	checkPrefixes(t, s, count)
}

// checkPrefixes checks messages that end after some of the elements.
func checkPrefixes(t *testing.T, s sample, count int64) {
	t.Helper()
	var sent Signature
	size, n := int64(0), int64(0)
	for range count {
		for _, e := range s.m.entries {
			sent = sent.then(kinds[e.kind].signature())
			if n%7 == 0 || n < 20 {
				if ok, err := s.t.Accepts(count, sent); !ok || err != nil {
					t.Errorf("%d elements are refused: %v", n+1, err)
				}
				if ok, _ := s.t.Accepts(count, sent.then((&kindInfo{name: "another"}).signature())); ok {
					t.Errorf("%d elements and a stranger are taken", n+1)
				}
			}
			for b := int64(1); b < kinds[e.kind].size; b++ {
				if got, ok := s.t.Elements(size + b); ok || got != n {
					t.Errorf("Elements(%d) = %d, %v; want %d and no", size+b, got, ok, n)
				}
			}
			size, n = size+kinds[e.kind].size, n+1
			if got, ok := s.t.Elements(size); !ok || got != n {
				t.Errorf("Elements(%d) = %d, %v; want %d", size, got, ok, n)
			}
		}
	}
}

// cuts returns every from and to of a short message, and some of a long one.
func cuts(n int) (all [][2]int) {
	if n <= 16 {
		for from := range n + 1 {
			for to := from; to <= n; to++ {
				all = append(all, [2]int{from, to})
			}
		}
		return all
	}
	all = [][2]int{{0, n}}
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for range 20 {
		from := r.IntN(n + 1)
		all = append(all, [2]int{from, from + r.IntN(n+1-from)}, [2]int{from, min(n, from+9)})
	}
	return all
}

// A playground is memory around the elements of a sample.
type playground struct {
	sample
	count  int64
	at     []int64 // where each packed byte lies, in memory
	twice  map[int64]bool
	memory []byte
	origin int64
}

const margin = 40 // bytes that must not be touched

func newPlayground(s sample, count int64, at []int64) *playground {
	p := &playground{sample: s, count: count, at: slices.Clone(at), twice: map[int64]bool{}, origin: margin}
	if len(at) > 0 {
		// The base lies in the memory too: no pointer may point elsewhere.
		p.origin -= min(0, slices.Min(at))
		p.memory = make([]byte, max(0, slices.Max(at))+1+p.origin+margin)
	}
	r := rand.New(rand.NewPCG(uint64(len(at)), 2))
	for i := range p.memory {
		p.memory[i] = byte(r.Uint32())
	}
	seen := map[int64]bool{}
	for i := range p.at {
		p.at[i] += p.origin
		p.twice[p.at[i]] = seen[p.at[i]]
		seen[p.at[i]] = true
	}
	return p
}

// base returns the address that displacements are relative to.
func (p *playground) base(memory []byte) unsafe.Pointer {
	if memory == nil {
		return nil
	}
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(memory)), p.origin)
}

func (p *playground) checkPack(t *testing.T, from, to int) {
	t.Helper()
	want := make([]byte, to-from)
	for i := range want {
		want[i] = p.memory[p.at[from+i]]
	}
	got := make([]byte, to-from)
	n, err := p.t.PackSlice(got, p.memory, p.origin, p.count, int64(from))
	if n != to-from || err != nil || !bytes.Equal(got, want) {
		t.Errorf("PackSlice of %d to %d = %d, %v\n got %x\nwant %x", from, to, n, err, got, want)
	}
}

func (p *playground) checkUnpack(t *testing.T, from, to int) {
	t.Helper()
	packed := make([]byte, to-from)
	want := bytes.Repeat([]byte{0xee}, len(p.memory))
	got := slices.Clone(want)
	for i := range packed {
		packed[i] = byte(i*7 + from)
		want[p.at[from+i]] = packed[i]
	}
	n, err := p.t.UnpackSlice(got, p.origin, p.count, packed, int64(from))
	if n != to-from || err != nil {
		t.Errorf("UnpackSlice of %d to %d = %d, %v", from, to, n, err)
	}
	for i := range want {
		if got[i] != want[i] && !p.twice[int64(i)] {
			t.Errorf("UnpackSlice of %d to %d: byte %d is %#x, want %#x", from, to, int64(i)-p.origin, got[i], want[i])
			return
		}
	}
}

// checkExternal converts values that fit to external32 and back.
func (p *playground) checkExternal(t *testing.T) {
	t.Helper()
	memory := slices.Clone(p.memory)
	var want []byte
	ex := p.m.extent()
	for i := range p.count {
		for n, e := range p.m.entries {
			info := kinds[e.kind]
			for part := range info.parts {
				at := p.origin + i*ex + e.at + part*info.size/info.parts
				for b := range info.size / info.parts {
					if p.twice[at+b] {
						return // no value of its own
					}
				}
				native := memory[at : at+info.size/info.parts]
				big := make([]byte, info.external/info.parts)
				for b := range native {
					native[b] = 0
					if b < len(big) && (info.class != boolean || b == 0) {
						native[b] = byte(n + b)
						if info.class == boolean {
							native[b] &= 1
						}
						big[len(big)-1-b] = native[b]
					}
				}
				if info.class == octets {
					slices.Reverse(big)
				}
				want = append(want, big...)
			}
		}
	}
	got := make([]byte, len(want))
	n, err := p.t.PackExternal(got, p.base(memory), p.count)
	if size, sizeErr := p.t.ExternalSize(p.count); n != len(want) || err != nil || sizeErr != nil || size != int64(n) || !bytes.Equal(got, want) {
		t.Errorf("PackExternal = %d, %v; ExternalSize %d\n got %x\nwant %x", n, err, size, got, want)
	}
	back := slices.Clone(memory)
	for _, at := range p.at {
		back[at] ^= 0x5a
	}
	if n, err := p.t.UnpackExternal(p.base(back), p.count, got); n != len(want) || err != nil || !bytes.Equal(back, memory) {
		t.Errorf("UnpackExternal = %d, %v and differs", n, err)
	}
}

// checkContents reconstructs the type from its contents.
func checkContents(t *testing.T, s sample) {
	t.Helper()
	combiner, ints, addresses, types := s.t.Envelope()
	c, err := s.t.Contents()
	if combiner == CombinerNamed {
		if err == nil {
			t.Error("a named type has contents")
		}
		return
	}
	if err != nil || c.Combiner != combiner || len(c.Integers) != ints || len(c.Addresses) != addresses || len(c.Types) != types {
		t.Errorf("Contents = %+v, %v; envelope %v %d %d %d", c, err, combiner, ints, addresses, types)
		return
	}
	again, err := rebuild(c)
	if err != nil {
		t.Errorf("%+v: %v", c, err)
		return
	}
	lb, extent := s.t.Extent()
	if lb2, extent2 := again.Extent(); again.sig != s.t.sig || lb2 != lb || extent2 != extent || again.bounds != s.t.bounds {
		t.Errorf("the type made from %+v differs", c)
	}
}

func rebuild(c Contents) (*Type, error) {
	i, a := c.Integers, c.Addresses
	switch c.Combiner {
	case CombinerDup:
		return c.Types[0].Dup(), nil
	case CombinerContiguous:
		return Contiguous(i[0], c.Types[0])
	case CombinerVector:
		return Vector(i[0], i[1], i[2], c.Types[0])
	case CombinerHvector:
		return Hvector(i[0], i[1], a[0], c.Types[0])
	case CombinerIndexed:
		return Indexed(i[1:1+i[0]], i[1+i[0]:], c.Types[0])
	case CombinerHindexed:
		return Hindexed(i[1:], a, c.Types[0])
	case CombinerIndexedBlock:
		return IndexedBlock(i[1], i[2:], c.Types[0])
	case CombinerHindexedBlock:
		return HindexedBlock(i[1], a, c.Types[0])
	case CombinerStruct:
		return Struct(i[1:], a, c.Types)
	case CombinerResized:
		return Resized(c.Types[0], a[0], a[1])
	case CombinerSubarray:
		n := i[0]
		return Subarray(i[1:1+n], i[1+n:1+2*n], i[1+2*n:1+3*n], Order(i[1+3*n]), c.Types[0])
	}
	n := i[2]
	g := Grid{Sizes: i[3 : 3+n], Arguments: i[3+2*n : 3+3*n], Processes: i[3+3*n : 3+4*n]}
	for _, d := range i[3+n : 3+2*n] {
		g.Distributions = append(g.Distributions, Distribution(d))
	}
	return Darray(i[0], i[1], g, Order(i[3+4*n]), c.Types[0])
}
