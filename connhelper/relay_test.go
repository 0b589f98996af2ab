package connhelper

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// awaitReports waits until both the failure of one proxy and that another one carries have been reported.
func (f *fakeFrontal) awaitReports(failed, cause, works string) {
	f.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		seen := map[string]bool{}
		f.mu.Lock()
		for _, r := range f.reports {
			if r.Fault != nil {
				seen["failed "+r.Proxy] = true
				if want := cause; !strings.Contains(r.Fault.Text, want) {
					f.t.Errorf("a proxy failed for %q, want %q", r.Fault.Text, want)
				}
			} else if r.TargetSite == "" && r.Plan == 0 {
				seen["works "+r.Proxy] = true
			}
		}
		f.mu.Unlock()
		if seen["failed "+failed] && seen["works "+works] && !seen["failed "+works] && !seen["works "+failed] {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("reports: %v", seen)
		}
	}
}

// A proxy that accepts connections and is silent does not hold a link up: another one races with it, and the
// silent one is reported.
func TestSilentProxy(t *testing.T) {
	key := newKey(t)
	f := newFakeFrontal(t, open, overlay.Relay)
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	f.doubtful = &controlpb.Assignment{Proxy: "silent", Addresses: []string{silent.Addr().String()}, Ticket: f.relay.Ticket}
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	path, c := r0.dialled(1)
	in, d := r1.incoming()
	if path.Proxy != "p1" || in.Proxy != "p1" {
		t.Errorf("paths %v, %v", path, in)
	}
	joined(t, c, d)
	f.awaitReports("silent", errProxySlow.Error(), "p1")
}

// A proxy that answers and swallows what it is sent is found out by the link's handshake, which takes long: the relay
// that is dialled then goes through another proxy.
func TestSwallowingProxy(t *testing.T) {
	key := newKey(t)
	f := newFakeFrontal(t, open, overlay.Relay)
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	good := f.relay
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "swallows"})
	f.doubtful, f.relay = f.relay, good
	f.doubtful.Proxy = "swallows"
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	first, c := r0.dial(1, overlay.AllWays)
	defer c.Close()
	_, d := r1.incoming()
	defer d.Close()
	if first.Path.Proxy != "swallows" {
		t.Errorf("path %v", first.Path)
	}
	path, c := r0.dialledBy(1, overlay.RelayOnly|overlay.SmallPackets)
	in, d := r1.incoming()
	if path.Proxy != "p1" || in.Proxy != "p1" {
		t.Errorf("paths %v, %v", path, in)
	}
	joined(t, c, d)
	r0.send(&wire.LocalOutcome{Carrier: first.Carrier, Code: wire.CodeTimeout, Text: "it carried no handshake"})
	f.awaitReports("swallows", "carried no handshake", "p1")
}

// Where there is no other proxy the one in doubt is used.
func TestNoOtherProxy(t *testing.T) {
	key := newKey(t)
	f := newFakeFrontal(t, open, overlay.Relay)
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	f.alone = true
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	_, c := r0.dial(1, overlay.AllWays)
	_, d := r1.incoming()
	joined(t, c, d)
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	path, c := r0.dialledBy(1, overlay.RelayOnly)
	_, d = r1.incoming()
	if path.Proxy != "p1" {
		t.Errorf("path %v", path)
	}
	joined(t, c, d)
}

// What times out is the proxy's fault, and not that of the size of its packets, if the next relay went through another.
func TestDoubtedProxy(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	p := new(process)
	if p.doubtedProxy(1, now) != "" || p.relayedElsewhere(1, "p1") {
		t.Error("a proxy is in doubt before there was one")
	}
	p.noteRelay(1, latestRelay{proxy: "p1", since: now})
	if p.doubtedProxy(1, now) != "p1" || p.doubtedProxy(2, now) != "" || p.doubtedProxy(1, now.Add(doubtLife)) != "" || p.relayedElsewhere(1, "p1") {
		t.Error("the latest proxy is not in doubt, or for ever, or for other ranks")
	}
	p.noteRelay(1, latestRelay{proxy: "p2", works: true})
	if p.doubtedProxy(1, now) != "" || !p.relayedElsewhere(1, "p1") || p.relayedElsewhere(1, "p2") || p.relayedElsewhere(1, "") {
		t.Error("after a relay through another one")
	}
}

// How long a proxy may take to answer follows how long it took to be assigned, which crosses the same network.
func TestAwaitDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ assigned, over, want time.Duration }{
			{time.Millisecond, time.Hour, relayDoubt + time.Millisecond},
			{time.Second, time.Hour, (1 + doubtTrips) * time.Second},
			{time.Second, 2 * time.Second, 2 * time.Second}, // it has failed
		} {
			a, start := newRelayAttempt(), time.Now()
			go func() { // ends with the case
				time.Sleep(c.assigned)
				a.took = time.Since(a.begun)
				a.close()
				time.Sleep(c.over - c.assigned)
				close(a.over)
			}()
			if err := a.awaitDoubt(t.Context()); err != nil || time.Since(start) != c.want {
				t.Errorf("%+v: in doubt after %v, %v", c, time.Since(start), err)
			}
			<-a.over
		}
	})
}
