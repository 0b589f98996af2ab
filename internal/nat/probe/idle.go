package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pion/stun/v4"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/reflector"
	"github.com/isthmus-grid/isthmus/internal/rtt"
	"github.com/isthmus-grid/isthmus/overlay"
)

// IdleWaits returns how long mappings are left idle by default, shortest first. The first shows
// that an answer arrives at all; the others lie a little below the usual timeouts of firewalls and
// NATs.
func IdleWaits() []time.Duration {
	var waits []time.Duration
	for _, s := range []int{2, 5, 12, 25, 55, 110, 170, 290} {
		waits = append(waits, time.Duration(s)*time.Second)
	}
	return waits
}

// MaxIdleWaits is the maximum number of idle times per measurement. Each takes a socket and a
// call-back for TCP, and as much again for UDP.
const MaxIdleWaits = 16

// IdleBound returns the maximum duration of MeasureIdle.
func IdleBound(waits []time.Duration) time.Duration {
	return slices.Max(append(slices.Clone(waits), 0)) + 3*(rtt.Estimate{}).Answer(3) + callTime + idleLate
}

// idleLate is how much later than requested an answer may arrive, besides a round trip.
const idleLate = 3 * time.Second

// CheckIdleWaits returns an error for invalid waits, or nil.
func CheckIdleWaits(waits []time.Duration) error {
	switch {
	case len(waits) == 0 || len(waits) > MaxIdleWaits:
		return fmt.Errorf("%d idle times to try, want 1 to %d", len(waits), MaxIdleWaits)
	case !slices.IsSorted(waits) || waits[0] < time.Second || waits[len(waits)-1] > reflector.MaxAfter:
		return fmt.Errorf("idle times %v to try, want rising ones from %v to %v", waits, time.Second, reflector.MaxAfter)
	}
	return nil
}

// IdleObservations are the results for mappings that were left idle.
type IdleObservations struct {
	TCP, UDP []Idle // by time
}

// Idle is the result for one mapping, made by one question and its answer.
type Idle struct {
	After time.Duration // idle time before the reflector sent a late answer
	Lived bool          // that answer arrived
	Err   string        // why there is no result
}

// MeasureIdle makes a TCP connection and a UDP mapping for each of waits, which are whole seconds,
// leaves them idle and makes the first reflector send on each when its time is over. It takes
// as long as the longest, or less when ctx ends; almost nothing is sent. It fails only when the
// grid does not name its reflectors.
func MeasureIdle(ctx context.Context, opts Options, waits []time.Duration) (IdleObservations, error) {
	if err := CheckIdleWaits(waits); err != nil {
		return IdleObservations{}, err
	}
	b, err := opts.Grid.Reflectors(ctx, &controlpb.ReflectorsRequest{})
	if err != nil {
		return IdleObservations{}, fmt.Errorf("asking for the reflectors: %w", err)
	}
	points, _ := reflectors(b)
	if len(points) == 0 {
		return IdleObservations{}, fmt.Errorf("%w: the broker names no reflector with an IPv4 address", overlay.ErrNoPath)
	}
	opts = opts.complete()
	path := newPatience()
	o := IdleObservations{TCP: make([]Idle, len(waits)), UDP: make([]Idle, len(waits))}
	var asked, wg sync.WaitGroup
	for i, wait := range waits {
		asked.Add(1)
		wg.Go(func() { o.TCP[i] = beIdle(ctx, opts, path, points[0], wait, openIdleTCP, asked.Done) })
	}
	asked.Wait() // only a host that has asked over TCP is sent datagrams
	for i, wait := range waits {
		wg.Go(func() { o.UDP[i] = beIdle(ctx, opts, path, points[0], wait, openIdleUDP, func() {}) })
	}
	wg.Wait()
	return o, nil
}

// idler is a socket that has asked a reflector and was answered.
type idler struct {
	net.Conn
	udp        bool
	seen, from netip.AddrPort // the address of its mapping, and the address that answers late
}

