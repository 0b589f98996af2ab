//go:build system

package lab

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// siteAndPub is a lab of one site of a preset and a public host.
func siteAndPub(t *testing.T, preset string) (l *Lab, inside, pub *Host) {
	t.Helper()
	l = up(t, Spec{Sites: []Site{
		{Name: "s", Preset: preset, Nodes: Nodes(1)},
		{Name: "pub", Preset: Public, Nodes: []string{"x"}},
	}})
	profile, err := Profile(preset)
	if err != nil {
		t.Fatal(err)
	}
	inside = l.Host("s/n1")
	if profile.GatewayOnly {
		inside = l.Host("s/gw")
	}
	return l, inside, l.Host("pub/x")
}

// connected returns the two ends of a connection that one host makes to another. control, which may
// be nil, is first applied to the caller's socket.
func connected(t *testing.T, from, to *Host, address netip.Addr, control func(fd int) error) (caller, listener *net.TCPConn) {
	t.Helper()
	ln, err := to.Listen("tcp"+versionOf(address), ":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) (err error) {
		if control == nil {
			return nil
		}
		return errors.Join(c.Control(func(fd uintptr) { err = control(int(fd)) }), err)
	}}
	err = from.Do(func() error {
		c, err := d.Dial("tcp"+versionOf(address), netip.AddrPortFrom(address, 7000).String())
		if err == nil {
			caller = c.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { caller.Close() })
	ln.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return caller, c.(*net.TCPConn)
}

// carries writes size bytes to from and reports whether all of them arrive at to within wait.
func carries(t *testing.T, from, to *net.TCPConn, size int, wait time.Duration) bool {
	t.Helper()
	from.SetWriteDeadline(time.Now().Add(wait))
	to.SetReadDeadline(time.Now().Add(wait))
	written := make(chan error, 1)
	go func() { _, err := from.Write(make([]byte, size)); written <- err }()
	n, err := io.CopyN(io.Discard, to, int64(size))
	werr := <-written
	for _, e := range []error{err, werr} {
		if e != nil && !errors.Is(e, os.ErrDeadlineExceeded) {
			t.Fatalf("after %d of %d bytes: %v", n, size, e)
		}
	}
	return err == nil
}

// TestBlackHole: TCP starts, stalls with full segments in either direction, and continues when one
// end keeps its segments small, which also limits the other.
func TestBlackHole(t *testing.T) {
	for _, preset := range []string{"mtu-1400", noRoute + "mtu-1400"} {
		t.Run(preset, func(t *testing.T) {
			_, inside, pub := siteAndPub(t, preset)
			clamp := func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1360) }
			for _, c := range []struct {
				name    string
				control func(int) error
				flows   bool
			}{{"full segments", nil, false}, {"small segments", clamp, true}} {
				wait := quiet
				if c.flows {
					wait = 5 * patience
				}
				for _, way := range []string{"out", "in"} {
					caller, listener := connected(t, inside, pub, pub.Addr(), c.control)
					if !carries(t, caller, listener, 1000, patience) {
						t.Errorf("%s: the first 1000 bytes do not arrive", c.name)
					}
					from, to := caller, listener
					if way == "in" {
						from, to = listener, caller
					}
					if got := carries(t, from, to, 200<<10, wait); got != c.flows {
						t.Errorf("%s %s: 200 KiB arrive: %v, want %v", c.name, way, got, c.flows)
					}
				}
			}
		})
	}
}

// TestSlowUDP: of a burst of datagrams only as many arrive, in either direction, as the bucket and
// the rate allow, while TCP is unaffected.
func TestSlowUDP(t *testing.T) {
	for _, preset := range []string{"udp-slow", noRoute + "udp-slow"} {
		t.Run(preset, func(t *testing.T) {
			_, inside, pub := siteAndPub(t, preset)
			profile, err := Profile(preset)
			if err != nil {
				t.Fatal(err)
			}
			mine, theirs := udpPair(t, inside, pub)
			checkRate(t, "out", mine, theirs, profile.UDPRate)
			checkRate(t, "in", theirs, mine, profile.UDPRate)
			caller, listener := connected(t, inside, pub, pub.Addr(), nil)
			for name, c := range map[string][2]*net.TCPConn{"out": {caller, listener}, "in": {listener, caller}} {
				// At the rate of datagrams it would take half a minute.
				if !carries(t, c[0], c[1], 4<<20, 5*patience) {
					t.Errorf("TCP %s: 4 MiB do not arrive in %v", name, 5*patience)
				}
			}
		})
	}
}

// udpPair returns two sockets connected to each other, after the inside socket has opened the path.
func udpPair(t *testing.T, inside, pub *Host) (mine, theirs *net.UDPConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	at, err := pub.ListenPacket("udp", ":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	c, err := inside.Dial(ctx, "udp", netip.AddrPortFrom(pub.Addr(), 7000).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write([]byte("open")); err != nil {
		t.Fatal(err)
	}
	at.SetReadDeadline(time.Now().Add(patience))
	_, from, err := at.ReadFrom(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	at.Close() // its port is reused
	err = pub.Do(func() (err error) {
		theirs, err = net.DialUDP("udp4", &net.UDPAddr{Port: 7000}, from.(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	return c.(*net.UDPConn), theirs
}

// checkRate sends far more at once than rate (bit/s) lets through.
func checkRate(t *testing.T, way string, from, to *net.UDPConn, rate uint64) {
	t.Helper()
	const size, count = 1000, 500 // four seconds' worth at 1 Mbit/s
	b := throttle(int64(rate))
	start := time.Now()
	for range count {
		if _, err := from.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	received := 0
	for {
		to.SetReadDeadline(time.Now().Add(2 * quiet))
		n, err := to.Read(make([]byte, 2*size))
		if err != nil {
			break
		}
		received += n
	}
	most := int(b.burst) + int(float64(b.rate)*time.Since(start).Seconds())
	if least := int(b.queue) / 2; received < least || received > most {
		t.Errorf("UDP %s: %d bytes arrive of %d, want %d to %d", way, received, count*size, least, most)
	}
}

// TestPacketTooBig: path MTU discovery works through the filters of sites with IPv6, whose routers
// do not fragment (RFC 8200, section 5).
func TestPacketTooBig(t *testing.T) {
	for _, preset := range []string{"nat-ipv6", "nat-symmetric-ipv6", noRoute + "nat-ipv6"} {
		t.Run(preset, func(t *testing.T) {
			l, inside, pub := siteAndPub(t, preset)
			uplink := ""
			for _, h := range l.plan.hosts {
				if h.name == pub.Name() {
					uplink = h.uplink
				}
			}
			if err := l.internet.Do(func() error { return SetMTU(uplink, 1300) }); err != nil {
				t.Fatal(err)
			}
			caller, listener := connected(t, inside, pub, pub.Addr6(), nil)
			if !carries(t, caller, listener, 200<<10, 5*patience) {
				t.Error("200 KiB do not pass a link of 1300 bytes")
			}
		})
	}
}
