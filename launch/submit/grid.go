package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/latency"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Grid gives access to the node services of all nodes, through the local node's helper. Safe for
// concurrent use.
type Grid struct {
	conn  grpc.ClientConnInterface
	close func() error
	reach func(context.Context) error // waits until the helper answers; nil: it has answered

	// Stale, if not nil, is called by Jobs and Kill with the reason why other sites' hosts may be missing.
	Stale func(why string)

	// Slow, if not nil, is called when Jobs and Kill have waited for some hosts for a while, or List for
	// its list: then without hosts.
	Slow func(waitingFor []overlay.NodeID)
}

// Dial returns the grid behind the helper that listens on a socket. It connects at the first use.
func Dial(helper string) (*Grid, error) {
	conn, err := nodeservice.Connect(helper)
	if err != nil {
		return nil, err
	}
	return &Grid{conn: conn, close: conn.Close, reach: func(ctx context.Context) error { return reach(ctx, conn, helper) }}, nil
}

// NewGrid returns a grid that makes calls through conn, which the caller keeps and closes.
func NewGrid(conn grpc.ClientConnInterface) *Grid {
	return &Grid{conn: conn, close: func() error { return nil }}
}

// Close closes the connection to the helper.
func (g *Grid) Close() error { return g.close() }

// Client returns the client of node services; contexts of nodeservice.At select the node.
func (g *Grid) Client() nodepb.NodeServiceClient { return nodepb.NewNodeServiceClient(g.conn) }

// Host is a host of the grid, with its distance.
type Host struct {
	allocate.Host
	State  string        // up, away or unknown, as nodepb.Host has it
	Silent time.Duration // how long it has not been up
	Fault  error         // why it did not answer; nil if it did or was not asked
	silent bool          // this node's helper asks it in the background, and has no answer
	listed int           // its place in the helper's list, which has the nearest first
}

// Hosts lists the hosts of the grid by name, including those that accept no jobs. The latencies are
// those that the helper has measured. stale says why other sites' hosts may be missing; empty: none is.
func (g *Grid) Hosts(ctx context.Context) (all []Host, stale string, err error) {
	list, err := g.List(ctx)
	if err != nil {
		return nil, "", err
	}
	hosts := make([]Host, 0, len(list.Hosts))
	for _, h := range list.Hosts {
		node, err := overlay.ParseNodeID(h.Node)
		if err != nil {
			return nil, "", fmt.Errorf("list of hosts: %w", err)
		}
		hosts = append(hosts, Host{listed: len(hosts),
			Host: allocate.Host{Node: node, Latency: allocate.UnknownLatency, Processes: int(h.Processes), Jobs: int(h.Jobs),
				Memory: int64(min(h.Memory, 1<<62)), CPU: int(h.Cpu), Power: float64(h.Power)},
			State: h.State, Silent: time.Duration(h.SilentMs) * time.Millisecond, silent: h.Unanswered,
		})
		if h.LatencyNs > 0 {
			hosts[len(hosts)-1].Latency = time.Duration(h.LatencyNs)
		}
	}
	slices.SortFunc(hosts, func(a, b Host) int { return cmp.Compare(a.Node.Key(), b.Node.Key()) })
	return hosts, list.Stale, nil
}

// stateAway is the state of a host whose helper is unreachable.
const stateAway = "away"

// How hosts are probed before a submission.
const (
	probes      = 3
	probesAtOne = 64                     // hosts at a time
	probeTime   = 5 * time.Second        // for all of them
	probesQuiet = 500 * time.Millisecond // without another answer, if those that have answered are enough
)

var errUnanswered = errors.New("it does not answer this node's helper")

