package nodeservice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// way simulates a path with its echo: what is sent leaves the bucket at a rate, and returns a round
// trip later. It is pieces, in the time of synctest.
type way struct {
	ctx   context.Context
	rate  float64       // bytes a second
	rtt   time.Duration // of a small message
	burst int           // bytes that pass at once, after an idle time
	stall time.Duration // for which this machine pauses once, after half of minBytes
	cut   int           // pieces after which the stream breaks; 0: never

	sent, read int
	under      int // maximum of pieces in flight
	free       time.Time
	back       chan time.Time // when each piece returns; closed by CloseSend
}

func newWay(ctx context.Context) *way {
	return &way{ctx: ctx, back: make(chan time.Time, maxBytes/pieceBytes)}
}

// Send implements pieces.
func (w *way) Send(m *nodepb.Piece) error {
	if len(m.Data) != pieceBytes {
		return fmt.Errorf("a piece of %d bytes", len(m.Data))
	}
	now := time.Now()
	if w.free.Before(now) {
		w.free = now
	}
	if w.burst -= pieceBytes; w.burst < 0 {
		w.free = w.free.Add(time.Duration(pieceBytes / w.rate * float64(time.Second)))
	}
	w.back <- w.free.Add(w.rtt)
	w.sent++
	return nil
}

// CloseSend implements pieces.
func (w *way) CloseSend() error {
	close(w.back)
	return nil
}

// Recv implements pieces.
func (w *way) Recv() (*nodepb.Piece, error) {
	synctest.Wait() // for the sender
	w.under = max(w.under, w.sent-w.read)
	if w.read++; w.cut > 0 && w.read > w.cut {
		return nil, errors.New("cut")
	}
	if w.read == minBytes/pieceBytes/2 {
		time.Sleep(w.stall)
	}
	select {
	case at, more := <-w.back:
		if !more {
			return nil, io.EOF
		}
		select {
		case <-time.After(time.Until(at)):
			return &nodepb.Piece{}, nil
		case <-w.ctx.Done():
		}
	case <-w.ctx.Done():
	}
	return nil, w.ctx.Err()
}

// A train measures the rate of the path, whatever its round trip, its buckets and a machine that
// pauses for a moment, within bounds on time, bytes and bytes in flight.
func TestTrain(t *testing.T) {
	const Mbit = 1e6 / 8
	for _, w := range []way{
		{rate: 1000 * Mbit, rtt: 100 * time.Microsecond},
		{rate: 1000 * Mbit, rtt: 60 * time.Millisecond},
		{rate: 100 * Mbit, rtt: 10 * time.Millisecond},
		{rate: 100 * Mbit, rtt: 10 * time.Millisecond, stall: 2 * time.Second},
		{rate: 10 * Mbit, rtt: 200 * time.Millisecond},
		{rate: 10 * Mbit, rtt: 10 * time.Millisecond, burst: 128 << 10},
		{rate: 4 * Mbit, rtt: 20 * time.Millisecond, stall: time.Second},
		{rate: 1 * Mbit, rtt: 20 * time.Millisecond},
		{rate: 0.2 * Mbit, rtt: 20 * time.Millisecond},
		{rate: 10e9, rtt: 20 * time.Microsecond},
	} {
		t.Run(fmt.Sprintf("%g Mbit/s, %v, burst %d, stall %v", w.rate/Mbit, w.rtt, w.burst, w.stall), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), maxTime)
				defer cancel()
				p := newWay(ctx)
				p.rate, p.rtt, p.burst, p.stall = w.rate, w.rtt, w.burst, w.stall
				begun := time.Now()
				got, err := train(ctx, p)
				if err != nil {
					t.Fatal(err)
				}
				took, bytes := time.Since(begun), p.sent*pieceBytes
				t.Logf("%.3g Mbit/s after %v and %d KiB, %d KiB under way", got/Mbit, took, bytes>>10, p.under*pieceBytes>>10)
				if math.Abs(got/w.rate-1) > 0.15 && w.rate > Mbit {
					t.Errorf("%.3g Mbit/s", got/Mbit)
				}
				if got/w.rate < 0.3 || got/w.rate > 1.1 {
					t.Errorf("%.3g Mbit/s", got/Mbit)
				}
				// The queue drains soon: it delays other traffic only briefly.
				ahead := float64(p.under * pieceBytes)
				if most := max(minAhead, min(maxAhead, w.rate*2*max(0.1, 2*w.rtt.Seconds()+w.stall.Seconds()))); bytes > maxBytes || ahead > 1.2*most+float64(4*w.burst) || took > maxTime {
					t.Errorf("%d bytes in %v, %.0f under way; at most %.0f", bytes, took, ahead, most)
				}
			})
		})
	}
}

