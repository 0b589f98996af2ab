package longpath

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A longPath is a network between two ends in memory, over TCP: what is lost arrives when it has been sent again, and
// holds up what was sent after it.
type longPath struct {
	trip time.Duration
	loss float64 // of the packets in each direction
	dead atomic.Bool

	conns chan net.Conn // accepted by the far end
	over  chan struct{}
	pumps sync.WaitGroup
}

func newLongPath(trip time.Duration, loss float64) *longPath {
	return &longPath{trip: trip, loss: loss, conns: make(chan net.Conn), over: make(chan struct{})}
}

func (p *longPath) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}
func (p *longPath) Close() error   { close(p.over); return nil }
func (p *longPath) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443} }

// addressed is a connection with the address of a peer.
type addressed struct {
	net.Conn
	addr net.Addr
}

func (c addressed) RemoteAddr() net.Addr { return c.addr }

// dial opens a connection after one round trip.
func (p *longPath) dial(ctx context.Context, _ string) (net.Conn, error) {
	near, nearEnd := net.Pipe()
	far, farEnd := net.Pipe()
	p.carry(nearEnd, farEnd, 1)
	p.carry(farEnd, nearEnd, 2)
	time.Sleep(p.trip)
	select {
	case p.conns <- addressed{far, p.Addr()}:
		return addressed{near, p.Addr()}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// carry carries what is written at one end to the other until either is closed.
func (p *longPath) carry(from, to net.Conn, seed uint64) {
	type packet struct {
		data    []byte
		arrives time.Time
	}
	way := make(chan packet, 1<<16)
	p.pumps.Go(func() {
		defer close(way)
		chance := rand.New(rand.NewPCG(seed, uint64(p.trip)))
		var last time.Time
		b := make([]byte, 1<<16)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			takes := p.trip / 2
			for again := p.trip + 200*time.Millisecond; chance.Float64() < p.loss; again *= 2 {
				takes += again
			}
			if at := time.Now().Add(takes); at.After(last) {
				last = at
			}
			if !p.dead.Load() {
				way <- packet{append([]byte(nil), b[:n]...), last}
			}
		}
	})
	p.pumps.Go(func() {
		defer to.Close()
		for k := range way {
			time.Sleep(time.Until(k.arrives))
			if !p.dead.Load() {
				to.Write(k.data)
			}
		}
		if p.dead.Load() {
			<-p.over // nothing says that the other end has closed
		}
	})
}

// admin answers Status.
type admin struct {
	controlpb.UnimplementedAdminServer
}

func (admin) Status(context.Context, *controlpb.StatusRequest) (*controlpb.StatusResponse, error) {
	return &controlpb.StatusResponse{}, nil
}

// ends are the credentials of the two ends of all sessions.
type ends struct{ server, client *control.Credentials }

func newEnds(t *testing.T) (e ends) {
	a, _, err := ca.New("test", 24*time.Hour)
	if err == nil {
		e.server, err = a.Credentials(control.Identity{Role: control.RoleBroker, Name: "main"})
	}
	if err == nil {
		e.client, err = a.Credentials(control.Identity{Role: control.RoleFrontal, Site: "sitea"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// session runs f with a session over the path, which was opened in the given time.
func (p *longPath) session(t *testing.T, e ends, f func(s *control.Session, open time.Duration)) {
	log := slog.New(slog.DiscardHandler)
	server := control.NewEndpoint(e.server, log, func(r grpc.ServiceRegistrar) { controlpb.RegisterAdminServer(r, admin{}) })
	client := control.NewEndpoint(e.client, log, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(ctx, p, nil, nil); err != nil {
			t.Error(err)
		}
	})
	begun := time.Now()
	s, err := client.Dial(ctx, control.DialConfig{Addr: "192.0.2.1:443", Role: control.RoleBroker, Dial: p.dial})
	if err != nil {
		t.Errorf("%v, %v lost: %v", p.trip, p.loss, err)
	} else {
		f(s, time.Since(begun))
		s.Close()
	}
	cancel()
	serving.Wait()
	client.Close()
	server.Close()
	p.pumps.Wait()
}

func status(s *control.Session) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := controlpb.NewAdminClient(s.Conn()).Status(ctx, &controlpb.StatusRequest{})
	return control.FromStatus(err)
}

// A session on a path that is long, or loses much, begins within eight round trips and lives as long as the path does. A
// call on a path that has died fails after a time that follows the round trip: soon where that is short.
func TestSession(t *testing.T) {
	runtime.GC() // twice empties yamux's pool, of the timers of a run before this one
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		e := newEnds(t)
		var all sync.WaitGroup
		for _, c := range []struct {
			trip time.Duration
			loss float64
			dead time.Duration // at most, until a call fails; 0: not tried
		}{
			{20 * time.Millisecond, 0, 1500 * time.Millisecond},
			{600 * time.Millisecond, 0, 8500 * time.Millisecond}, // in memory no kernel says what was acknowledged
			{time.Second, 0, 14 * time.Second},
			{1400 * time.Millisecond, 0, 19500 * time.Millisecond},
			{600 * time.Millisecond, 0.03, 0}, {600 * time.Millisecond, 0.1, 0}, {1400 * time.Millisecond, 0.1, 0},
		} {
			p := newLongPath(c.trip, c.loss)
			all.Go(func() {
				p.session(t, e, func(s *control.Session, open time.Duration) {
					if c.loss == 0 && open > 8*c.trip {
						t.Errorf("%v: it took %v to begin", c.trip, open)
					}
					for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
						if err := status(s); err != nil {
							t.Errorf("%v, %v lost: %v", c.trip, c.loss, err)
							return
						}
					}
					if c.dead == 0 {
						return
					}
					p.dead.Store(true)
					begun := time.Now()
					err := status(s)
					if took := time.Since(begun); !errors.Is(err, overlay.ErrNoSession) || took > c.dead || took < 4*c.trip {
						t.Errorf("%v: dead, after %v: %v", c.trip, took, err)
					}
				})
			})
		}
		all.Wait()
	})
}

// The first call on a session that is prepared for it takes one round trip, as any other.
func TestFirstCall(t *testing.T) {
	runtime.GC() // as in TestSession
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		p := newLongPath(time.Second, 0)
		p.session(t, newEnds(t), func(s *control.Session, _ time.Duration) {
			s.Prepare()
			time.Sleep(5 * p.trip)
			begun := time.Now()
			if err := status(s); err != nil || time.Since(begun) >= 2*p.trip {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}
		})
	})
}
