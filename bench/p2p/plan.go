package p2p

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
)

// A suite is what one command measures.
type suite struct {
	name      string // the command's, after "bench"
	subject   string // the implementation whose rows have ratios and targets
	scenarios []scenario
}

// A scenario says where the ranks are.
type scenario struct {
	name    string
	ranks   int
	apart   bool     // at two hosts, one each; else all at one
	oneCPU  bool     // all are bound to the same processor
	mode    string   // of the program in C: modeThreads, modeSingleton; "" is that of several ranks
	others  []string // implementations that take part beside the subject; nil: PeerNames
	against string   // what the subject is compared with; "", or if that does not take part: the better of the others
	figures []figure
	goals   []goal
}

// has reports whether an implementation takes part in a scenario.
func (t *suite) has(s *scenario, implementation string) bool {
	others := s.others
	if others == nil {
		others = PeerNames()
	}
	return implementation == t.subject || slices.Contains(others, implementation)
}

// The modes of the program in C.
const (
	modeThreads   = "threads"   // one rank whose threads call MPI at the same time
	modeSingleton = "singleton" // one rank without a launcher; it is started for each measurement
)

// A kind is the quantity that a figure measures.
type kind string

const (
	halfRoundTrip  kind = "half_round_trip" // of two ranks, in us
	bandwidth      kind = "bandwidth"       // from one rank to another, window messages at a time, in GB/s
	messageRate    kind = "message_rate"    // likewise, in million/s
	ringHop        kind = "ring_hop"        // of a message that goes round all ranks, in us
	barrier        kind = "barrier"         // of all ranks, in us
	afterComputing kind = "round_trip_after_computing"
	threadHop      kind = "thread_hop" // half a round trip of two threads of one rank, in us
	initTime       kind = "init_time"  // from the start of a program until MPI_Init is over, in ms
	initMemory     kind = "init_memory"
)

// kinds has for each kind the order that measures it (rank.go), and its unit.
var kinds = map[kind]struct{ order, unit string }{
	halfRoundTrip:  {orderTrips, "us"},
	bandwidth:      {orderStream, "GB/s"},
	messageRate:    {orderStream, "M/s"},
	ringHop:        {orderRing, "us"},
	barrier:        {orderBarrier, "us"},
	afterComputing: {orderGaps, "us"},
	threadHop:      {orderThreads, "us"},
	initTime:       {orderInit, "ms"},
	initMemory:     {orderMemory, "MB"},
}

// computing is how long ranks compute before each round trip of afterComputing.
const computing = time.Millisecond

// window is the number of messages in flight at once for bandwidth and rate: as in the OSU
// benchmarks, sender and receiver start that many and wait for all, and a byte comes back.
const window = 64

// A figure is something to measure with every implementation.
type figure struct {
	kind kind
	size int // bytes of a message
}

// key returns the string that Options.Only is matched against.
func key(s *scenario, f figure, implementation string) string {
	return fmt.Sprintf("%s/%s/%d/%s", s.name, f.kind, f.size, implementation)
}

// order returns the order for rank 0, in the language of rank.go.
func (f figure) order(count int) string {
	return fmt.Sprintf("%s %d %d", kinds[f.kind].order, f.size, count)
}

// value converts the answer to an order to the figure's unit: ns, and of memory KiB.
func (f figure) value(s *scenario, answer float64) float64 {
	switch f.kind {
	case halfRoundTrip, threadHop:
		return answer / 2e3
	case bandwidth:
		return window * float64(f.size) / answer
	case messageRate:
		return window / answer * 1e3
	case ringHop:
		return answer / 1e3 / float64(s.ranks)
	case initTime:
		return answer / 1e6
	case initMemory:
		return answer * 1024 / 1e6
	default:
		return answer / 1e3
	}
}

func (f figure) unit() string { return kinds[f.kind].unit }

// moreIsBetter reports whether a larger value is better.
func (f figure) moreIsBetter() bool { return f.kind == bandwidth || f.kind == messageRate }

// payload returns the minimum number of bytes that an order of count sends between the ranks.
func (f figure) payload(count int) uint64 {
	each := uint64(f.size)
	switch f.kind {
	case halfRoundTrip, afterComputing:
		each *= 2
	case bandwidth, messageRate:
		each *= window
	}
	return each * uint64(count)
}

// maxCount is the maximum number of messages, or windows of them, of an order.
const maxCount = 1 << 20

