package carrier

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/overlay"
)

// segment returns the largest segment that a connection sends.
func segment(t *testing.T, c *net.TCPConn) (size int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { size, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) })
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// TestSegmentsFit: whichever end is limited, neither sends more.
func TestSegmentsFit(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		ip := netip.MustParseAddr(host)
		header := headers(ip.Is6())
		for _, tc := range []struct {
			listener, dialler uint16 // LimitMTU there
			small             bool
			most              int // packet
		}{
			{0, 0, true, usualMTU},
			{1400, 0, false, 1400},
			{0, 1400, false, 1400},
			{9000, 1400, false, 1400},
			{1400, 0, true, usualMTU},
			{0, 100, false, MinMTU}, // less is no MTU
		} {
			if ip.Is6() {
				tc.most = max(tc.most, minMTU6)
			}
			LimitMTU(tc.listener)
			ln, err := ListenIn(t.Context(), ip, overlay.Ports{})
			if err != nil {
				t.Fatal(err)
			}
			LimitMTU(tc.dialler)
			dial := DialTCP
			if tc.small {
				dial = DialSmall
			}
			c, err := dial(t.Context(), ln.Addr().String(), HTTPProxy{})
			LimitMTU(0)
			if err != nil {
				t.Fatal(err)
			}
			d, err := ln.AcceptTCP()
			if err != nil {
				t.Fatal(err)
			}
			for _, end := range []*net.TCPConn{c, d} {
				if got := segment(t, end); got > tc.most-header || got < tc.most-header-20 {
					t.Errorf("%s, %+v: segments of %d bytes, want up to %d", host, tc, got, tc.most-header)
				}
				end.Close()
			}
			ln.Close()
		}
	}
}
