package control_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
)

// A name's first address that accepts connections and stays silent does not stand in the way of the
// second, and the daemon there has one session of it.
func TestSilentFirstAddress(t *testing.T) {
	if all, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", "localhost"); err != nil || len(all) < 2 {
		t.Skipf("localhost has the addresses %v, %v", all, err)
	}
	g := newGrid(t)
	addr := serve(t, endpoint(t, g.creds(broker), admin{}), nil, nil)
	port := netip.MustParseAddrPort(addr).Port()
	silent, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.IPv6Loopback(), port)))
	if err != nil {
		t.Skip(err)
	}
	accepted := make(chan net.Conn, 100)
	go func() { // ends with silent
		defer close(accepted)
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	defer func() {
		silent.Close()
		for c := range accepted {
			c.Close()
		}
	}()
	_, digits, _ := net.SplitHostPort(addr)
	s, err := endpoint(t, g.creds(frontal), admin{}).Dial(t.Context(), control.DialConfig{Addr: net.JoinHostPort("localhost", digits), Role: control.RoleBroker})
	if err != nil {
		t.Fatal(err)
	}
	if at := s.RemoteAddr().Addr(); at != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("the session is with %v", at)
	}
	if err := askStatus(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// A path that drops large packets lets connections be established, and both ends then wait in vain. Whichever ends
// the wait, the next connection uses small packets, and the log says so.
func TestPathIsNarrow(t *testing.T) {
	g := newGrid(t)
	addr := serve(t, endpoint(t, g.creds(broker), admin{}), nil, nil)
	var log bytes.Buffer // written only by Keep, before it calls up
	e := control.NewEndpoint(g.creds(frontal), slog.New(slog.NewTextHandler(&log, nil)), nil)
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lost []error
	err := e.Keep(ctx, control.DialConfig{
		Addr: addr, Role: control.RoleBroker, Down: func(err error) { lost = append(lost, err) },
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if carrier.SmallPackets(ctx) {
				return carrier.DialTCP(ctx, addr, carrier.HTTPProxy{})
			}
			near, far := net.Pipe()
			go func() { // ends with far
				far.Read(make([]byte, 1<<14))
				far.Close()
			}()
			return near, nil
		},
	}, func(context.Context, *control.Session) error {
		if text := log.String(); !strings.Contains(text, "packets of 576 bytes and is slower") {
			t.Errorf("the log says nothing of small packets: %s", text)
		}
		cancel()
		return nil
	})
	if err != nil || len(lost) != 1 {
		t.Errorf("%v; failed with %v", err, lost)
	}
}
