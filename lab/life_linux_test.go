//go:build system

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// shortLife is the life of UDP mappings in these tests; death is a bound within which it has ended
// on a busy machine.
const (
	shortLife = time.Second
	death     = 20 * time.Second
)

func mortalSite(t *testing.T, preset string) (inside *Host, a, b *Host) {
	t.Helper()
	l := up(t, Spec{Sites: []Site{
		{Name: "s", Preset: preset, Nodes: Nodes(1), UDPLife: shortLife},
		{Name: "pub", Preset: Public, Nodes: []string{"a", "b"}},
	}})
	inside = l.Host("s/n1")
	if strings.HasPrefix(preset, noRoute) {
		inside = l.Host("s/gw")
	}
	serveEcho(t, l.Host("pub/a"), 7000)
	serveEcho(t, l.Host("pub/b"), 7000)
	return inside, l.Host("pub/a"), l.Host("pub/b")
}

// TestMappingDies: neither incoming nor outgoing packets prolong the life of a mapping. After its
// end incoming packets are dropped, and outgoing ones get another port, the same towards all
// destinations.
func TestMappingDies(t *testing.T) {
	t.Parallel()
	for _, preset := range []string{"nat-double", noRoute + "nat-double"} {
		t.Run(preset, func(t *testing.T) {
			inside, a, b := mortalSite(t, preset)
			p := prober{t: t, preset: preset}
			toA, toB := netip.AddrPortFrom(a.Addr(), 7000), netip.AddrPortFrom(b.Addr(), 7000)
			pc, err := inside.ListenPacket("udp", fmt.Sprintf(":%d", ownPort))
			if err != nil {
				t.Fatal(err)
			}
			defer pc.Close()
			first := p.askFrom(pc, toA)
			if other := p.askFrom(pc, toB); first.Port() != ownPort || other != first {
				t.Errorf("the first mapping of port %d is %v to one and %v to another", ownPort, first, other)
			}
			second := first
			use := time.NewTicker(10 * time.Millisecond)
			defer use.Stop()
			for end := time.Now().Add(death); second == first; {
				if time.Now().After(end) {
					t.Fatalf("the mapping %v is in use and alive after %v", first, death)
				}
				<-use.C
				if seen := p.askFrom(pc, toA); seen.IsValid() { // an answer in transit at the end is lost
					second = seen
				}
			}
			if second.Addr() != first.Addr() {
				t.Errorf("mapped first to %v, then to %v", first, second)
			}
			if other := p.askFrom(pc, toB); other != second {
				t.Errorf("the second mapping is %v to one and %v to another", second, other)
			}
		})
	}
}

// TestMappingDiesUnderAStream: a peer that keeps sending does not keep a mapping of nat-double
// alive, but does with the single NAT of nat.
func TestMappingDiesUnderAStream(t *testing.T) {
	t.Parallel()
	inside, a, _ := mortalSite(t, "nat-double")
	if lived := streamUntilSilent(t, inside, a, death); lived > death {
		t.Errorf("the mapping lives after %v", lived)
	}
	_, inside, a = siteAndPub(t, "nat")
	if lived := streamUntilSilent(t, inside, a, 2*shortLife); lived < 2*shortLife {
		t.Errorf("the mapping of nat ended after %v", lived)
	}
}

// streamUntilSilent makes from send to a mapping of inside continuously, and returns for how long
// the packets arrived, or more than limit.
func streamUntilSilent(t *testing.T, inside, from *Host, limit time.Duration) time.Duration {
	t.Helper()
	out, err := from.ListenPacket("udp", ":7001")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := inside.Dial(ctx, "udp", netip.AddrPortFrom(from.Addr(), 7001).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("open")); err != nil {
		t.Fatal(err)
	}
	out.SetReadDeadline(time.Now().Add(patience))
	_, ext, err := out.ReadFrom(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends when out is closed
		defer close(ended)
		for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
			if _, err := out.WriteTo([]byte("stream"), ext); err != nil {
				tick.Stop()
				return
			}
		}
	}()
	defer func() { out.Close(); <-ended }()
	start := time.Now()
	for time.Since(start) <= limit {
		c.SetReadDeadline(time.Now().Add(patience)) // longer than any pause of the sender
		if _, err := c.Read(make([]byte, 10)); err != nil {
			return time.Since(start) - patience
		}
	}
	return time.Since(start)
}
