package collectives

import (
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// Model is the cost of messages between ranks, from which algorithms are chosen. All ranks of a
// communicator must have the same one. It must not be changed once it is in use.
type Model struct {
	IntraNode schedule.Path // between ranks of a node
	IntraSite schedule.Path // between nodes of a site
	InterSite schedule.Path // between sites for which Between has no path

	// Between holds the paths from one site to another. Sites are numbered in the order of their
	// lowest ranks. It may be nil.
	Between [][]schedule.Path

	Compute float64 // bytes per second that a rank copies or reduces

	// Learned holds corrections: the factor by which to multiply a prediction, by LearnedKey. The
	// entry for an algorithm's name without a number of flits applies to any number of flits
	// without an entry.
	Learned map[string]float64
}

// window is the number of bytes that a connection between sites is assumed to have in flight at
// first: twice what a new or idle one may have (ten segments, RFC 6928), because a connection in
// use has more. Longer messages are worth sharing among several ranks' connections: with 136 Mbit/s
// and 8 ms a broadcast of 64 KiB takes 8.2 ms over four and 8 to 13 ms over one.
const window = 32 << 10

// DefaultModel is for communicators of which nothing has been measured: nodes of a typical cluster,
// and sites 10 ms apart with 1 Gb/s.
func DefaultModel() *Model {
	return &Model{
		IntraNode: schedule.Path{Latency: 500 * time.Nanosecond, Rate: 3e9, Each: 300 * time.Nanosecond},
		IntraSite: schedule.Path{Latency: 15 * time.Microsecond, Rate: 1.1e9, Each: 4 * time.Microsecond},
		InterSite: schedule.Path{Latency: 10 * time.Millisecond, Rate: 125e6, Each: 8 * time.Microsecond, Window: window},
		Compute:   3e9,
	}
}

// LearnedKey returns the key of the correction for an algorithm of a collective with a length, as
// in Shape.Bytes.
func LearnedKey(collective operation.Operation, algorithm string, bytes int) string {
	return fmt.Sprintf("%v %s %d", collective, algorithm, class(bytes))
}

func (m *Model) corrected(a Algorithm, bytes int, t time.Duration) time.Duration {
	base, _, _ := strings.Cut(a.Name, ":")
	for _, name := range [...]string{a.Name, base} {
		if by, ok := m.Learned[LearnedKey(a.Collective, name, bytes)]; ok {
			return time.Duration(float64(t) * by)
		}
	}
	return t
}

// grid returns the grid for a simulation.
func (m *Model) grid(l Layout) *schedule.Grid {
	g := &schedule.Grid{IntraNode: m.IntraNode, IntraSite: m.IntraSite, InterSite: m.InterSite, Between: m.Between, Compute: m.Compute}
	g.Site = numbered(l[:1])
	if len(l) > 1 {
		g.Node = numbered(l)
	}
	return g
}

// numbered numbers the places that the levels of a layout distinguish, in the order of their lowest
// ranks, and returns each rank's number.
func numbered(l Layout) []int {
	at := make([]int, len(l[0]))
	known := map[string]int{}
	for r := range at {
		var key []byte
		for _, level := range l {
			key = fmt.Appendf(key, "%d.", level[r])
		}
		k, ok := known[string(key)]
		if !ok {
			k = len(known)
			known[string(key)] = k
		}
		at[r] = k
	}
	return at
}
