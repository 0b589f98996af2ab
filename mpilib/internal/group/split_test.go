package group

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// oracleSplit scans all choices once for each colour and key.
func oracleSplit(list []int, choices []Choice, colour int) []int {
	type member struct{ key, rank int }
	var members []member
	for r, c := range choices {
		if c.Colour == colour {
			members = append(members, member{c.Key, r})
		}
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank)) })
	out := []int{}
	for _, m := range members {
		out = append(out, list[m.rank])
	}
	return out
}

func checkSplit(t *testing.T, list []int, choices []Choice) {
	t.Helper()
	g := must(Of(list))
	parts, err := split(g, choices)
	if err != nil {
		t.Fatal(err)
	}
	total, last := 0, -1
	for _, p := range parts {
		if p.Label <= last {
			t.Fatalf("colour %d comes after %d", p.Label, last)
		}
		last = p.Label
		want := oracleSplit(list, choices, p.Label)
		agree(t, fmt.Sprintf("colour %d", p.Label), p.Group, want)
		agree(t, fmt.Sprintf("colour %d alone", p.Label), must(SplitOff(g, choices, p.Label)), want)
		total += p.Group.Size()
	}
	for _, c := range choices {
		if c.Colour == Undefined {
			total++
		}
	}
	if total != len(list) {
		t.Fatalf("%d of %d processes accounted for", total, len(list))
	}
	if len(must(SplitOff(g, choices, Undefined)).worlds) != 0 {
		t.Fatal("those who want no part have one")
	}
}

// 7.4.2: every choice of colour 0, 1 or none and key -1, 0 or 1 of four processes; equal keys keep
// the old order.
func TestSplitEveryChoice(t *testing.T) {
	var options []Choice
	for _, colour := range []int{0, 1, Undefined} {
		for key := -1; key <= 1; key++ {
			options = append(options, Choice{colour, key})
		}
	}
	everyList(4, 0, len(options)-1, func(picks []int) {
		choices := make([]Choice, len(picks))
		for i, p := range picks {
			choices[i] = options[p]
		}
		checkSplit(t, []int{6, 2, 9, 4}[:len(picks)], choices)
	})
}

func TestSplitLarge(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(7, seed))
		list := irregular(rng, 1+rng.IntN(500))
		choices := make([]Choice, len(list))
		for r := range choices {
			choices[r] = Choice{rng.IntN(8), rng.IntN(6) - 3}
			switch rng.IntN(9) {
			case 0:
				choices[r].Colour = Undefined
			case 1:
				choices[r] = Choice{math.MaxInt, math.MinInt + rng.IntN(2)*math.MaxInt}
			}
		}
		checkSplit(t, list, choices)
	}
}

func TestSplitRefuses(t *testing.T) {
	g := must(Range(0, 3))
	for _, bad := range []int{-1, -2, -5, math.MinInt} {
		choices := []Choice{{1, 0}, {bad, 0}, {2, 0}}
		_, err := split(g, choices)
		refused(t, err, ErrArg, "choices[1]", "is negative and not Undefined")
		_, err = SplitOff(g, choices, 2)
		refused(t, err, ErrArg, "choices[1]")
	}
	_, err := split(g, make([]Choice, 4))
	refused(t, err, ErrArg, "4 choices for 3 processes")
}

// Groups by site come in the order in which sites appear and keep the order of
// their members.
func TestBy(t *testing.T) {
	site := map[int]string{3: "paris", 8: "lyon", 1: "paris", 5: "lille", 0: "lyon"}
	calls := 0
	parts := By(must(Of([]int{3, 8, 1, 5, 0})), func(world int) string { calls++; return site[world] })
	want := []Part[string]{{"paris", must(Of([]int{3, 1}))}, {"lyon", must(Of([]int{8, 0}))}, {"lille", must(Of([]int{5}))}}
	if len(parts) != len(want) || calls != 5 {
		t.Fatalf("%v after %d calls", parts, calls)
	}
	for i, p := range parts {
		if p.Label != want[i].Label || Compare(p.Group, want[i].Group) != Identical {
			t.Errorf("part %d is %s %v, want %s %v", i, p.Label, p.Group, want[i].Label, want[i].Group)
		}
	}
	if parts := By(Empty, func(int) int { return 0 }); len(parts) != 0 {
		t.Errorf("nobody has parts: %v", parts)
	}
}

func ExampleBy() {
	world, _ := Range(0, 12)
	for _, node := range By(world, func(rank int) int { return rank / 4 }) {
		fmt.Println(node.Label, node.Group)
	}
	// Output:
	// 0 0-3 (4 processes)
	// 1 4-7 (4 processes)
	// 2 8-11 (4 processes)
}

// split returns a group for each colour, ascending by colour. Within one,
// members are ordered by key, and those with equal keys as in g. choices[r] is
// the choice of rank r; those of colour Undefined are in no group.
func split(g *Group, choices []Choice) ([]Part[int], error) {
	members, err := orderedMembers(g, choices, func(int) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("group: Split: %w", err)
	}
	var parts []Part[int]
	for len(members) > 0 {
		colour := choices[members[0]].Colour
		n := slices.IndexFunc(members, func(r int32) bool { return choices[r].Colour != colour })
		if n < 0 {
			n = len(members)
		}
		parts = append(parts, Part[int]{colour, g.pick(members[:n])})
		members = members[n:]
	}
	return parts, nil
}
