package connhelper

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// TestEntersAgainAfterMove: a helper whose host loses the address at which others reach it enters again, although its
// session goes on, and registers its processes with the new one; links that look for a better path then find it.
func TestEntersAgainAfterMove(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	var gone atomic.Bool
	f.hasAddress = func(netip.Addr) bool { return !gone.CompareAndSwap(true, false) }
	socket, _ := f.helper("a1")
	join(t, socket, newKey(t), 0)
	f.mu.Lock()
	again := f.registers
	f.mu.Unlock()
	gone.Store(true)
	select {
	case <-again:
	case <-time.After(30 * time.Second):
		t.Fatal("the process was not registered again")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.offered) != 2 {
		t.Errorf("the helper entered %d times, want 2", len(f.offered))
	}
}

// TestAwaitMove: what a host loses, and what it is to be reached at instead.
func TestAwaitMove(t *testing.T) {
	facing, set, other := netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("192.0.2.6"), netip.MustParseAddr("2001:db8::5")
	for name, tc := range map[string]struct {
		set   netip.Addr
		given []netip.Addr
		has   []netip.Addr // at first
		later []netip.Addr
		want  string // part of the change; "" if there is none
	}{
		"nothing":                  {given: []netip.Addr{facing, {}}, has: []netip.Addr{facing}, later: []netip.Addr{facing}},
		"its own":                  {given: []netip.Addr{facing}, has: []netip.Addr{facing}, want: facing.String()},
		"that of IPv6":             {given: []netip.Addr{facing, other}, has: []netip.Addr{facing, other}, later: []netip.Addr{facing}, want: other.String()},
		"one that it did not have": {given: []netip.Addr{facing, other}, has: []netip.Addr{facing}, later: []netip.Addr{facing}},
		"the one in the settings":  {set: set, given: []netip.Addr{set}, has: []netip.Addr{facing, set}, later: []netip.Addr{facing}, want: set.String()},
		"that comes back":          {set: set, given: []netip.Addr{facing}, has: []netip.Addr{facing}, later: []netip.Addr{facing, set}, want: "reached at " + set.String()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var has atomic.Pointer[[]netip.Addr]
				has.Store(&tc.has)
				v := &traversals{address: tc.set, hasAddress: func(ip netip.Addr) bool { return slices.Contains(*has.Load(), ip) }}
				change := make(chan string, 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { change <- v.awaitMove(ctx, facing, tc.given...) }()
				time.Sleep(3 * moveEvery)
				synctest.Wait()
				if len(change) > 0 {
					t.Fatalf("before anything changed: %s", <-change)
				}
				has.Store(&tc.later)
				time.Sleep(2 * moveEvery)
				cancel()
				if got := <-change; (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
					t.Errorf("%q, want %q", got, tc.want)
				}
			})
		})
	}
}
