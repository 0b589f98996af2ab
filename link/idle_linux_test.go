package link

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel gives up a link's socket after the user timeout and leaves the questions to the watch,
// whatever wraps the socket.
func TestSocketsOfALink(t *testing.T) {
	for _, seal := range []bool{false, true} {
		x, y := tcpPair(t)
		a, b := x.(*net.TCPConn), y.(*net.TCPConn)
		options := func(c *net.TCPConn) (timeout, keepalive int) {
			raw, err := c.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			raw.Control(func(fd uintptr) {
				timeout, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
				keepalive, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
			})
			return timeout, keepalive
		}
		if _, on := options(a); on == 0 {
			t.Error("a socket has no keepalive to turn off: the test shows nothing")
		}
		m := newTrial(t)
		m.sealDialler = seal
		d, g := m.run(t, a, b)
		if d.err != nil || g.err != nil {
			t.Fatal(d.err, g.err)
		}
		for _, c := range []*net.TCPConn{a, b} {
			if timeout, keepalive := options(c); timeout != int(deadPeer.Milliseconds()) || keepalive != 0 {
				t.Errorf("sealed: %v: TCP_USER_TIMEOUT %d, SO_KEEPALIVE %d", seal, timeout, keepalive)
			}
		}
	}
}
