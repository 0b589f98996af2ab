//go:build system

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab/wan"
	"golang.org/x/sys/unix"
)

func TestCommandRunsInItsHost(t *testing.T) {
	l := up(t, twoSites())
	for _, h := range l.Hosts() {
		out, err := h.Command(context.Background(), "cat", "/proc/net/fib_trie").Output()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(out), h.Addr().String()+"\n") {
			t.Errorf("%s: its address %v is not among the command's", h.Name(), h.Addr())
		}
	}
	out, err := l.Host("alpha/n1").Command(context.Background(), "sh", "-c", "cat /etc/hosts; echo err >&2").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "broker.pub") || !strings.Contains(string(out), "err") {
		t.Errorf("hosts file: %v\n%s", err, out)
	}
}

// TestCommandGroupEnds checks the three ways in which a command's process group ends.
func TestCommandGroupEnds(t *testing.T) {
	spec := Spec{Sites: []Site{{Name: "a", Preset: "open", Nodes: Nodes(1)}}}
	for _, end := range []string{"context", "waited", "lab closed"} {
		l := up(t, spec)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		script := "sleep 1000 & echo $!; wait"
		if end == "waited" {
			script = "sleep 1000 >/dev/null 2>&1 & echo $!"
		}
		cmd := l.Host("a/n1").Command(ctx, "sh", "-c", script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var child int
		if _, err := fmt.Fscan(out, &child); err != nil {
			t.Fatal(err)
		}
		switch end {
		case "context":
			cancel()
		case "lab closed":
			l.Close()
		}
		cmd.Wait()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("%s: the command had to be ended", end)
		}
		if !endsSoon(child) {
			t.Errorf("%s: the child %d of the command lives on", end, child)
		}
	}
}

// endsSoon reports whether the process ends within five seconds.
func endsSoon(pid int) bool {
	for range 500 {
		if unix.Kill(pid, 0) != nil {
			return true
		}
		time.Sleep(10 * time.Millisecond) // a killed process ends in the kernel's own time
	}
	return false
}

