package allocate

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Pattern is the communication pattern of a job.
type Pattern int

// The patterns that a job can declare.
const (
	Dense     Pattern = iota // every rank with every other, as in an alltoall
	Neighbour                // rank i with i-1 and i+1, as in a halo exchange
	Master                   // rank 0 with every other
)

var patterns = [...]string{Dense: "dense", Neighbour: "neighbour", Master: "master"}

// ParsePattern reads a pattern's name.
func ParsePattern(name string) (Pattern, error) {
	for p, known := range patterns {
		if name == known {
			return Pattern(p), nil
		}
	}
	return 0, fmt.Errorf("no communication pattern %.40q: want one of %q", name, patterns)
}

// String returns the pattern's name.
func (p Pattern) String() string {
	if p.check() != nil {
		return fmt.Sprintf("pattern %d", int(p))
	}
	return patterns[p]
}

// MarshalText implements encoding.TextMarshaler.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.String()), p.check() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Pattern) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePattern(string(text))
	return err
}

func (p Pattern) check() error {
	if p < 0 || int(p) >= len(patterns) {
		return fmt.Errorf("no communication pattern of number %d: there are %d", int(p), len(patterns))
	}
	return nil
}

// Path is a measurement between two hosts.
type Path struct {
	RTT       time.Duration
	Bandwidth float64 // bytes a second; 0: not measured
}

// Network returns measurements between hosts.
type Network interface {
	// Path returns the measurement from a to b, which may be the same host; false if there is none.
	// The result must not change while a plan is made.
	Path(a, b overlay.NodeID) (Path, bool)
}

// Auto's defaults for paths that were not measured. Between sites the default is the path through
// the submitter: by the triangle inequality the round trip is not longer, if packets take the
// shortest path.
var (
	unmeasuredHost      = Path{2 * time.Microsecond, 4e9}       // within a host
	unmeasuredSite      = Path{100 * time.Microsecond, 1e9 / 8} // between hosts of a site
	unmeasuredBandwidth = 1e8 / 8                               // between sites, bytes a second
	unmeasuredRTT       = 100 * time.Millisecond                // between sites, when the path to the submitter is unknown, too
)

// estimate returns the path to assume between a and b without a measurement.
func estimate(a, b Host) Path {
	switch {
	case a.Node == b.Node:
		return unmeasuredHost
	case a.Node.Site == b.Node.Site:
		return unmeasuredSite
	case a.Latency == UnknownLatency || b.Latency == UnknownLatency:
		return Path{unmeasuredRTT, unmeasuredBandwidth}
	}
	return Path{a.Latency + b.Latency, unmeasuredBandwidth}
}

// messageTime returns how long one message of the job takes from a to b, in seconds: half a round
// trip plus the bytes at the path's rate.
func messageTime(network Network, message int, a, b Host) float64 {
	path, known := Path{}, false
	if network != nil {
		path, known = network.Path(a.Node, b.Node)
	}
	if !known {
		path = estimate(a, b)
	}
	if path.Bandwidth <= 0 {
		path.Bandwidth = estimate(a, b).Bandwidth
	}
	return path.RTT.Seconds()/2 + float64(message)/path.Bandwidth
}

// Cost returns the sum of the times, in seconds, of all messages of one round of the job's pattern:
// every pair of communicating ranks sends one message each way. With copies, the c-th copies of all
// ranks do so among themselves; all copies send to a rank 0 that is pinned, and it to them. Auto
// minimises it; it compares plans and does not predict a run time.
func (p *Plan) Cost(network Network) float64 {
	where := p.hostOfProcess()
	total := 0.0
	for c := range p.Job.Copies {
		send := func(from, to int) {
			total += messageTime(network, p.Job.Message, p.hostOf(where, from, c), p.hostOf(where, to, c))
		}
		p.Job.Pattern.pairs(p.Job.Ranks, func(a, b int) { send(a, b); send(b, a) })
	}
	return total
}

// Together returns the number of pairs of copies of one rank that are at one site: the end of that
// site ends both.
func (p *Plan) Together() (n int) {
	where := p.hostOfProcess()
	for q, h := range where {
		for c := q.Copy + 1; c < p.Job.Copies; c++ {
			if other, exists := where[Process{q.Rank, c}]; exists && p.Hosts[h].Node.Site == p.Hosts[other].Node.Site {
				n++
			}
		}
	}
	return n
}

// hostOfProcess returns the index in Hosts of each process.
func (p *Plan) hostOfProcess() map[Process]int {
	where := map[Process]int{}
	for i, h := range p.Hosts {
		for _, q := range h.Processes {
			where[q] = i
		}
	}
	return where
}

// hostOf returns the host of a copy of a rank, or of the one copy that a pinned rank 0 has.
func (p *Plan) hostOf(where map[Process]int, rank, copy int) Host {
	at, exists := where[Process{rank, copy}]
	if !exists {
		at = where[Process{rank, 0}]
	}
	return p.Hosts[at].Host
}

// pairs calls yield for every two of n ranks that communicate, the lower first.
func (p Pattern) pairs(n int, yield func(a, b int)) {
	for a := range n {
		switch {
		case p == Neighbour && a+1 < n:
			yield(a, a+1)
		case p == Dense, p == Master && a == 0:
			for b := a + 1; b < n; b++ {
				yield(a, b)
			}
		}
	}
}