// between returns the time that ranks take for each of f beside what is measured.
func (f figure) between() time.Duration {
	if f.kind == afterComputing {
		return computing
	}
	return 0
}

// countFor returns the count that takes about d if one takes ns.
func countFor(d time.Duration, ns float64) int {
	return int(min(max(1, float64(d)/max(ns, 1)), maxCount))
}

// A series is the result of one implementation, a value per round.
type series struct {
	values  []float64 // in the figure's unit
	cpus    []float64 // how many processors the ranks kept busy together
	version string    // of the implementation; empty for ours
}

// rows returns the rows of a figure; runs holds all participants, asked are those whose rows are
// requested.
func (t *suite) rows(s *scenario, f figure, runs map[string]*series, asked []string, congestion string) []bench.Row {
	var all []bench.Row
	for _, name := range asked {
		mine := runs[name]
		row := bench.Row{
			Bench: t.name, Figure: string(f.kind), Value: bench.Median(mine.values), Unit: f.unit(),
			Params: map[string]any{
				"scenario": s.name, "implementation": name, "size": f.size,
				"repeat": len(mine.values), "spread": bench.Round(bench.Spread(mine.values)),
				"cpus": bench.Round(bench.Median(mine.cpus)),
			},
		}
		if mine.version != "" {
			row.Params["version"] = mine.version
		}
		if s.apart {
			row.Params["congestion"] = congestion
		}
		if name == t.subject {
			all = append(all, subjectRows(row, s, f, runs)...)
		} else {
			all = append(all, row)
		}
	}
	return all
}

// subjectRows completes the row of a suite's subject, and adds those in which the same value is compared with ours for Go, or
// judged by itself.
func subjectRows(row bench.Row, s *scenario, f figure, runs map[string]*series) []bench.Row {
	compared := row
	if other := better(s, f, runs); other != "" {
		compared = beside(row, other, runs[other])
		g := s.goal(f, other)
		if g == nil && runs[nameOpenMPI] != nil && runs[nameMPICH] != nil {
			g = s.goal(f, theBetter)
		}
		compared = g.judge(compared, f)
	}
	all := []bench.Row{compared}
	if g := s.goal(f, nameOurs); g != nil && runs[nameOurs] != nil {
		also := g.judge(beside(row, nameOurs, runs[nameOurs]), f)
		also.Figure += "_beside_go"
		all = append(all, also)
	}
	if g := s.goal(f, nothing); g != nil {
		also := g.judge(row, f)
		also.Figure += "_absolute"
		all = append(all, also)
	}
	return all
}

// beside returns a row in which it is compared with another implementation.
func beside(row bench.Row, other string, theirs *series) bench.Row {
	row.Against, row.Ratio = other, row.Value/bench.Median(theirs.values)
	row.Params = maps.Clone(row.Params) // others have them, too
	row.Params["against_spread"] = bench.Round(bench.Spread(theirs.values))
	row.Params["against_cpus"] = bench.Round(bench.Median(theirs.cpus))
	return row
}

// better returns what the subject is compared with: what the scenario names, or else the better of the other MPIs.
func better(s *scenario, f figure, runs map[string]*series) string {
	if runs[s.against] != nil {
		return s.against
	}
	best := ""
	for _, name := range PeerNames() {
		r := runs[name]
		if r == nil {
			continue
		}
		if best == "" || (bench.Median(r.values) > bench.Median(runs[best].values)) == f.moreIsBetter() {
			best = name
		}
	}
	return best
}

// A goal is a target, a bound for the subject's figures of a kind: for the ratio to what it is compared with, or for the
// value. Where more is better it is a lower bound, else an upper one.
type goal struct {
	kind     kind
	from, to int    // bytes of a message
	against  string // an implementation; theBetter of the other MPIs, both of which must take part; or nothing
	bound    float64
}

const (
	theBetter = "the better"
	nothing   = ""
	most      = math.MaxInt // bytes: of any message
)

// goal returns the first goal for a figure that is compared with something; nil if there is none.
func (s *scenario) goal(f figure, against string) *goal {
	for i, g := range s.goals {
		if g.kind == f.kind && g.against == against && g.from <= f.size && f.size <= g.to {
			return &s.goals[i]
		}
	}
	return nil
}

// judge gives a row its target; a nil goal is none.
func (g *goal) judge(row bench.Row, f figure) bench.Row {
	switch {
	case g == nil:
		return row
	case f.moreIsBetter():
		return row.AtLeast(g.bound)
	default:
		return row.AtMost(g.bound)
	}
}
