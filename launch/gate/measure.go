package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/launch/nearby"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	maxMeasured  = 64               // nodes of one call
	measureTime  = 8 * time.Second  // for one call
	measurePings = 3                // for one node, of which the shortest counts
	measureRoom  = 16               // nodes at a time, of all calls
	measureKeep  = 5 * time.Minute  // for which a figure is good
	faultKeep    = 10 * time.Second // for which nothing is tried again
	maxDistances = 4096             // that are kept
)

// distances is how far other nodes are from this one, as far as somebody has asked.
// Nobody is pinged for two who ask at the same time, or soon after each other. Safe for
// concurrent use.
type distances struct {
	ping nearby.Ping
	room chan struct{} // one token for each node that is being measured

	mu    sync.Mutex
	known map[overlay.NodeID]*distance
}

// distance is how far one node is, or will be known to be.
type distance struct {
	ready chan struct{} // closed when the fields below are set
	rtt   time.Duration
	err   error
	until time.Time // when it is to be measured again
}

func newDistances(ping nearby.Ping) *distances {
	return &distances{ping: ping, room: make(chan struct{}, measureRoom), known: map[overlay.NodeID]*distance{}}
}

// measureAll answers Gate.Measure.
func (d *distances) measureAll(ctx context.Context, names []string) (*gatepb.MeasureResponse, error) {
	if len(names) > maxMeasured {
		return nil, status.Errorf(codes.InvalidArgument, "%d nodes are to be measured; at most %d at a time", len(names), maxMeasured)
	}
	nodes := make([]overlay.NodeID, len(names))
	for i, name := range names {
		var err error
		if nodes[i], err = overlay.ParseNodeID(name); err != nil {
			return nil, control.Status(err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, measureTime, errors.New("no answer in time"))
	defer cancel()
	r := &gatepb.MeasureResponse{Distances: make([]*gatepb.Distance, len(nodes))}
	var pings sync.WaitGroup
	for i, node := range nodes {
		pings.Go(func() {
			rtt, err := d.measure(ctx, node)
			m := &gatepb.Distance{Node: node.String(), LatencyNs: uint64(rtt)}
			if err != nil {
				m.Fault = fmt.Sprintf("%.300s", err.Error())
			}
			r.Distances[i] = m
		})
	}
	pings.Wait()
	return r, nil
}

// measure returns how far a node is, by what is known or by pings.
func (d *distances) measure(ctx context.Context, node overlay.NodeID) (time.Duration, error) {
	e, first := d.entry(node, time.Now())
	if first {
		rtt, err := d.pings(ctx, node)
		keep := measureKeep
		if err != nil {
			keep = faultKeep
		}
		d.mu.Lock()
		e.rtt, e.err, e.until = rtt, err, time.Now().Add(keep)
		d.mu.Unlock()
		close(e.ready)
		return rtt, err
	}
	select {
	case <-e.ready:
		return e.rtt, e.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// entry returns what is known of a node, and whether the caller is to find it out.
func (d *distances) entry(node overlay.NodeID, now time.Time) (e *distance, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	over := func(e *distance) bool { return !e.until.IsZero() && now.After(e.until) }
	if e = d.known[node]; e != nil && !over(e) {
		return e, false
	}
	if len(d.known) >= maxDistances { // what is over goes; without any, whatever comes
		for n, e := range d.known {
			if over(e) || len(d.known) >= maxDistances {
				delete(d.known, n)
			}
		}
	}
	e = &distance{ready: make(chan struct{})}
	d.known[node] = e
	return e, true
}

// pings measures a node.
func (d *distances) pings(ctx context.Context, node overlay.NodeID) (best time.Duration, err error) {
	select {
	case d.room <- struct{}{}:
		defer func() { <-d.room }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for range measurePings {
		rtt, err := d.ping(ctx, node)
		if err != nil {
			return 0, err
		}
		if best == 0 || rtt < best {
			best = rtt
		}
	}
	return best, nil
}
