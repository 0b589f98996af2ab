// Package coordinatetest has what tests of coordinated traversal need on hosts of a lab. It knows
// no technique and keeps no state beyond a test.
package coordinatetest

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
	"github.com/isthmus-grid/isthmus/internal/nat/stunserver"
	"github.com/isthmus-grid/isthmus/lab"
)

// Reflectors makes hosts answer with the source address that they see, until the test ends: by
// observe frames on TCP port 443, the only one that every site with any egress can dial, and by
// STUN on UDP port 3478. It returns their addresses.
func Reflectors(t *testing.T, hosts ...*lab.Host) (tcp, stun []netip.AddrPort) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	t.Cleanup(func() { cancel(); serving.Wait() })
	for _, h := range hosts {
		tcp = append(tcp, netip.AddrPortFrom(h.Addr(), 443))
		stun = append(stun, netip.AddrPortFrom(h.Addr(), 3478))
		ln, err := h.Listen("tcp", tcp[len(tcp)-1].String())
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() { observe(ctx, ln, &serving) })
		for _, a := range []netip.Addr{h.Addr(), h.Addr6()} {
			if !a.IsValid() {
				continue
			}
			pc, err := h.ListenPacket("udp", netip.AddrPortFrom(a, 3478).String())
			if err != nil {
				t.Fatal(err)
			}
			serving.Go(func() { (&stunserver.Server{}).Serve(ctx, pc) })
		}
	}
	return tcp, stun
}

// observe answers every connection, and keeps it for as long as the other end does.
func observe(ctx context.Context, ln net.Listener, serving *sync.WaitGroup) {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		serving.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			if simopen.Answer(ctx, c) == nil {
				io.Copy(io.Discard, c)
			}
		})
	}
}
