package nodeservice

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
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Parameters of the measurement of a path's bandwidth. A piece is one frame of HTTP/2 together with
// gRPC's overhead, so that pieces come back one at a time.
const (
	pieceBytes = 16<<10 - 64
	minBytes   = 1 << 20                // to come back, if the time allows
	minTime    = 300 * time.Millisecond // and this long, or ten round trips, for TCP to leave slow start
	maxBytes   = 16 << 20
	maxTime    = 6 * time.Second
	minAhead   = 64 << 10 // bytes in flight
	maxAhead   = 8 << 20  // the window of a session
	parts      = 4        // intervals in which the result is judged

	echoes    = 4                // served concurrently
	echoBytes = 2 * maxBytes     // of one call
	echoTime  = 10 * time.Second // for one call
)

// errNoToken means that other measurements took all the time.
var errNoToken = errors.New("other nodes are being measured")

// measuredBytes is the record of pieces that a node has echoed.
type measuredBytes struct {
	arrivals []time.Duration // arrival times, since the first piece was sent
}

// dueRequests returns the total number of pieces that may have been sent by now: as many as come
// back within two round trips, so that the path is full, and the queue at its bottleneck drains
// soon after the measurement.
func (c *measuredBytes) dueRequests() int {
	n := len(c.arrivals)
	if n == 0 {
		return minAhead / pieceBytes
	}
	last := c.arrivals[n-1]
	since := last - max(c.arrivals[0], 100*time.Millisecond)
	first, _ := slices.BinarySearch(c.arrivals, since)
	ahead := max(minAhead/pieceBytes, min(2*(n-first), maxAhead/pieceBytes))
	return min(n+ahead, maxBytes/pieceBytes)
}

// isEnough reports whether more pieces would not improve the result.
func (c *measuredBytes) isEnough() bool {
	n := len(c.arrivals)
	switch {
	case n < minBytes/pieceBytes:
		return false
	case n >= maxBytes/pieceBytes:
		return true
	}
	return c.arrivals[n-1] >= max(minTime, 10*c.arrivals[0])
}

// rate returns how many bytes a second were echoed; 0: too few to tell. The first quarter does not
// count, while TCP adapts and token buckets drain. The rest is divided into several intervals whose
// lower median counts, because when one of the two machines pauses, one interval is too slow and
// the next one too fast.
func (c *measuredBytes) rate() float64 {
	n := len(c.arrivals)
	if n == 0 {
		return 0
	}
	begin := n / 4
	if n-1-begin < 2*parts {
		return float64(n*pieceBytes) / c.arrivals[n-1].Seconds() // too low, by a round trip
	}
	var rates []float64
	for part := range parts {
		from, to := begin+(n-1-begin)*part/parts, begin+(n-1-begin)*(part+1)/parts
		took := max(c.arrivals[to]-c.arrivals[from], time.Microsecond)
		rates = append(rates, float64((to-from)*pieceBytes)/took.Seconds())
	}
	slices.Sort(rates)
	return rates[(parts-1)/2]
}

// bandwidthBy returns a function that measures how many bytes a second the path to a node carries,
// by NodeService.Echo on the client that reach returns.
func bandwidthBy(self overlay.NodeID, reach func(context.Context, overlay.NodeID) (nodepb.NodeServiceClient, func(), error)) func(context.Context, overlay.NodeID) (float64, error) {
	return func(ctx context.Context, node overlay.NodeID) (float64, error) {
		if node == self {
			return 0, errors.New("the way from a node to itself is no network")
		}
		there, done, err := reach(ctx, node)
		if err != nil {
			return 0, err
		}
		defer done()
		ctx, cancel := context.WithTimeoutCause(ctx, maxTime, errors.New("no answer in time"))
		defer cancel()
		stream, err := there.Echo(ctx)
		if err != nil {
			return 0, control.FromStatus(err)
		}
		return train(ctx, stream)
	}
}

// pieces is a stream of NodeService.Echo.
type pieces interface {
	Send(*nodepb.Piece) error
	CloseSend() error
	Recv() (*nodepb.Piece, error)
}

// train sends pieces until enough have come back or ctx ends, and returns their rate. It waits
// until no piece is in flight, unless ctx ends.
func train(ctx context.Context, stream pieces) (float64, error) {
	grants := make(chan int, maxBytes/pieceBytes) // each is for at least one piece
	sent := make(chan struct{})
	go func() { // ends with grants, or with the stream
		defer close(sent)
		piece := &nodepb.Piece{Data: make([]byte, pieceBytes)}
		for n := range grants {
			for range n {
				if stream.Send(piece) != nil { // Recv returns the cause
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
			back.arrivals = append(back.arrivals, time.Since(start))
		case err == nil:
		case len(back.arrivals) > 0 && (errors.Is(err, io.EOF) || ctx.Err() != nil):
			return back.rate(), nil
		default:
			return 0, cmp.Or(context.Cause(ctx), control.FromStatus(err))
		}
	}
}

// Echo implements nodepb.NodeServiceServer.
func (s *service) Echo(stream nodepb.NodeService_EchoServer) error {
	if s.reach != nil {
		return status.Error(codes.PermissionDenied, "only other helpers measure how much the way to this one carries")
	}
	if _, err := s.caller(stream.Context()); err != nil {
		return control.Status(err)
	}
	if !s.node.offers.Load() {
		return status.Error(codes.PermissionDenied, "the node's owner offers nothing (offer.jobs in its helper's settings is 0), so its bandwidth need not be measured")
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

// echo sends back the pieces that it receives.
func echo(stream nodepb.NodeService_EchoServer) error {
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