// beIdle makes one mapping, calls opened, and waits for the late answer.
func beIdle(ctx context.Context, opts Options, path *patience, p point, wait time.Duration, open func(context.Context, Options, *patience, point) (*idler, error), opened func()) Idle {
	r := Idle{After: wait}
	c, err := open(ctx, opts, path, p)
	opened()
	if err != nil {
		r.Err = shortError(err)
		return r
	}
	defer c.Close()
	var nonce [reflector.NonceLen]byte
	rand.Read(nonce[:])
	if err := c.ask(ctx, opts.Grid, path.call(), wait, nonce[:]); err != nil {
		r.Err = err.Error()
		return r
	}
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	c.SetReadDeadline(time.Now().Add(wait + idleLate + path.estimate().SRTT))
	if ctx.Err() == nil {
		r.Lived = c.await(nonce)
	}
	if ctx.Err() != nil {
		r.Lived, r.Err = false, "the measurement ended early"
	}
	return r
}

// ask requests a delayed answer of the reflector.
func (c *idler) ask(ctx context.Context, grid Grid, bound, wait time.Duration, nonce []byte) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	resp, err := grid.CallBack(ctx, &controlpb.CallBackRequest{
		To: c.seen.String(), Udp: c.udp, Nonce: nonce, From: c.from.String(), AfterS: uint32(wait / time.Second),
	})
	switch {
	case err != nil:
		return control.FromStatus(err)
	case resp.Outcome == controlpb.CallBackResponse_PROMISED:
		return nil
	case resp.Outcome == controlpb.CallBackResponse_UNKNOWN:
		return errors.New(resp.Text)
	}
	return errors.New("the reflector does not answer late; it is of an older version")
}

// await reports whether the nonce arrives before the read deadline.
func (c *idler) await(nonce [reflector.NonceLen]byte) bool {
	var got [reflector.NonceLen]byte
	if !c.udp {
		_, err := io.ReadFull(c, got[:])
		return err == nil && got == nonce
	}
	b := make([]byte, 1500)
	for {
		n, err := c.Read(b)
		switch {
		case err == nil && n == len(nonce) && [reflector.NonceLen]byte(b) == nonce:
			return true
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
			return false
		}
	}
}

// openIdleTCP connects to the reflector and asks it. No keep-alive is sent.
func openIdleTCP(ctx context.Context, opts Options, path *patience, p point) (*idler, error) {
	d := net.Dialer{KeepAlive: -1}
	d.SetMultipathTCP(false)
	v := View{To: p.tcp}
	c, err := v.ask(ctx, path, func(ctx context.Context) (c net.Conn, err error) {
		err = opts.Do(func() (err error) {
			c, err = d.DialContext(ctx, "tcp4", p.tcp.String())
			return err
		})
		return c, err
	}, opts.TLS)
	if err != nil {
		if c != nil {
			carrier.Reset(c)
		}
		return nil, err
	}
	carrier.Socket(c).SetLinger(0) // a NAT that forgot the connection would not let a FIN out
	return &idler{Conn: c, seen: v.Seen, from: p.tcp}, nil
}

// openIdleUDP asks the STUN server.
func openIdleUDP(ctx context.Context, opts Options, path *patience, p point) (*idler, error) {
	if !p.stun.IsValid() {
		return nil, fmt.Errorf("%v has no STUN server", p.tcp.Addr())
	}
	var c *net.UDPConn
	err := opts.Do(func() (err error) {
		c, err = dialUDP(ctx, p.stun, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	request := stun.MustBuild(stun.TransactionID, stun.BindingRequest)
	for n := range stunTries {
		if seen, ok := askSTUN(ctx, c, request, max(stunWait, path.estimate().RTO(n))); ok {
			return &idler{Conn: c, udp: true, seen: seen, from: p.stun}, nil
		}
	}
	c.Close()
	return nil, fmt.Errorf("no answer to %d datagrams", stunTries)
}

// askSTUN sends one request and waits for its answer.
func askSTUN(ctx context.Context, c *net.UDPConn, request *stun.Message, wait time.Duration) (seen netip.AddrPort, ok bool) {
	if ctx.Err() != nil {
		return seen, false
	}
	c.SetDeadline(time.Now().Add(wait))
	c.Write(request.Raw)
	b := make([]byte, 1500)
	for {
		n, err := c.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return seen, false
		}
		if err != nil {
			continue // an ICMP error for a sent datagram, which does not repeat by itself
		}
		if seen, id, ok := mappedAddress(b[:n]); ok && id == request.TransactionID {
			return seen, true
		}
	}
}
