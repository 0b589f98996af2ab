package group

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// 7.3.1: size, rank and MPI_UNDEFINED for those outside, for every group of up
// to six of six processes, through the scan and through the index.
func TestMembers(t *testing.T) {
	for _, list := range arrangements(6) {
		g := must(Of(list))
		agree(t, "scanned", g, list)
		agree(t, "indexed", indexed(g), list)
		for w := -1; w <= 7; w++ {
			want := slices.Index(list, w)
			if want < 0 {
				want = Undefined
			}
			if g.Rank(w) != want || indexed(g).Rank(w) != want || g.Contains(w) != (want >= 0) {
				t.Fatalf("Rank(%d) of %v = %d, indexed %d, want %d", w, list, g.Rank(w), indexed(g).Rank(w), want)
			}
		}
	}
}

// 7.3.1 compare and translate, 7.3.2 union, intersection and difference, for
// every pair of groups of up to five of five processes; with the tag "system" six of six, which are
// 1957 groups and 3.8 million pairs.
func TestEveryPair(t *testing.T) {
	processes := 5
	if testload.Full() {
		processes = 6
	}
	lists := arrangements(processes)
	groups := make([]*Group, len(lists))
	for i, list := range lists {
		groups[i] = must(Of(list))
	}
	for i, a := range lists {
		for j, b := range lists {
			pair(t, groups[i], groups[j], a, b)
		}
	}
}

func pair(t *testing.T, g, h *Group, a, b []int) {
	same := func(what string, got *Group, want []int) {
		if got.size != len(want) {
			t.Fatalf("%s of %v and %v: %v, want %v", what, a, b, got, want)
		}
		for r, w := range got.All() {
			if want[r] != w {
				t.Fatalf("%s of %v and %v: %v, want %v", what, a, b, got, want)
			}
		}
	}
	same("union", Union(g, h), oracleUnion(a, b))
	same("intersection", Intersection(g, h), oracleIntersection(a, b))
	same("difference", Difference(g, h), oracleDifference(a, b))
	if got, want := Compare(g, h), oracleCompare(a, b); got != want {
		t.Fatalf("%v and %v are %v, want %v", a, b, got, want)
	}
	for r, w := range a {
		want := slices.Index(b, w)
		if want < 0 {
			want = Undefined
		}
		if got := h.Rank(g.WorldRank(r)); got != want {
			t.Fatalf("rank %d of %v is %d in %v, want %d", r, a, got, b, want)
		}
	}
}

// The same with large random groups, which have an index and long segments.
func TestLargePairs(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(5, seed))
		n := 1 + rng.IntN(600)
		a, b := irregular(rng, n), irregular(rng, n)
		if seed%4 == 0 { // the same members
			b = slices.Clone(a)
			rng.Shuffle(len(b)/3, func(i, j int) { b[i], b[j] = b[j], b[i] })
		}
		g, h := must(Of(a)), must(Of(b))
		agree(t, "Of", g, a)
		agree(t, "indexed", indexed(g), a)
		pair(t, g, h, a, b)
		agree(t, "union", Union(g, h), oracleUnion(a, b))
		agree(t, "difference", Difference(g, h), oracleDifference(a, b))

		// Laws that hold up to order.
		for name, pair := range map[string][2]*Group{
			"a = (a-b) + (a*b)":       {g, Union(Difference(g, h), Intersection(g, h))},
			"a + b = b + a":           {Union(g, h), Union(h, g)},
			"a * b = a - (a-b)":       {Intersection(g, h), Difference(g, Difference(g, h))},
			"(a + b) - b = a - b":     {Difference(Union(g, h), h), Difference(g, h)},
			"(a + b) * a = a":         {Intersection(Union(g, h), g), g},
			"a + (b - a) = a + b":     {Union(g, Difference(h, g)), Union(g, h)},
			"(a - b) * b = nobody":    {Intersection(Difference(g, h), h), Empty},
			"a + nobody = a":          {Union(g, Empty), g},
			"nobody + a = a in order": {Union(Empty, g), g},
		} {
			if Compare(pair[0], pair[1]) == Unequal {
				t.Errorf("seed %d: not %s: %v and %v", seed, name, pair[0], pair[1])
			}
		}
	}
}

// 7.3.1: MPI_PROC_NULL translates to itself, a rank that the second group does not have to
// MPI_UNDEFINED, and a rank that the first group does not have is an error.
func TestTranslate(t *testing.T) {
	g, h := must(Of([]int{7, 3, 5})), must(Of([]int{5, 9, 7}))
	got, err := g.Translate([]int{0, ProcNull, 1, 2, 0}, h)
	if want := []int{2, ProcNull, Undefined, 0, 2}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Translate: %v, %v, want %v", got, err, want)
	}
	if got, err := Empty.Translate(nil, g); err != nil || len(got) != 0 {
		t.Errorf("no ranks of the empty group: %v, %v", got, err)
	}
	for _, rank := range []int{3, -1, Undefined, math.MinInt, math.MaxInt} {
		_, err := g.Translate([]int{1, rank}, h)
		refused(t, err, ErrRank, "ranks[1]", "the group has ranks 0 to 2")
	}
	_, err = Empty.Translate([]int{0}, g)
	refused(t, err, ErrRank, "ranks[0] = 0", "the group is empty")
}

