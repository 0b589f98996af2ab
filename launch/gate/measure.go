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
	measureKeep  = 5 * time.Minute  // for which a latency is good
	carryRoom    = 1                // nodes at a time whose bandwidth is measured: two would measure each other
	carryKeep    = 30 * time.Minute // for which a bandwidth is good
	faultKeep    = 10 * time.Second // for which nothing is tried again
	maxDistances = 4096             // that are kept, of each
)

// distances is how far other nodes are from this one and what the way there carries, as
// far as somebody has asked. Safe for concurrent use.
type distances struct {
	latency   *figures[time.Duration] // round trips
	bandwidth *figures[float64]       // bytes a second
}

func newDistances(ping nearby.Ping, carry func(context.Context, overlay.NodeID) (float64, error)) *distances {
	best := func(ctx context.Context, node overlay.NodeID) (time.Duration, error) { return pings(ctx, ping, node) }
	return &distances{newFigures(best, measureRoom, measureKeep), newFigures(carry, carryRoom, carryKeep)}
}

// figures is what was measured of the ways to other nodes. Nothing is measured for two who
// ask at the same time, or soon after each other. Safe for concurrent use.
type figures[T any] struct {
	find func(context.Context, overlay.NodeID) (T, error)
	keep time.Duration // for which a figure is good
	room chan struct{} // one token for each node that is being measured

	mu    sync.Mutex
	known map[overlay.NodeID]*figure[T]
}

// figure is that of one node, or will be.
type figure[T any] struct {
	ready chan struct{} // closed when the fields below are set
	value T
	err   error
	until time.Time // when it is to be measured again
}

func newFigures[T any](find func(context.Context, overlay.NodeID) (T, error), room int, keep time.Duration) *figures[T] {
	return &figures[T]{find: find, keep: keep, room: make(chan struct{}, room), known: map[overlay.NodeID]*figure[T]{}}
}

// measureAll answers Gate.Measure. Latencies come first: they are longer while a way is
// full.
func (d *distances) measureAll(ctx context.Context, q *gatepb.MeasureRequest) (*gatepb.MeasureResponse, error) {
	names := q.Nodes
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
	each := func(measure func(overlay.NodeID, *gatepb.Distance) error) {
		var all sync.WaitGroup
		for i, m := range r.Distances {
			all.Go(func() {
				if err := measure(nodes[i], m); err != nil && m.Fault == "" {
					m.Fault = fmt.Sprintf("%.300s", err.Error())
				}
			})
		}
		all.Wait()
	}
	for i, node := range nodes {
		r.Distances[i] = &gatepb.Distance{Node: node.String()}
	}
	each(func(node overlay.NodeID, m *gatepb.Distance) error {
		rtt, err := d.latency.measure(ctx, node)
		m.LatencyNs = uint64(rtt)
		return err
	})
	if q.Bandwidth {
		each(func(node overlay.NodeID, m *gatepb.Distance) error {
			if m.LatencyNs == 0 {
				return nil // said already
			}
			rate, err := d.bandwidth.measure(ctx, node)
			m.Bandwidth = uint64(rate)
			return err
		})
	}
	return r, nil
}

// measure returns the figure of a node, as it is known or as it is found now.
func (f *figures[T]) measure(ctx context.Context, node overlay.NodeID) (T, error) {
	e, first := f.entry(node, time.Now())
	if first {
		value, err := f.turn(ctx, node)
		keep := f.keep
		switch {
		case errors.Is(err, errNoTurn):
			keep = 0
		case err != nil:
			keep = faultKeep
		}
		f.mu.Lock()
		e.value, e.err, e.until = value, err, time.Now().Add(keep)
		f.mu.Unlock()
		close(e.ready)
		return value, err
	}
	select {
	case <-e.ready:
		return e.value, e.err
	case <-ctx.Done():
		var unknown T
		return unknown, context.Cause(ctx)
	}
}

// turn finds a figure when there is room to.
func (f *figures[T]) turn(ctx context.Context, node overlay.NodeID) (T, error) {
	select {
	case f.room <- struct{}{}:
		defer func() { <-f.room }()
		return f.find(ctx, node)
	case <-ctx.Done():
		var unknown T
		return unknown, fmt.Errorf("%w: %w", errNoTurn, context.Cause(ctx))
	}
}

// entry returns what is known of a node, and whether the caller is to find it out.
func (f *figures[T]) entry(node overlay.NodeID, now time.Time) (e *figure[T], first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	over := func(e *figure[T]) bool { return !e.until.IsZero() && !now.Before(e.until) }
	if e = f.known[node]; e != nil && !over(e) {
		return e, false
	}
	if len(f.known) >= maxDistances { // what is over goes; without any, whatever comes
		for n, e := range f.known {
			if over(e) || len(f.known) >= maxDistances {
				delete(f.known, n)
			}
		}
	}
	e = &figure[T]{ready: make(chan struct{})}
	f.known[node] = e
	return e, true
}

// pings measures a node's latency.
func pings(ctx context.Context, ping nearby.Ping, node overlay.NodeID) (best time.Duration, err error) {
	for range measurePings {
		rtt, err := ping(ctx, node)
		if err != nil {
			return 0, err
		}
		if best == 0 || rtt < best {
			best = rtt
		}
	}
	return best, nil
}
