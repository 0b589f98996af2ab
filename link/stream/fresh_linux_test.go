package stream

import (
	"testing"

	"golang.org/x/sys/unix"
)

// lowat returns a carrier's TCP_NOTSENT_LOWAT.
func lowat(t *testing.T, c *Carrier) (n int) {
	t.Helper()
	raw, err := SocketOf(c.conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		if n, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT); err != nil {
			t.Error(err)
		}
	})
	return n
}

// The bound holds on carriers that are there and on later ones; sharing with others takes the lesser.
func TestBoundUnsent(t *testing.T) {
	w := newSocketWorld(t)
	first := w.with("tcp").carriers[0]
	a := w.ends[0].Stream
	BoundUnsent(a, 16<<10)
	second := w.with("tcp").carriers[0]
	for i, c := range []*Carrier{first, second} {
		if got := lowat(t, c); got != 16<<10 {
			t.Errorf("carrier %d: the kernel holds up to %d bytes unsent", i, got)
		}
	}
	a.Use(first, 1)
	a.Use(second, 1)
	if got := lowat(t, second); got != 16<<10 {
		t.Errorf("shared: the kernel holds up to %d bytes unsent", got)
	}
	BoundUnsent(a, 1<<20)
	if got := lowat(t, second); got != unsent {
		t.Errorf("shared, with a larger bound: %d", got)
	}
}
