// Package waitfor finds deadlocks: from the waits that ranks report, it determines the ranks that
// can never proceed, whatever the others do. Messages, clocks and communicators are only numbers
// and texts to it, and it has no state.
//
// A rank that has not reported is live: it computes, or its messages move. A wait for any of
// several ranks can end while one of them is live; a wait inside a collective call can end while
// every rank that has not entered the call yet is live. A rank is live if any of its waits can end,
// since another of its goroutines may do what a third rank waits for. The ranks that remain when no
// further rank becomes live are deadlocked.
package waitfor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Wait is the wait of one goroutine.
type Wait struct {
	// Peers are the ranks any of which can end the wait; for a collective call, all members of its
	// communicator.
	Peers []int `json:"peers"`

	Collective bool   `json:"collective,omitempty"` // it waits for the others to enter the call
	Context    uint32 `json:"context,omitempty"`    // of the communicator
	Call       int32  `json:"call,omitempty"`       // which of its calls, counted from 0

	Text    string  `json:"text"` // "Recv: receive from rank 1 of world, tag 7"
	Site    string  `json:"site"` // "ring/main.go:17"
	Seconds float64 `json:"seconds"`
}

// A Report is what a rank reports after it has made no progress for a while.
type Report struct {
	Rank       int              `json:"rank"`
	Node       string           `json:"node,omitempty"`
	Finalizing bool             `json:"finalizing,omitempty"` // it will not serve other ranks again
	Waits      []Wait           `json:"waits"`
	Calls      map[uint32]int32 `json:"calls,omitempty"` // how many collective calls it has begun, by context of the communicator
}

// Deadlocked returns the ranks that can never proceed, in order; those in Finalize are among them
// if others wait for them. It returns nil if there are none.
func Deadlocked(reports map[int]Report) []int {
	stuck := maps.Clone(reports)
	for again := true; again; {
		again = false
		for rank, r := range stuck {
			if !r.Finalizing && slices.ContainsFunc(r.Waits, func(w Wait) bool { return w.canEnd(rank, stuck) }) {
				delete(stuck, rank)
				again = true
			}
		}
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(stuck)), func(r Report) bool { return !r.Finalizing }) {
		return nil
	}
	return slices.Sorted(maps.Keys(stuck))
}

// canEnd reports whether a rank that is not stuck can end the wait of rank.
func (w Wait) canEnd(rank int, stuck map[int]Report) bool {
	if !w.Collective {
		return slices.ContainsFunc(w.Peers, func(p int) bool { _, is := stuck[p]; return !is })
	}
	return !slices.ContainsFunc(w.Peers, func(p int) bool { return p != rank && w.hasNotEntered(p, stuck) })
}

// hasNotEntered reports whether a stuck rank has not entered the collective call.
func (w Wait) hasNotEntered(peer int, stuck map[int]Report) bool {
	r, is := stuck[peer]
	return is && r.Calls[w.Context] <= w.Call
}

// next returns a stuck rank that the wait is for.
func (w Wait) next(rank int, stuck map[int]Report) (peer int, ok bool) {
	for _, p := range w.Peers {
		_, is := stuck[p]
		if w.Collective && p != rank && w.hasNotEntered(p, stuck) || !w.Collective && is {
			return p, true
		}
	}
	return 0, false
}

// Cycle returns ranks of which each waits for the next and the last for the first, beginning with
// the lowest. If they wait for one in Finalize the list ends there.
func Cycle(reports map[int]Report, deadlocked []int) []int {
	stuck := map[int]Report{}
	for _, r := range deadlocked {
		stuck[r] = reports[r]
	}
	var path []int
	at := deadlocked[slices.IndexFunc(deadlocked, func(r int) bool { return !stuck[r].Finalizing })]
	for {
		if i := slices.Index(path, at); i >= 0 {
			path = path[i:]
			low := slices.Index(path, slices.Min(path))
			return append(path[low:len(path):len(path)], path[:low]...)
		}
		path = append(path, at)
		if stuck[at].Finalizing || len(stuck[at].Waits) == 0 {
			return path
		}
		next, ok := stuck[at].Waits[0].next(at, stuck)
		if !ok {
			return path
		}
		at = next
	}
}

const maxLines = 64 // of a description

// Describe lists which rank waits for which, in lines of text.
func Describe(reports map[int]Report, deadlocked []int) string {
	var out strings.Builder
	cycle := Cycle(reports, deadlocked)
	words := make([]string, len(cycle))
	for i, r := range cycle {
		words[i] = fmt.Sprintf("rank %d", r)
	}
	if last := reports[cycle[len(cycle)-1]]; last.Finalizing {
		fmt.Fprintf(&out, "  %s, which is in Finalize\n", strings.Join(words, " waits for "))
	} else {
		fmt.Fprintf(&out, "  %s waits for rank %d\n", strings.Join(words, " waits for "), cycle[0])
	}
	lines := 0
	for _, rank := range deadlocked {
		r := reports[rank]
		for _, w := range r.Waits {
			if lines++; lines > maxLines {
				continue
			}
			where := ""
			if r.Node != "" {
				where = " on " + r.Node
			}
			fmt.Fprintf(&out, "  rank %d%s: %s, for %.0f s\n", rank, where, w.describe(), w.Seconds)
		}
	}
	if lines > maxLines {
		fmt.Fprintf(&out, "  and %d more\n", lines-maxLines)
	}
	return out.String()
}

func (w Wait) describe() string {
	if w.Site == "" {
		return w.Text
	}
	return w.Text + " at " + w.Site
}
