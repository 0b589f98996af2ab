package link

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMovedAway: when the host of either end loses the address of an idle link's carrier, that end
// replaces the carrier at once, and nothing is lost.
func TestMovedAway(t *testing.T) {
	for rank := range uint32(2) {
		t.Run(fmt.Sprint("rank ", rank), func(t *testing.T) {
			socket, _ := tcpPair(t)
			synctest.Test(t, func(t *testing.T) { movedAway(t, socket, rank) })
		})
	}
}

func movedAway(t *testing.T, socket net.Conn, rank uint32) {
	r := newRoads(t)
	r.socket = socket
	var gone atomic.Bool
	var asked [2]atomic.Int32
	r.hasAddress = func(of uint32, a netip.Addr) bool {
		if a != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
			t.Errorf("asked for %v", a)
		}
		asked[of].Add(1)
		return of != rank || !gone.CompareAndSwap(true, false)
	}
	a, b := couple(t, r, 0)
	pump(t, a, b, 1<<20)
	comes(t, "the first check", func() bool { return asked[rank].Load() > 0 })
	old := a.stream.Carriers()[0].Carrier
	gone.Store(true)
	comes(t, "another carrier", func() bool {
		now := a.stream.Carriers()
		return len(now) > 0 && now[0].Carrier != old
	})
	pump(t, a, b, 1<<20)
}

// TestForeignAddress: an address that was never one of this host's is not checked.
func TestForeignAddress(t *testing.T) {
	socket, _ := tcpPair(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		r.socket = socket
		var asked atomic.Int32
		r.hasAddress = func(uint32, netip.Addr) bool { asked.Add(1); return false }
		a, b := couple(t, r, 0)
		comes(t, "a check at each end", func() bool { return asked.Load() == 2 })
		comes(t, "silence", func() bool { return a.stream.Carriers()[0].Quiet > 2*quietBefore })
		pump(t, a, b, 1<<20)
		if asked.Load() != 2 || r.total() != 1 {
			t.Errorf("%d checks and %d connections, want 2 and 1", asked.Load(), r.total())
		}
	})
}

// comes waits until ok.
func comes(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}