func TestDoReturnsHome(t *testing.T) {
	l := up(t, twoSites())
	home := namespace(t)
	err := l.Host("alpha/n1").Do(func() error {
		outer := namespace(t)
		if outer == home {
			t.Error("Do does not change the namespace")
		}
		err := l.Host("alpha/n2").Do(func() error {
			if namespace(t) == outer {
				t.Error("the inner Do does not change the namespace")
			}
			return nil
		})
		if namespace(t) != outer {
			t.Error("the inner Do does not return to the outer")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if namespace(t) != home {
		t.Error("Do does not return")
	}
	h := l.Host("alpha/n1")
	l.Close()
	if err := h.Do(func() error { return nil }); err == nil || !strings.Contains(err.Error(), "alpha/n1") {
		t.Errorf("Do on a closed lab: %v", err)
	}
}

func namespace(t *testing.T) string {
	t.Helper()
	name, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestDialRefusesNames(t *testing.T) {
	l := up(t, twoSites())
	for _, c := range []struct{ network, addr, want string }{
		{"tcp", "broker.pub:443", "names are not looked up"},
		{"tcp6", "10.0.0.1:443", "10.0.0.1 is no address of tcp6"},
		{"udp4", "[2001:db8::1]:443", "2001:db8::1 is no address of udp4"},
		{"sctp", "10.0.0.1:443", "neither tcp nor udp"},
		{"udp46", "10.0.0.1:443", "neither tcp nor udp"},
		{"tcp", "10.0.0.1", "missing port"},
	} {
		_, err := l.Host("alpha/n1").Dial(context.Background(), c.network, c.addr)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "alpha/n1") {
			t.Errorf("%s %s: %v, want %q", c.network, c.addr, err, c.want)
		}
	}
}

func TestDialGivesBareTCP(t *testing.T) {
	l := up(t, twoSites())
	serveBanner(t, l.Host("pub/broker"), 443, "hello")
	c, err := l.Host("beta/gw").Dial(context.Background(), "tcp", l.Host("pub/broker").Addr().String()+":443")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, ok := c.(*net.TCPConn); !ok {
		t.Errorf("Dial gives a %T", c)
	}
}

// TestWANShapes checks that the spec's delay is on the path, that traffic is counted, and that a
// cut and its repair hold for both directions.
func TestWANShapes(t *testing.T) {
	spec, err := Parse("test", []byte(`
wan:
  rtt: 4ms
  pairs: [{between: [a, b], rtt: 30ms}]
sites:
  - {name: a, preset: open}
  - {name: b, preset: open}
  - {name: pub, preset: public, nodes: [x]}
`))
	if err != nil {
		t.Fatal(err)
	}
	l := up(t, spec)
	serveEcho(t, l.Host("b/n1"), 7000)
	serveEcho(t, l.Host("pub/x"), 7000)
	ping := func(from, to string, least time.Duration) {
		t.Helper()
		start := time.Now()
		got := probe(l.Host(from), "udp", netip.AddrPortFrom(l.Host(to).Addr(), 7000))
		if took := time.Since(start); got != "echo" || took < least {
			t.Errorf("%s to %s: %s after %v, want an echo after %v", from, to, got, took, least)
		}
	}
	ping("a/n1", "b/n1", 30*time.Millisecond)
	ping("a/n1", "pub/x", 4*time.Millisecond)
	for _, c := range l.Traffic() {
		counted := c.Packets > 0
		if used := c.From == "a" || c.To == "a"; counted != used {
			t.Errorf("%s to %s: %d packets", c.From, c.To, c.Packets)
		}
	}

	if err := l.Cut("a", "b"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range [][2]string{{"a/n1", "b/n1"}, {"b/n1", "a/n1"}} {
		if got := probeAll(l.Host(dir[0]), "udp", netip.AddrPortFrom(l.Host(dir[1]).Addr(), 7000), quiet); got != "drop" {
			t.Errorf("%v while cut: %s", dir, got)
		}
	}
	for _, c := range l.Traffic() {
		cut := c.From == "a" && c.To == "b" || c.From == "b" && c.To == "a"
		if (c.Dropped > 0) != cut {
			t.Errorf("%s to %s: %d packets dropped", c.From, c.To, c.Dropped)
		}
	}
	ping("a/n1", "pub/x", 4*time.Millisecond)
	if err := l.Restore("a", "b"); err != nil {
		t.Fatal(err)
	}
	ping("a/n1", "b/n1", 30*time.Millisecond)
	if err := l.SetWAN("a", "b", wan.Shape{Delay: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	ping("a/n1", "b/n1", 65*time.Millisecond)
}

// TestWANUplink checks that an access link is limited in both directions, with and without a
// provider's router on it: the contents of its bucket go at once, the rest at its rate.
func TestWANUplink(t *testing.T) {
	t.Parallel()
	const rate, size = 8 << 20, 1 << 20 // 1 MiB at 1 MiB/s
	l := up(t, Spec{Sites: []Site{
		{Name: "a", Preset: "open", Nodes: Nodes(1), Uplink: rate},
		{Name: "b", Preset: "udp-slow", Nodes: Nodes(1), Uplink: rate},
		{Name: "c", Preset: "open", Nodes: Nodes(1), Uplink: rate, Burst: 8 << 10},
		{Name: "pub", Preset: Public, Nodes: []string{"x"}},
	}})
	pub := l.Host("pub/x")
	for site, least := range map[string]time.Duration{"a": 800 * time.Millisecond, "b": 800 * time.Millisecond, "c": 980 * time.Millisecond} {
		caller, listener := connected(t, l.Host(site+"/n1"), pub, pub.Addr(), nil)
		for way, c := range map[string][2]*net.TCPConn{"out": {caller, listener}, "in": {listener, caller}} {
			start := time.Now()
			if !carries(t, c[0], c[1], size, 30*time.Second) {
				t.Fatalf("%s %s: 1 MiB does not arrive", site, way)
			}
			if took := time.Since(start); took < least {
				t.Errorf("%s %s: 1 MiB went through a 1 MiB/s link in %v", site, way, took)
			}
		}
	}
}
