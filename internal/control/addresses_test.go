package control_test

import (
	"net"
	"net/netip"
	"testing"

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
