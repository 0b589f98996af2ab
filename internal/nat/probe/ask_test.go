package probe

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// TestAskAgain: a reflector that is silent on one connection is asked on another; one that refuses is not.
func TestAskAgain(t *testing.T) {
	seen := netip.MustParseAddrPort("192.0.2.1:77")
	answer := func(f wire.Frame) func(net.Conn) {
		return func(c net.Conn) {
			if _, err := wire.Read(c); err == nil && f != nil {
				c.Write(wire.Append(nil, f))
			}
		}
	}
	silent := answer(nil)
	for _, tc := range []struct {
		name    string
		servers []func(net.Conn)
		dials   int
		seen    netip.AddrPort
	}{
		{"at once", []func(net.Conn){answer(&wire.Observed{From: seen, Time: time.Unix(1, 0)})}, 1, seen},
		{"busy", []func(net.Conn){silent, answer(&wire.Observed{From: seen, Time: time.Unix(1, 0)})}, 2, seen},
		{"silent", []func(net.Conn){silent, silent}, 2, netip.AddrPort{}},
		{"refused", []func(net.Conn){answer(&wire.Refuse{Code: wire.CodeForbidden})}, 1, netip.AddrPort{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			dials := 0
			open := func(context.Context) (net.Conn, error) {
				near, far := net.Pipe()
				go tc.servers[dials](far)
				dials++
				return near, nil
			}
			var v View
			c, err := v.ask(t.Context(), newPatience(), open, nil)
			if c != nil {
				c.Close()
			}
			if dials != tc.dials || v.Seen != tc.seen || v.TLS || (err == nil) != tc.seen.IsValid() {
				t.Errorf("%s: %d dials, %+v, %v", tc.name, dials, v, err)
			}
		})
	}
}

// Waits follow the round trip: a reflector far away has time, whether it is the first or others have answered, and one
// that does not answer is not waited for longer than the path of the others requires.
func TestPatience(t *testing.T) {
	seen := netip.MustParseAddrPort("192.0.2.1:77")
	for _, trip := range []time.Duration{20 * time.Millisecond, 600 * time.Millisecond, time.Second, 1400 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			p := newPatience()
			ask := func(silent bool) (v View, took time.Duration) {
				begun := time.Now()
				c, err := v.ask(t.Context(), p, func(ctx context.Context) (net.Conn, error) {
					if silent {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					time.Sleep(trip)
					near, far := net.Pipe()
					go func() {
						if _, err := wire.Read(far); err == nil {
							time.Sleep(trip)
							far.Write(wire.Append(nil, &wire.Observed{From: seen, Time: time.Unix(1, 0)}))
						}
					}()
					return near, ctx.Err()
				}, nil)
				if c != nil {
					c.Close()
				}
				if (err == nil) == silent || silent && shortError(err) != overlay.ErrTimeout.Error() {
					t.Errorf("%v: %v", trip, err)
				}
				return v, time.Since(begun)
			}
			lost := make(chan time.Duration)
			go func() {
				_, took := ask(true) // on the way when the others are answered
				lost <- took
			}()
			for range 2 {
				if v, took := ask(false); v.Seen != seen || took != 2*trip {
					t.Errorf("%v: %v after %v", trip, v, took)
				}
			}
			if took := <-lost; took < 4*trip+time.Second || took > 11*trip+2*time.Second {
				t.Errorf("%v: given up after %v", trip, took)
			}
			over, stop := p.again(0)
			defer stop()
			begun := time.Now()
			<-over
			if took := time.Since(begun); took < trip+200*time.Millisecond || took > 3*trip+400*time.Millisecond {
				t.Errorf("%v: a datagram is sent again after %v", trip, took)
			}
		})
	}
}
