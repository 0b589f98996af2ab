package nodeservice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/nearby"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	maxMeasured  = 64               // nodes in one call
	measureTime  = 8 * time.Second  // for one call
	measurePings = 3                // for one node, of which the shortest counts
	measureRoom  = 16               // nodes measured concurrently, for all calls
	measureKeep  = 5 * time.Minute  // lifetime of a latency
	carryRoom    = 1                // nodes whose bandwidth is measured concurrently: two would disturb each other
	carryKeep    = 30 * time.Minute // lifetime of a bandwidth
	faultKeep    = 10 * time.Second // before a failed measurement is repeated
	maxDistances = 4096             // entries kept, for each kind
)

// distances is the latency and bandwidth of the paths from this node to others, as far as calls
// have requested them. Safe for concurrent use.
type distances struct {
	latency   *figures[time.Duration] // round-trip times
	bandwidth *figures[float64]       // bytes a second
}

func newDistances(ping nearby.Ping, carry func(context.Context, overlay.NodeID) (float64, error)) *distances {
	best := func(ctx context.Context, node overlay.NodeID) (time.Duration, error) { return pings(ctx, ping, node) }
	return &distances{newFigures(best, measureRoom, measureKeep), newFigures(carry, carryRoom, carryKeep)}
}

// figures caches one kind of measurement for other nodes. Callers that ask at the same time, or
// soon after each other, share one measurement. Safe for concurrent use.
type figures[T any] struct {
	find   func(context.Context, overlay.NodeID) (T, error)
	keep   time.Duration // lifetime of a figure
	tokens chan struct{} // holds one token for each node that is being measured

	mu      sync.Mutex
	entries map[overlay.NodeID]*figure[T]
}

// figure is the result for one node, or its measurement in progress.
type figure[T any] struct {
	ready chan struct{} // closed when the fields below are set
	value T
	err   error
	until time.Time // when it must be measured again
}

func newFigures[T any](find func(context.Context, overlay.NodeID) (T, error), tokens int, keep time.Duration) *figures[T] {
	return &figures[T]{find: find, keep: keep, tokens: make(chan struct{}, tokens), entries: map[overlay.NodeID]*figure[T]{}}
}

// measureAll serves NodeService.Measure. It measures latencies first: they are higher while a path is
// loaded.
func (d *distances) measureAll(ctx context.Context, q *nodepb.MeasureRequest) (*nodepb.MeasureResponse, error) {
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
	r := &nodepb.MeasureResponse{Distances: make([]*nodepb.Distance, len(nodes))}
	each := func(measure func(overlay.NodeID, *nodepb.Distance) error) {
		var all sync.WaitGroup
		for i, m := range r.Distances {
			all.Go(func() {
				if err := measure(nodes[i], m); err != nil && len(m.Fault) == 0 {
					m.Fault = fmt.Appendf(nil, "%.300s", err.Error())
				}
			})
		}
		all.Wait()
	}
	for i, node := range nodes {
		r.Distances[i] = &nodepb.Distance{Node: node.Key()}
	}
	each(func(node overlay.NodeID, m *nodepb.Distance) error {
		rtt, err := d.latency.measure(ctx, node)
		m.LatencyNs = uint64(rtt)
		return err
	})
	if q.Bandwidth {
		each(func(node overlay.NodeID, m *nodepb.Distance) error {
			if m.LatencyNs == 0 {
				return nil // reported already
			}
			rate, err := d.bandwidth.measure(ctx, node)
			m.Bandwidth = uint64(rate)
			return err
		})
	}
	return r, nil
}

// measure returns the figure of a node, cached or measured now.
func (f *figures[T]) measure(ctx context.Context, node overlay.NodeID) (T, error) {
	e, first := f.entry(node, time.Now())
	if first {
		value, err := f.findLimited(ctx, node)
		keep := f.keep
		switch {
		case errors.Is(err, errNoToken):
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

// findLimited measures a figure when there is a token for it.
func (f *figures[T]) findLimited(ctx context.Context, node overlay.NodeID) (T, error) {
	select {
	case f.tokens <- struct{}{}:
		defer func() { <-f.tokens }()
		return f.find(ctx, node)
	case <-ctx.Done():
		var unknown T
		return unknown, fmt.Errorf("%w: %w", errNoToken, context.Cause(ctx))
	}
}

// entry returns the entry of a node, and whether the caller must measure it.
func (f *figures[T]) entry(node overlay.NodeID, now time.Time) (e *figure[T], first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	over := func(e *figure[T]) bool { return !e.until.IsZero() && !now.Before(e.until) }
	if e = f.entries[node]; e != nil && !over(e) {
		return e, false
	}
	if len(f.entries) >= maxDistances { // drop expired entries; if there are none, arbitrary ones
		for n, e := range f.entries {
			if over(e) || len(f.entries) >= maxDistances {
				delete(f.entries, n)
			}
		}
	}
	e = &figure[T]{ready: make(chan struct{})}
	f.entries[node] = e
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
