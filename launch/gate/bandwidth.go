package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// How the bandwidth of a way is measured. A piece is one frame of HTTP/2 with what gRPC
// adds, so that pieces come back one after the other.
const (
	pieceBytes = 16<<10 - 64
	minBytes   = 1 << 20                // that come back, if that is possible in time
	minTime    = 300 * time.Millisecond // and this long, or ten round trips, for TCP to find its pace
	maxBytes   = 16 << 20
	maxTime    = 6 * time.Second
	minAhead   = 64 << 10 // that may be under way
	maxAhead   = 8 << 20  // as the windows of sessions are
	parts      = 4        // in which what came back is judged

	echoes    = 4                // answered at a time
	echoBytes = 2 * maxBytes     // of one call
	echoTime  = 10 * time.Second // for one call
)

// errNoTurn is that others were measured until it was too late.
var errNoTurn = errors.New("other nodes are being measured")

// measuredBytes is what came back of the pieces that were sent to a node.
type measuredBytes struct {
	came []time.Duration // when each did, since the first was sent
}

// dueRequests returns how many pieces, of all, may have been sent by now: as many as come back
// within two round trips, so that the way is full and what waits before its narrowest
// place is soon through when the measurement ends.
func (c *measuredBytes) dueRequests() int {
	n := len(c.came)
	if n == 0 {
		return minAhead / pieceBytes
	}
	last := c.came[n-1]
	since := last - max(c.came[0], 100*time.Millisecond)
	first, _ := slices.BinarySearch(c.came, since)
	ahead := max(minAhead/pieceBytes, min(2*(n-first), maxAhead/pieceBytes))
	return min(n+ahead, maxBytes/pieceBytes)
}

// isEnough reports whether more would say no more.
func (c *measuredBytes) isEnough() bool {
	n := len(c.came)
	switch {
	case n < minBytes/pieceBytes:
		return false
	case n >= maxBytes/pieceBytes:
		return true
	}
	return c.came[n-1] >= max(minTime, 10*c.came[0])
}

// rate is how many bytes a second came back; 0: too little came to tell. The first
// quarter does not count, while TCP finds its pace and buckets are emptied. Of the rest
// the lower median of several parts does, because when one of the two machines stands
// still for a moment one part takes too long and the next comes all at once.
func (c *measuredBytes) rate() float64 {
	n := len(c.came)
	if n == 0 {
		return 0
	}
	begin := n / 4
	if n-1-begin < 2*parts {
		return float64(n*pieceBytes) / c.came[n-1].Seconds() // too low, by a round trip
	}
	var rates []float64
	for part := range parts {
		from, to := begin+(n-1-begin)*part/parts, begin+(n-1-begin)*(part+1)/parts
		took := max(c.came[to]-c.came[from], time.Microsecond)
		rates = append(rates, float64((to-from)*pieceBytes)/took.Seconds())
	}
	slices.Sort(rates)
	return rates[(parts-1)/2]
}

// bandwidthBy returns a function that measures how many bytes a second the way to a node
// carries, by Gate.Echo on what reach returns.
func bandwidthBy(self overlay.NodeID, reach func(context.Context, overlay.NodeID) (gatepb.GateClient, func(), error)) func(context.Context, overlay.NodeID) (float64, error) {
	return func(ctx context.Context, node overlay.NodeID) (float64, error) {
		if node == self {
			return 0, errors.New("the way from a node to itself is no network")
		}
		there, done, err := reach(ctx, node)
		if err != nil {
			return 0, err
		}
		defer done()
		ctx, cancel := context.WithTimeoutCause(ctx, maxTime, errors.New("nothing came back in time"))
		defer cancel()
		stream, err := there.Echo(ctx)
		if err != nil {
			return 0, control.FromStatus(err)
		}
		return train(ctx, stream)
	}
}

// pieces is the two ways of Gate.Echo.
type pieces interface {
	Send(*gatepb.Piece) error
	CloseSend() error
	Recv() (*gatepb.Piece, error)
}

// train sends pieces until enough came back, or ctx ends, and returns their rate. It
// waits until nothing is under way any more, unless ctx ends.
func train(ctx context.Context, stream pieces) (float64, error) {
	grants := make(chan int, maxBytes/pieceBytes) // each is one piece at least
	sent := make(chan struct{})
	go func() { // ends with grants, or with the stream
		defer close(sent)
		piece := &gatepb.Piece{Data: make([]byte, pieceBytes)}
		for n := range grants {
			for range n {
				if stream.Send(piece) != nil { // Recv hears why
					return
				}
			}
		}
		stream.CloseSend()
	}()
	defer func() { <-sent }()
	var back measuredBytes
	start, granted, open := time.Now(), 0, true
	grant := func() {
		switch due := back.dueRequests(); {
		case !open:
		case back.isEnough():
			open = false
			close(grants)
		case due > granted:
			grants <- due - granted
			granted = due
		}
	}
	defer func() {
		if open {
			close(grants)
		}
	}()
	for {
		grant()
		_, err := stream.Recv()
		switch {
		case err == nil && open:
			back.came = append(back.came, time.Since(start))
		case err == nil:
		case len(back.came) > 0 && (errors.Is(err, io.EOF) || ctx.Err() != nil):
			return back.rate(), nil
		default:
			return 0, cmp.Or(context.Cause(ctx), control.FromStatus(err))
		}
	}
}

// Echo implements gatepb.GateServer.
func (s *service) Echo(stream gatepb.Gate_EchoServer) error {
	if s.reach != nil {
		return status.Error(codes.PermissionDenied, "only other helpers measure how much the way to this one carries")
	}
	if _, err := s.caller(stream.Context()); err != nil {
		return control.Status(err)
	}
	if !s.node.offers.Load() {
		return status.Error(codes.PermissionDenied, "the node's owner offers nothing (offer.jobs in its helper's settings is 0), so nobody needs to measure the way to it")
	}
	select {
	case s.echoes <- struct{}{}:
		defer func() { <-s.echoes }()
	default:
		return control.Status(fmt.Errorf("%w: %d measurements are under way", overlay.ErrOverloaded, cap(s.echoes)))
	}
	over := make(chan error, 1)
	go func() { over <- echo(stream) }() // ends with the stream, which ends when this returns
	late := time.NewTimer(echoTime)
	defer late.Stop()
	select {
	case err := <-over:
		return err
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	case <-late.C:
		return status.Errorf(codes.DeadlineExceeded, "an echo lasts %v at most", echoTime)
	}
}

// echo says back what it hears.
func echo(stream gatepb.Gate_EchoServer) error {
	for total := 0; ; {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if total += len(m.Data); len(m.Data) > 16<<10 || total > echoBytes {
			return status.Errorf(codes.InvalidArgument, "a piece of %d bytes, %d in all; at most 16 KiB and %d", len(m.Data), total, echoBytes)
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
}
