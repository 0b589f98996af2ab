package testkit

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/wire"
)

// Show connects to a port and sends a frame, or none. The connection is closed when the test ends.
func Show(t testing.TB, at netip.AddrPort, f wire.Frame) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(Patience))
	if f != nil {
		if _, err := conn.Write(wire.Append(nil, f)); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// Refused reads the refusal that a connection must end with.
func Refused(t testing.TB, conn net.Conn) *wire.Refuse {
	t.Helper()
	frame, err := wire.Read(conn)
	refuse, ok := frame.(*wire.Refuse)
	if !ok {
		t.Fatalf("got %v, %v; want a refusal", frame, err)
	}
	if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the refusal: %d bytes, %v; want the end", n, err)
	}
	return refuse
}