// Measure measures the unknown latencies of hosts that are up, for a bounded time, and returns the hosts
// nearest first; those without a measurement come last, with the reason. It waits for none that the helper
// has asked in vain, and not long for others once those that have answered are enough; enough may be nil. The order is that of package latency,
// seeded with the helper's order: equally distant sites keep their places and hosts of a site are
// in the order of their names, whatever the noise, so that a job that is started twice runs on the
// same hosts.
func (g *Grid) Measure(ctx context.Context, hosts []Host, enough func(answered []Host) bool) []Host {
	slices.SortFunc(hosts, func(a, b Host) int { return cmp.Compare(a.listed, b.listed) })
	table := latency.NewTable(latency.Config{Probes: probes})
	nodes := make([]overlay.NodeID, len(hosts))
	at := make(map[overlay.NodeID]int, len(hosts))
	for i, h := range hosts {
		nodes[i], at[h.Node] = h.Node, i
	}
	table.Adopt(nodes)
	times := make([][]time.Duration, len(hosts))
	var answered []Host
	for i, h := range hosts {
		if h.Latency != allocate.UnknownLatency {
			times[i] = []time.Duration{h.Latency}
			answered = append(answered, h)
		} else if h.silent {
			hosts[i].Fault = errUnanswered
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, probeTime, errors.New("no answer in time"))
	defer cancel()
	quiet := time.AfterFunc(probeTime, cancel)
	defer quiet.Stop()
	note := func(more ...Host) {
		if answered = append(answered, more...); enough != nil && enough(answered) {
			quiet.Reset(probesQuiet)
		}
	}
	note()
	asks := func(h Host) bool {
		return h.Latency == allocate.UnknownLatency && !h.silent && h.State != stateAway && h.Jobs > 0
	}
	faults := askHosts(ctx, hosts, asks, func(ctx context.Context, i int) (err error) {
		times[i], err = g.ping(ctx, hosts[i].Node)
		return err
	}, func(i int) { note(hosts[i]) })
	for i, err := range faults {
		if err != nil {
			hosts[i].Fault = err
		}
	}
	now := time.Now()
	for i, node := range nodes {
		for _, rtt := range times[i] {
			table.Probe(node, rtt, now)
		}
	}
	ordered := make([]Host, 0, len(hosts))
	for _, e := range table.Order() {
		h := hosts[at[e.Node]]
		if e.RTT > 0 {
			h.Latency = e.RTT
		}
		ordered = append(ordered, h)
	}
	return ordered
}

// ping measures a node. The first call may have to set up the path and is not measured.
func (g *Grid) ping(ctx context.Context, node overlay.NodeID) ([]time.Duration, error) {
	ctx = nodeservice.At(ctx, node)
	var times []time.Duration
	for i := range probes + 1 {
		start := time.Now()
		if _, err := g.Client().Ping(ctx, &nodepb.PingRequest{}); err != nil {
			return nil, plain(err)
		}
		if i > 0 {
			times = append(times, time.Since(start))
		}
	}
	return times, nil
}

// Reservations returns how many reservations of jobs each of the nodes has, held or running. Nodes
// that do not answer before ctx ends are not in it.
func (g *Grid) Reservations(ctx context.Context, nodes []overlay.NodeID) map[overlay.NodeID]int {
	hosts, counts := make([]Host, len(nodes)), make([]int, len(nodes))
	for i, n := range nodes {
		hosts[i].Node = n
	}
	silent := g.each(ctx, hosts, func(ctx context.Context, i int) error {
		r, err := g.Client().Ping(ctx, &nodepb.PingRequest{})
		counts[i] = int(r.GetJobs())
		return err
	})
	held := make(map[overlay.NodeID]int, len(nodes))
	for i, n := range nodes {
		if silent[n] == nil {
			held[n] = counts[i]
		}
	}
	return held
}

// plain returns a call's error without gRPC's wrapping.
func plain(err error) error {
	if s, ok := status.FromError(err); ok && err != nil {
		return &callError{s}
	}
	return err
}

// callError is an error returned by a call.
type callError struct{ status *status.Status }

func (e *callError) Error() string              { return e.status.Message() }
func (e *callError) GRPCStatus() *status.Status { return e.status }
