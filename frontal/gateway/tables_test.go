package gateway

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// TestAllowed: only named addresses, only for a while, and some never.
func TestAllowed(t *testing.T) {
	a := newAllowed(netrule.Rule{Deny: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, Private: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, time.Minute)
	for _, tc := range []struct {
		addr  string
		named bool
		after time.Duration
		want  string // "" is allowed
	}{
		{"203.0.113.7:443", true, 0, ""},
		{"203.0.113.7:443", true, time.Minute, "did not name 203.0.113.7:443 to this site in the last 1m0s"},
		{"203.0.113.8:443", false, 0, "did not name 203.0.113.8:443 to this site"},
		{"[::ffff:203.0.113.9]:443", true, 0, ""},
		{"[2001:db8::1]:443", true, 0, ""},
		{"127.0.0.1:443", true, 0, "127.0.0.1:443 is a loopback address; those are never dialled"},
		{"127.8.8.8:443", true, 0, "loopback"},
		{"[::1]:443", true, 0, "loopback"},
		{"[::ffff:127.0.0.1]:443", true, 0, "loopback"},
		{"[::127.0.0.1]:443", true, 0, "translated IPv4"},
		{"[64:ff9b::7f00:1]:443", true, 0, "translated IPv4"},
		{"[64:ff9b:1::7f00:1]:443", true, 0, "translated IPv4"},
		{"169.254.169.254:80", true, 0, "link-local"},
		{"[fe80::1%lo]:80", true, 0, "link-local"},
		{"224.0.0.1:80", true, 0, "multicast"},
		{"[ff02::1]:80", true, 0, "multicast"},
		{"0.0.0.0:80", true, 0, "unspecified"},
		{"0.1.2.3:80", true, 0, "unspecified"},
		{"[::]:80", true, 0, "unspecified"},
		{"255.255.255.255:80", true, 0, "broadcast"},
		{"10.9.1.2:80", true, 0, "10.9.1.2 lies in 10.9.0.0/16, which this host's settings deny"},
		{"10.8.1.2:80", true, 0, ""},
		{"192.168.1.2:80", true, 0, "192.168.1.2 lies in 192.168.0.0/16: processes of other sites are not looked for on private networks"},
		{"localhost:80", true, 0, `"localhost:80" is not an address:port`},
	} {
		if tc.named {
			a.name(tc.addr, true, epoch0)
		}
		_, err := a.check(tc.addr, epoch0.Add(tc.after))
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.addr, err)
		case tc.want != "" && (!errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", tc.addr, err, tc.want)
		}
	}
}

func TestCarriesAreBoundedAndTakenOnce(t *testing.T) {
	c := newCarries(Limits{Pending: 2, PendingPerNode: 1})
	v := new(carry)
	if err := c.add(wire.ID{1}, v); err != nil {
		t.Fatal(err)
	}
	if err := c.add(wire.ID{2}, v); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "limits.pending_per_node") {
		t.Errorf("one too many: %v", err)
	}
	if err := c.add(wire.ID{3}, &carry{forwardedLink: forwardedLink{node: "n2"}}); err != nil {
		t.Errorf("another node's: %v", err)
	}
	if c.take(wire.ID{1}) != v || c.take(wire.ID{1}) != nil {
		t.Error("not taken once")
	}
}

func TestReturns(t *testing.T) {
	r := newReturns(Limits{Pending: 2, PendingPerNode: 1})
	id := wire.ID{1}
	if err := r.add(id, returning{proc(3), "n1", epoch0.Add(time.Minute)}, epoch0); err != nil {
		t.Fatal(err)
	}
	if err := newReturnsWith(id).add(id, returning{proc(4), "n1", epoch0.Add(time.Minute)}, epoch0); !errors.Is(err, overlay.ErrForbidden) {
		t.Errorf("an id twice: %v", err)
	}
	if err := r.add(wire.ID{2}, returning{node: "n1"}, epoch0); !errors.Is(err, overlay.ErrOverloaded) {
		t.Errorf("one too many: %v", err)
	}
	r.end(id, epoch0.Add(10*time.Second))
	if p, ok := r.find(id, epoch0.Add(9*time.Second)); !ok || p != proc(3) {
		t.Errorf("before its end: %v, %v", p, ok)
	}
	if _, ok := r.find(id, epoch0.Add(10*time.Second)); ok {
		t.Error("found after its end")
	}
	if err := r.add(wire.ID{2}, returning{node: "n1"}, epoch0.Add(10*time.Second)); err != nil {
		t.Errorf("the place of one that is over: %v", err)
	}
}

// newReturnsWith returns a table with room that holds id.
func newReturnsWith(id wire.ID) *returns {
	r := newReturns(Limits{Pending: 2})
	r.wait[id] = returning{proc(3), "n1", epoch0.Add(time.Minute)}
	return r
}

// A link works that has carried more than a handshake, and both ways.
func TestHasWorked(t *testing.T) {
	for s, want := range map[carrier.Stats]bool{
		{}: false, {AToB: 1 << 20}: false, {BToA: 1 << 20}: false, {AToB: 5000, BToA: 5000}: false, {AToB: 20_000, BToA: 100}: true, {AToB: 100, BToA: 20_000}: true,
	} {
		if got := hasWorked(s); got != want {
			t.Errorf("%+v: %v", s, got)
		}
	}
}
