package connhelper

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// startSharedRelay acts as a proxy that knows shared connections: it joins each two ends that show
// tickets, in the order in which they come.
func (f *fakeFrontal) startSharedRelay(want wire.Frame) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { ln.Close() })
	f.relay = &controlpb.Assignment{Proxy: "p1", Addresses: []string{ln.Addr().String()}, Ticket: wire.Append(nil, want)}
	ends := make(chan carrier.Stream)
	go func() { // these end with the listener and the test's connections
		for a := range ends {
			b := <-ends
			go io.Copy(a, b)
			go io.Copy(b, a)
		}
	}()
	serve := func(c carrier.Stream) {
		switch got, err := wire.Read(c); {
		case err != nil: // not used
		case got.Type() == wire.TypeObserve:
			c.Write(wire.Append(nil, &wire.Observed{From: c.RemoteAddr().(*net.TCPAddr).AddrPort(), Time: time.Now()}))
		case got.Type() == want.Type():
			ends <- c
		case got.Type() == wire.TypeShare:
			mux, err := encap.AcceptShared(c)
			for err == nil {
				stream, failed := mux.AcceptStream()
				if failed != nil {
					return
				}
				go func() {
					s := encap.SharedStream(stream)
					if _, err := wire.Read(s); err == nil {
						ends <- s
					}
				}()
			}
		}
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c.(*net.TCPConn))
		}
	}()
}

// Behind a NAT one of several relays makes a connection that others may share, and its process
// notices nothing but the reason of its path.
func TestRelayOverSharedConnection(t *testing.T) {
	key := newKey(t)
	nat := overlay.SiteProfile{NAT: overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressDependent}}
	f := newFakeFrontal(t, nat, overlay.Relay)
	f.startSharedRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	shared := 0
	for range 6 {
		path, c := r0.dialled(1)
		in, d := r1.incoming()
		joined(t, c, d)
		for _, p := range []overlay.Path{path, in} {
			if strings.Contains(p.Reason, "over a connection to the proxy that relays share") {
				shared++
			}
		}
	}
	if shared != 2 {
		t.Errorf("%d of twelve ends share a connection, want one of each node", shared)
	}
}
