package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
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

// TestMovedToABetterNetwork: a link that has looked for a better path than a relay in vain, and then less and less often,
// looks for one soon after the host of either end has got another address.
func TestMovedToABetterNetwork(t *testing.T) {
	for rank := range uint32(2) {
		t.Run(fmt.Sprint("rank ", rank), func(t *testing.T) {
			socket, _ := tcpPair(t)
			synctest.Test(t, func(t *testing.T) {
				r := newRoads(t)
				r.socket = socket
				var gone atomic.Bool
				r.hasAddress = func(of uint32, a netip.Addr) bool { return of != rank || !gone.CompareAndSwap(true, false) }
				r.block(overlay.Direct, errors.New("the road is closed"))
				links, meshes := meshesOf(t, r, 0)
				if err := meshes[1].Connect(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				a, b := linked(links[0]), linked(links[1])
				current(t, a, overlay.Relay)
				current(t, b, overlay.Relay)
				for i, m := range meshes {
					sv := m.kept()[0]
					comes(t, "a look that finds nothing", func() bool {
						sv.mu.Lock()
						defer sv.mu.Unlock()
						if !sv.link.Dialled || sv.lookout.interval > firstLook && !sv.improving {
							sv.lookout.at, sv.lookout.interval = time.Now().Add(time.Hour), time.Hour
							if sv.link.Dialled && uint32(i) == rank { // what it has found holds no longer
								sv.ranker.recordOf(overlay.Direct).until = time.Now().Add(time.Hour)
							}
							return true
						}
						return false
					})
				}
				old := a.stream.Carriers()[0].Carrier
				gone.Store(true)
				comes(t, "another relay", func() bool {
					now := a.stream.Carriers()
					return len(now) > 0 && now[0].Carrier != old
				})
				r.block(overlay.Direct, nil)
				current(t, a, overlay.Direct)
				current(t, b, overlay.Direct)
				pump(t, a, b, 1<<20)
			})
		})
	}
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