// A path that breaks has no result, nor one on which nothing returns.
func TestTrainFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, w := range []way{{rate: 1e6, cut: 3}, {rate: 1e6, rtt: time.Minute}} {
			why := errors.New("no answer in time")
			ctx, cancel := context.WithTimeoutCause(t.Context(), maxTime, why)
			p := newWay(ctx)
			p.rate, p.rtt, p.cut = w.rate, w.rtt, w.cut
			if got, err := train(ctx, p); err == nil || w.cut == 0 && !errors.Is(err, why) {
				t.Errorf("%g (%v)", got, err)
			}
			cancel()
		}
	})
}

// echoStream is one Echo of a helper: it sends the pieces, and then waits or ends.
type echoStream struct {
	nodepb.NodeService_EchoServer
	ctx    context.Context
	pieces []int // bytes of each
	wait   bool  // for ctx, after the pieces
	heard  []int
}

// Context implements grpc.ServerStream.
func (s *echoStream) Context() context.Context { return s.ctx }

// Recv implements nodepb.NodeService_EchoServer.
func (s *echoStream) Recv() (*nodepb.Piece, error) {
	if len(s.pieces) == 0 {
		if !s.wait {
			return nil, io.EOF
		}
		<-s.ctx.Done()
		return nil, s.ctx.Err()
	}
	n := s.pieces[0]
	s.pieces = s.pieces[1:]
	return &nodepb.Piece{Data: make([]byte, n)}, nil
}

// Send implements nodepb.NodeService_EchoServer.
func (s *echoStream) Send(m *nodepb.Piece) error {
	s.heard = append(s.heard, len(m.Data))
	return nil
}

// A node echoes to another helper, within bounds, and not to programs.
func TestEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		away := func(context.Context) (Asker, error) { return Asker{}, nil }
		nodeService := &NodeService{}
		nodeService.offers.Store(true)
		s := &service{node: nodeService, echoes: make(chan struct{}, echoes), caller: away}
		plain := &echoStream{ctx: ctx, pieces: []int{3, 16 << 10, 0}}
		if err := s.Echo(plain); err != nil || fmt.Sprint(plain.heard) != "[3 16384 0]" {
			t.Errorf("%v, %v", plain.heard, err)
		}
		many := &echoStream{ctx: ctx}
		for range echoBytes>>14 + 1 {
			many.pieces = append(many.pieces, 16<<10)
		}
		for _, wrong := range []*echoStream{{ctx: ctx, pieces: []int{16<<10 + 1}}, many} {
			if err := s.Echo(wrong); status.Code(err) != codes.InvalidArgument || len(wrong.heard) > echoBytes>>14 {
				t.Errorf("%d pieces came back: %v", len(wrong.heard), err)
			}
		}

		begun := time.Now()
		over := make(chan error)
		for range echoes {
			go func() { over <- s.Echo(&echoStream{ctx: ctx, wait: true}) }()
		}
		synctest.Wait()
		if err := s.Echo(&echoStream{ctx: ctx}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more than %d: %v", echoes, err)
		}
		for range echoes {
			if err := <-over; status.Code(err) != codes.DeadlineExceeded || time.Since(begun) != echoTime {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}
		}
		gone, leave := context.WithCancel(ctx)
		leave()
		if err := s.Echo(&echoStream{ctx: gone, wait: true}); err == nil || len(s.echoes) > 0 {
			t.Errorf("%v, and %d are under way", err, len(s.echoes))
		}

		nodeService.offers.Store(false)
		if err := s.Echo(&echoStream{ctx: ctx, pieces: []int{1}}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("where nothing is offered: %v", err)
		}
		nodeService.offers.Store(true)
		s.reach = func(context.Context, overlay.NodeID) (nodepb.NodeServiceClient, func(), error) { return nil, nil, nil }
		if err := s.Echo(&echoStream{ctx: ctx, pieces: []int{1}}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("at the local socket: %v", err)
		}
	})
}