// 7.3.2: every empty result is the empty group.
func TestEmpty(t *testing.T) {
	g := must(Range(3, 4))
	for name, e := range map[string]*Group{
		"zero": {}, "Of": must(Of(nil)), "Range": must(Range(8, 0)), "Incl": must(g.Incl(nil)),
		"RangeIncl": must(g.RangeIncl(nil)), "Difference": Difference(g, g), "Intersection": Intersection(g, Empty),
		"Union": Union(Empty, Empty), "Excl": must(g.RangeExcl([]Triplet{{0, 3, 1}})),
	} {
		agree(t, name, e, []int{})
		if Compare(e, Empty) != Identical || e.Rank(0) != Undefined {
			t.Errorf("%s: %v is not the empty group", name, e)
		}
	}
}

func TestRange(t *testing.T) {
	agree(t, "Range", must(Range(3, 4)), []int{3, 4, 5, 6})
	agree(t, "one", must(Range(9, 1)), []int{9})
	if g := must(Range(0, math.MaxInt32)); g.Rank(math.MaxInt32-1) != math.MaxInt32-1 || g.Rank(math.MaxInt32) != Undefined {
		t.Error("the largest world lacks its last process, or has one more")
	}
	for _, bad := range [][2]int{{-1, 2}, {0, -1}, {0, math.MaxInt32 + 1}, {math.MaxInt32, 1}, {math.MaxInt, math.MaxInt}, {-1, 0}} {
		_, err := Range(bad[0], bad[1])
		refused(t, err, ErrArg, "group: Range(")
	}
}

func TestOfRefuses(t *testing.T) {
	for _, bad := range []int{-1, ProcNull, math.MaxInt32, math.MaxInt, math.MinInt} {
		_, err := Of([]int{4, bad})
		refused(t, err, ErrRank, "group: Of: ranks[1] = ")
	}
	_, err := Of([]int{4, 6, 5, 6})
	refused(t, err, ErrArg, "ranks[3] = 6", "ranks[1] is the same")
}

// Groups that a program of 100,000 processes makes take a few words.
func TestMemoryFollowsIrregularity(t *testing.T) {
	const n = 100_000
	world := must(Range(0, n))
	for name, c := range map[string]struct {
		g    *Group
		most int // segments, forward and in the index
	}{
		"all":             {world, 1},
		"every 16th":      {must(world.RangeIncl([]Triplet{{0, n - 1, 16}})), 1},
		"reversed":        {must(world.RangeIncl([]Triplet{{n - 1, 0, -1}})), 1},
		"evens, odds":     {must(world.RangeIncl([]Triplet{{0, n - 1, 2}, {1, n - 1, 2}})), 2},
		"without three":   {must(world.Excl([]int{5, 70, 99_000})), 4},
		"without hundred": {must(world.RangeExcl([]Triplet{{500, n - 1, 1000}})), 202},
		"transposed":      {transposed(t, world, 100), 100 + 1000},
	} {
		if got := len(c.g.worlds) + len(c.g.ranks); got > c.most {
			t.Errorf("%s: %d segments, want at most %d", name, got, c.most)
		}
		for rank := 0; rank < c.g.Size(); rank += 997 {
			if c.g.Rank(c.g.WorldRank(rank)) != rank {
				t.Fatalf("%s: rank %d is lost", name, rank)
			}
		}
	}
}

// transposed orders the group, row by row in a matrix, by columns.
func transposed(t *testing.T, g *Group, columns int) *Group {
	var ranges []Triplet
	for c := range columns {
		ranges = append(ranges, Triplet{c, g.Size() - 1, columns})
	}
	h, err := g.RangeIncl(ranges)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestString(t *testing.T) {
	for want, list := range map[string][]int{
		"(0 processes)":                {},
		"7 (1 process)":                {7},
		"0-3 9 (5 processes)":          {0, 1, 2, 3, 9},
		"20-30/5 4-2/-1 (6 processes)": {20, 25, 30, 4, 3, 2},
	} {
		if got := must(Of(list)).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	if s := must(Of(rng.Perm(1000))).String(); len(s) > 200 || !strings.Contains(s, "...") {
		t.Errorf("a thousand processes: %q", s)
	}
	if got := Comparison(9).String() + Identical.String() + Similar.String() + Unequal.String(); got != "Comparison(9)identicalsimilarunequal" {
		t.Error(got)
	}
}

// refused checks an error's kind and that it contains each of parts.
func refused(t *testing.T, err, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error %v is not %q", err, kind)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}
