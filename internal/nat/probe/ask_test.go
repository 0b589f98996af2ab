package probe

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

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
			c, err := v.ask(t.Context(), open, nil)
			if c != nil {
				c.Close()
			}
			if dials != tc.dials || v.Seen != tc.seen || v.TLS || (err == nil) != tc.seen.IsValid() {
				t.Errorf("%s: %d dials, %+v, %v", tc.name, dials, v, err)
			}
		})
	}
}
