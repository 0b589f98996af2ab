package allocate

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Pattern says who talks to whom in a job.
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

// Path is what was measured between two hosts.
type Path struct {
	RTT       time.Duration
	Bandwidth float64 // bytes a second; 0: not measured
}

// Network says what was measured between hosts.
type Network interface {
	// Path returns what was measured from a to b, which may be the same host; false
	// when nothing was. The answer must not change while a plan is made.
	Path(a, b overlay.NodeID) (Path, bool)
}

// What Auto takes for paths that nobody measured. Between sites it is the way through
// the submitter, which the round trip cannot be longer than by the triangle, were
// packets to take the shortest way.
var (
	unmeasuredHost      = Path{2 * time.Microsecond, 4e9}       // within a host
	unmeasuredSite      = Path{100 * time.Microsecond, 1e9 / 8} // between hosts of a site
	unmeasuredBandwidth = 1e8 / 8                               // between sites, bytes a second
	unmeasuredRTT       = 100 * time.Millisecond                // between sites, when not even the way to the submitter is known
)

// estimate is the path to use for a and b when nothing was measured.
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

// messageTime is how long one message of the job takes from a to b, in seconds: half a
// round trip and the bytes at the path's rate.
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

// Cost returns the seconds that all messages of one round of the job's pattern take,
// added up: every pair of ranks that talk sends one message each way. With copies, the
// first copy of a rank sends to every copy of the other. It is the figure that Auto
// makes small; it compares plans and foretells no run time.
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

// pairs calls yield for every two of n ranks that talk, the lower first.
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
