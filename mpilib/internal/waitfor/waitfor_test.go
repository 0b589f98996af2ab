package waitfor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// parse reads one rank per word: "0:1" waits for rank 1, "0:1|2" for either of two, "0:1,2" has two
// waiting goroutines, "0:F" is in Finalize, "0:c3" is in collective call 3 of all six ranks, and
// "0:1#4" has begun 4 of them.
func parse(t *testing.T, text string) map[int]Report {
	t.Helper()
	reports := map[int]Report{}
	for _, word := range strings.Fields(text) {
		name, rest, _ := strings.Cut(word, ":")
		var r Report
		fmt.Sscan(name, &r.Rank)
		rest, calls, counted := strings.Cut(rest, "#")
		if counted {
			var n int32
			fmt.Sscan(calls, &n)
			r.Calls = map[uint32]int32{9: n}
		}
		for _, wait := range strings.Split(rest, ",") {
			w := Wait{Text: "waits", Site: "f.go:" + name, Seconds: 6}
			switch {
			case wait == "F":
				r.Finalizing = true
			case wait[0] == 'c':
				w.Collective, w.Context, w.Peers = true, 9, []int{0, 1, 2, 3, 4, 5}
				fmt.Sscan(wait[1:], &w.Call)
				r.Calls = map[uint32]int32{9: w.Call + 1}
			default:
				for _, p := range strings.Split(wait, "|") {
					var peer int
					if _, err := fmt.Sscan(p, &peer); err != nil {
						t.Fatal(word, err)
					}
					w.Peers = append(w.Peers, peer)
				}
			}
			r.Waits = append(r.Waits, w)
		}
		reports[r.Rank] = r
	}
	return reports
}

func TestDeadlocked(t *testing.T) {
	for _, tc := range []struct {
		name, reports string
		want, cycle   []int
	}{
		{"nobody waits", "", nil, nil},
		{"for one who computes", "0:1", nil, nil},
		{"two for each other", "0:1 1:0", []int{0, 1}, []int{0, 1}},
		{"for itself", "3:3", []int{3}, []int{3}},
		{"a ring", "2:0 0:1 1:2", []int{0, 1, 2}, []int{0, 1, 2}},
		{"a chain into a pair", "0:2 2:4 4:2", []int{0, 2, 4}, []int{2, 4}},
		{"a chain to one who computes", "0:1 1:2 2:3", nil, nil},
		{"any, one of whom computes", "0:1|2 1:0", nil, nil},
		{"any, none of whom can", "0:1|2 1:0 2:0", []int{0, 1, 2}, []int{0, 1}},
		{"another goroutine can go on", "0:1,5 1:0", nil, nil},
		{"two goroutines, neither can", "0:1,1 1:0", []int{0, 1}, []int{0, 1}},
		{"for one in Finalize", "0:1 1:F", []int{0, 1}, []int{0, 1}},
		{"all in Finalize", "0:F 1:F", nil, nil},
		{"Finalize while one computes", "0:F", nil, nil},
		{"a collective that all are in", "0:c0 1:c0 2:c0 3:c0 4:c0 5:c0", nil, nil},
		{"a collective that one computes before", "0:c0 1:c0", nil, nil},
		{"a collective one never comes to", "0:c0 1:c0 2:0", []int{0, 1, 2}, []int{0, 2}},
		{"a collective that one has left", "0:c3 1:0#4", nil, nil},
		{"one collective behind another", "0:c3 1:c4", nil, nil}, // rank 0 has all it needs
	} {
		reports := parse(t, tc.reports)
		got := Deadlocked(reports)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
			continue
		}
		if got == nil {
			continue
		}
		if cycle := Cycle(reports, got); !slices.Equal(cycle, tc.cycle) {
			t.Errorf("%s: cycle %v, want %v", tc.name, cycle, tc.cycle)
		}
	}
}

func TestDescribe(t *testing.T) {
	for reports, want := range map[string]string{
		"0:1 1:0": "  rank 0 waits for rank 1 waits for rank 0\n  rank 0: waits at f.go:0, for 6 s\n  rank 1: waits at f.go:1, for 6 s\n",
		"0:1 1:F": "  rank 0 waits for rank 1, which is in Finalize\n  rank 0: waits at f.go:0, for 6 s\n  rank 1: waits at f.go:1, for 6 s\n",
	} {
		r := parse(t, reports)
		if got := Describe(r, Deadlocked(r)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", reports, got, want)
		}
	}
	var all []string
	for r := range 100 {
		all = append(all, fmt.Sprintf("%d:%d", r, (r+1)%100))
	}
	r := parse(t, strings.Join(all, " "))
	if got := Describe(r, Deadlocked(r)); !strings.HasSuffix(got, "  and 36 more\n") {
		t.Errorf("%s", got)
	}
}
