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
// every pair of communicating ranks sends one message each way. With copies, the first copy of a
// rank sends to every copy of the other. Auto minimises it; it compares plans and does not predict
// a run time.
func (p *Plan) Cost(network Network) float64 {
	hosts := make([]Host, len(p.Hosts))
	where := map[Process]int{}
	for i, h := range p.Hosts {
		hosts[i] = h.Host
		for _, q := range h.Processes {
			where[q] = i
		}
	}
	total := 0.0
	send := func(from, to int) {
		for c := range p.Job.Copies {
			if at, exists := where[Process{to, c}]; exists {
				total += messageTime(network, p.Job.Message, hosts[where[Process{from, 0}]], hosts[at])
			}
		}
	}
	p.Job.Pattern.pairs(p.Job.Ranks, func(a, b int) { send(a, b); send(b, a) })
	return total
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
