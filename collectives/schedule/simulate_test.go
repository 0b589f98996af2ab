package schedule

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// mix is an operator that depends on its operands and their order.
func mix(inout, in []byte) error {
	for i := range inout {
		inout[i] = 3*in[i] + 5*inout[i] + 1
	}
	return nil
}

// program returns a random program of several ranks, with the memory of each at the beginning and
// at the end when its actions are done one after the other.
func program(rng *rand.Rand, ranks, things int) (all []*Schedule, begin, end []Memory) {
	const size = 12
	builders := make([]*Builder, ranks)
	for r := range builders {
		builders[r] = NewBuilder(r, ranks)
		builders[r].Scratch(size)
		var m Memory
		for space := range m {
			m[space] = make([]byte, size)
			for i := range m[space] {
				m[space][i] = byte(rng.Uint32())
			}
		}
		begin = append(begin, m)
	}
	end = clone(begin)
	for range things {
		n := 1 + rng.IntN(5)
		region := func(spaces ...Space) Region {
			return Region{spaces[rng.IntN(len(spaces))], rng.IntN(size - n + 1), n}
		}
		a, b := rng.IntN(ranks), rng.IntN(ranks)
		from, to := region(Input, Output, Scratch), region(Output, Scratch)
		switch {
		case a != b:
			builders[a].Send(b, from)
			builders[b].Receive(a, to)
			copy(end[b].at(to), end[a].at(from))
		case from.overlaps(to):
		case rng.IntN(2) == 0:
			builders[a].Copy(to, from)
			copy(end[a].at(to), end[a].at(from))
		default:
			builders[a].Reduce(to, from)
			mix(end[a].at(to), end[a].at(from))
		}
	}
	for _, b := range builders {
		all = append(all, b.Done())
	}
	return all, begin, end
}

func clone(m []Memory) []Memory {
	c := make([]Memory, len(m))
	for r := range m {
		for space := range m[r] {
			c[r][space] = bytes.Clone(m[r][space])
		}
	}
	return c
}

func same(t *testing.T, got, want []Memory) {
	t.Helper()
	for r := range want {
		for space := range want[r] {
			if !bytes.Equal(got[r][space], want[r][space]) {
				t.Fatalf("rank %d has in %v % x, want % x", r, Space(space), got[r][space], want[r][space])
			}
		}
	}
}

// Whatever overtakes what, a program ends as if its actions had been done one after the other.
func TestPrograms(t *testing.T) {
	seeds := uint64(300)
	if testload.Full() {
		seeds = 2000
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		ranks := 1 + rng.IntN(5)
		all, begin, end := program(rng, ranks, rng.IntN(60))
		grid := &Grid{IntraSite: Path{Latency: 1000, Rate: 1e9}, InterSite: Path{Latency: 1e6, Rate: 1e8, Each: 100}}
		if rng.IntN(2) == 0 {
			for range ranks {
				grid.Site = append(grid.Site, rng.IntN(3))
			}
		}
		m := clone(begin)
		if _, err := Simulate(all, grid, m, mix); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		same(t, m, end)
		for range 5 {
			m := clone(begin)
			if err := Shake(all, grid, m, mix, rng); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			same(t, m, end)
		}
	}
}

