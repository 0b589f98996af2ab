// Package nearby measures the distances to other nodes while callers want them, and keeps the
// results (package latency has the arithmetic).
//
// Its Ping function measures one node; the package knows nothing of connections. It does not ping
// without demand: pings among all nodes of a grid would be quadratic, so a node without callers
// sends none. State is the table of latencies, in memory.
package nearby

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/launch/latency"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	pingTime = 10 * time.Second // for one ping, setup of the path included
	tick     = time.Second      // between checks for due nodes, while nothing else happens
	interest = 10 * time.Minute // how long nodes are pinged after the last call
)

// Ping measures one round trip to a node. It may have to set up a path first, which does not count.
// It returns when ctx ends.
type Ping func(ctx context.Context, node overlay.NodeID) (time.Duration, error)

// Nearby is the set of known distances to other nodes. Make it with New, run it with Serve; its
// other methods are safe for concurrent use.
type Nearby struct {
	ping   Ping
	log    *slog.Logger
	room   chan struct{} // one token for each ping in flight
	wakeup chan struct{} // holds a value when Serve must check again

	mu     sync.Mutex // guards the fields below
	table  *latency.Table
	wanted time.Time // time of the last call
}

// New returns a Nearby without nodes. At most atOnce pings are in flight.
func New(ping Ping, atOnce int, cfg latency.Config, log *slog.Logger) *Nearby {
	return &Nearby{
		ping: ping, log: log, table: latency.NewTable(cfg),
		room: make(chan struct{}, atOnce), wakeup: make(chan struct{}, 1),
	}
}

// Order returns the given nodes, nearest first and those of unknown latency last, and has them
// measured until ten minutes after the last call. Nodes that the latest call does not name are
// dropped.
func (n *Nearby) Order(nodes []overlay.NodeID) []latency.Entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.table.Keep(nodes)
	n.wanted = time.Now()
	n.wake()
	return n.table.Order()
}

func (n *Nearby) wake() {
	select {
	case n.wakeup <- struct{}{}:
	default:
	}
}

// Serve measures until ctx ends. It returns when no ping is in flight.
func (n *Nearby) Serve(ctx context.Context) {
	var pings sync.WaitGroup
	defer pings.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		due, interested := n.dueNodes()
		for _, node := range due {
			n.room <- struct{}{} // there is room for all due nodes
			pings.Go(func() {
				defer func() { <-n.room; n.wake() }()
				n.measure(ctx, node)
			})
		}
		var later <-chan time.Time
		if interested {
			timer.Reset(tick)
			later = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-n.wakeup:
		case <-later:
		}
	}
}

// dueNodes returns the nodes to ping now, no more than there is room for.
func (n *Nearby) dueNodes() (due []overlay.NodeID, interested bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if now.Sub(n.wanted) >= interest {
		return nil, false
	}
	return n.table.Due(now, cap(n.room)-len(n.room)), true
}

func (n *Nearby) measure(ctx context.Context, node overlay.NodeID) {
	pingCtx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	rtt, err := n.ping(pingCtx, node)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.table.Probe(node, rtt, time.Now())
		return
	}
	n.table.Failed(node, time.Now())
	if ctx.Err() == nil {
		n.log.Debug("a node does not answer pings", "node", node.String(), "error", err)
	}
}