// Programs that cannot end, or whose steps disturb each other, are detected.
func TestBadPrograms(t *testing.T) {
	in, out := Region{Input, 0, 4}, Region{Output, 0, 4}
	send := func(peer, slot int, from Region, after ...int) Step {
		return Step{Kind: Send, Peer: peer, Slot: slot, From: from, After: after}
	}
	receive := func(peer, slot int, to Region, after ...int) Step {
		return Step{Kind: Receive, Peer: peer, Slot: slot, To: to, After: after}
	}
	for _, tc := range []struct {
		name string
		a, b []Step
		want string
	}{
		{"both wait", []Step{receive(1, 0, out), send(1, 0, out, 0)}, []Step{receive(0, 0, out), send(0, 0, out, 0)}, "rank 0 waits to receive out[0:4] from rank 1, message 0; rank 1 waits"},
		{"unheard", []Step{send(1, 0, in)}, nil, "no receive matches rank 0: send in[0:4]"},
		{"lengths", []Step{send(1, 0, in)}, []Step{receive(0, 0, out.Cut(0, 3))}, "sends 4 bytes as message 0 to rank 1, which expects 3"},
		{"sent twice", []Step{send(1, 0, in), send(1, 0, in)}, []Step{receive(0, 0, out)}, "twice"},
		{"received twice", []Step{send(1, 0, in)}, []Step{receive(0, 0, out), receive(0, 0, out)}, "twice"},
		{"changed", []Step{send(1, 0, out), {Kind: Copy, From: in, To: out}}, []Step{receive(0, 0, out)}, "rank 0 changes what it sends: step 0"},
		{"to nobody", []Step{send(2, 0, in)}, nil, "step 0 of rank 0 of 2: send in[0:4] to rank 2"},
	} {
		memory := make([]Memory, 2)
		for r := range memory {
			memory[r] = Memory{[]byte{1, 2, 3, 4}, []byte{5, 6, 7, 8}, nil}
		}
		_, err := Simulate([]*Schedule{{Rank: 0, Size: 2, Steps: tc.a}, {Rank: 1, Size: 2, Steps: tc.b}}, &Grid{IntraSite: Path{Latency: 5}}, memory, mix)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if stuck := tc.name == "both wait" || tc.name == "unheard"; stuck != errors.Is(err, ErrStuck) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// Memory that a rank is to receive into cannot be read before.
func TestReceivesSpoil(t *testing.T) {
	a := &Schedule{Rank: 0, Size: 2, Steps: []Step{{Kind: Send, Peer: 1, From: Region{Input, 0, 1}}}}
	b := &Schedule{Rank: 1, Size: 2, Steps: []Step{
		{Kind: Receive, Peer: 0, To: Region{Output, 0, 1}}, {Kind: Copy, From: Region{Output, 0, 1}, To: Region{Output, 1, 1}}, // without waiting for it
	}}
	memory := []Memory{{[]byte{7}, nil, nil}, {nil, []byte{7, 7}, nil}}
	if _, err := Simulate([]*Schedule{a, b}, &Grid{IntraSite: Path{Latency: 5}}, memory, mix); err != nil {
		t.Fatal(err)
	}
	if got := memory[1][Output]; got[0] != 7 || got[1] == 7 {
		t.Errorf("%v", got)
	}
}

// Times are those of the model.
func TestTimes(t *testing.T) {
	grid := &Grid{Site: []int{0, 0, 1, 1}, IntraSite: Path{Latency: 10, Rate: 1e9, Each: 1}, InterSite: Path{Latency: 1000, Rate: 1e8, Each: 2}, Compute: 1e9}
	kilo := Region{Output, 0, 1000}
	for _, tc := range []struct {
		name string
		make func(b *Builder, rank int)
		want [4]time.Duration
		far  [2]int
	}{
		{"near", func(b *Builder, rank int) {
			switch rank {
			case 0:
				b.Send(1, kilo)
			case 1:
				b.Receive(0, kilo)
			}
		}, [4]time.Duration{1 + 1000 + 10, 1 + 1000 + 10 + 1, 0, 0}, [2]int{}},
		{"far", func(b *Builder, rank int) {
			switch rank {
			case 0:
				b.Send(2, kilo)
			case 2:
				b.Receive(0, kilo)
			}
		}, [4]time.Duration{2 + 10000 + 1000, 0, 2 + 10000 + 1000 + 2, 0}, [2]int{1, 1000}},
		{"two share a site's path", func(b *Builder, rank int) {
			if rank < 2 {
				b.Send(rank+2, kilo)
			} else {
				b.Receive(rank-2, kilo)
			}
		}, [4]time.Duration{2 + 10000 + 1000, 2 + 20000 + 1000, 2 + 10000 + 1000 + 2, 2 + 20000 + 1000 + 2}, [2]int{2, 2000}},
		{"work", func(b *Builder, rank int) {
			if rank == 3 {
				b.Reduce(kilo, Region{Input, 0, 1000})
				b.Reduce(Region{Scratch, 0, 1000}, Region{Input, 0, 1000})
			}
		}, [4]time.Duration{0, 0, 0, 2000}, [2]int{}},
	} {
		all := make([]*Schedule, 4)
		for r := range all {
			b := NewBuilder(r, 4)
			tc.make(b, r)
			all[r] = b.Done()
		}
		got, err := Simulate(all, grid, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if messages, bytes := got.Far(); [4]time.Duration(got.Ends) != tc.want || [2]int{messages, bytes} != tc.far {
			t.Errorf("%s: %v, want %v; %d messages of %d bytes", tc.name, got.Ends, tc.want, messages, bytes)
		}
	}
}

// A connection delays what exceeds its window until the first bytes have been acknowledged; another
// connection is not delayed, nor is a message that has waited long enough.
func TestWindow(t *testing.T) {
	for _, tc := range []struct {
		window int
		sends  []int // bytes, from rank 0 to 2, one after another
		end    time.Duration
	}{
		{0, []int{1000}, 1000 + 1000},
		{1000, []int{1000}, 1000 + 1000},
		{400, []int{1000}, 1000 + 2000 + 600}, // 400 at once, 600 a round trip later
		{400, []int{1000, 1000}, 1000 + 4000 + 800},
		{400, []int{0, 1000}, 1000 + 2000 + 600},
		{100, []int{1000, 0}, 1000 + 3*2000 + 300}, // 100, 200, 400, 300
	} {
		grid := &Grid{Site: []int{0, 0, 1, 1}, InterSite: Path{Latency: 1000, Rate: 1e9, Window: tc.window}}
		all := make([]*Schedule, 4)
		builders := make([]*Builder, 4)
		for r := range builders {
			builders[r] = NewBuilder(r, 4)
		}
		for i, n := range tc.sends {
			builders[0].Send(2, Region{Output, i * n, n})
			builders[2].Receive(0, Region{Output, i * n, n})
		}
		builders[1].Send(3, Region{Output, 0, 300})
		builders[3].Receive(1, Region{Output, 0, 300})
		for r, b := range builders {
			all[r] = b.Done()
		}
		got, err := Simulate(all, grid, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Ends[2] != tc.end {
			t.Errorf("window %d, %v bytes: %v, want %v", tc.window, tc.sends, got.Ends[2], tc.end)
		}
		if tc.window >= 300 && got.Ends[3] > 1000+2000+300 {
			t.Errorf("window %d, %v bytes: the other connection's are there at %v", tc.window, tc.sends, got.Ends[3])
		}
	}
}

// Messages from several ranks to one within a site queue there.
func TestTimesOfThoseWhoGet(t *testing.T) {
	kilo := Region{Output, 0, 1000}
	var all []*Schedule
	for r := range 3 {
		b := NewBuilder(r, 3)
		if r > 0 {
			b.Send(0, kilo)
		} else {
			b.Receive(1, kilo)
			b.Receive(2, Region{Scratch, 0, 1000})
		}
		all = append(all, b.Done())
	}
	got, err := Simulate(all, &Grid{IntraSite: Path{Latency: 10, Rate: 1e9, Each: 1}}, nil, nil)
	want := []time.Duration{1 + 10 + 2000 + 1, 1 + 10 + 1000, 1 + 10 + 2000}
	if err != nil || !slices.Equal(got.Ends, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

// SimulateUntil is Simulate, unless the call takes longer than the limit.
func TestSimulateUntil(t *testing.T) {
	grid := &Grid{IntraSite: Path{Latency: 1000, Rate: 1e9}, Compute: 1e9}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		all, _, _ := program(rng, 2+rng.IntN(4), 40)
		want, err := Simulate(all, grid, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := SimulateUntil(all, grid, want.End())
		if err != nil || !slices.Equal(got.Ends, want.Ends) {
			t.Fatalf("seed %d: %v, %v, want %v", seed, got, err, want.Ends)
		}
		if got, err := SimulateUntil(all, grid, want.End()-1); got != nil || !errors.Is(err, ErrLate) {
			t.Fatalf("seed %d: with less time %v, %v", seed, got, err)
		}
	}
}

// Ranks that signal each other that they have entered do so all at once.
func TestSignalsDoNotWaitForEachOther(t *testing.T) {
	var all []*Schedule
	for r := range 4 {
		b := NewBuilder(r, 4)
		for i := 1; i < 4; i++ {
			b.Signal((r + i) % 4)
		}
		for i := 1; i < 4; i++ {
			b.Await((r + i) % 4)
		}
		all = append(all, b.Done())
	}
	got, err := Simulate(all, &Grid{Site: []int{0, 1, 2, 3}, InterSite: Path{Latency: 1000}}, nil, nil)
	if err != nil || got.End() != 1000 {
		t.Errorf("%v, %v", got, err)
	}
}

// Pairs of ranks take turns on the path that their sites share, and each path has its own cost.
func TestPaths(t *testing.T) {
	const ms = time.Millisecond
	grid := &Grid{Site: []int{0, 0, 0, 1, 2}, Node: []int{0, 0, 1, 2, 3},
		IntraNode: Path{Latency: 1 * ms}, IntraSite: Path{Latency: 10 * ms},
		Between: [][]Path{{{}, {Latency: 100 * ms, Rate: 1000}, {Latency: 200 * ms}}, {{}, {}, {}}, {{}, {}, {}}}}
	builders := make([]*Builder, 5)
	for r := range builders {
		builders[r] = NewBuilder(r, 5)
	}
	pass := func(from, to, n int) {
		builders[from].Send(to, Region{Input, 0, n})
		builders[to].Receive(from, builders[to].Scratch(n))
	}
	for range 10 {
		pass(0, 3, 100) // 100 ms each
	}
	pass(2, 3, 100)
	pass(0, 1, 1)
	pass(1, 4, 1)
	all := make([]*Schedule, len(builders))
	for r, b := range builders {
		all[r] = b.Done()
	}
	out, err := Simulate(all, grid, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Rank 1 sends when the path is free, after the first two messages of the others; rank 2's
	// message is second or third on the way out and in.
	for r, want := range map[int][2]time.Duration{2: {300 * ms, 400 * ms}, 3: {1200 * ms, 1200 * ms}, 4: {300 * ms, 400 * ms}} {
		if out.Ends[r] < want[0] || out.Ends[r] > want[1] {
			t.Errorf("rank %d ends after %v, want from %v to %v", r, out.Ends[r], want[0], want[1])
		}
	}
	if n, b := out.Far(); n != 12 || b != 1101 {
		t.Errorf("%d messages of %d bytes between sites", n, b)
	}
}
