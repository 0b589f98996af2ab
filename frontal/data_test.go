package frontal

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

const farAway = "203.0.113.7:443" // what pointAt says

// TestCarry: a node without a route reaches an address that the broker named.
func TestCarry(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	far := testkit.Listen(t)
	r.outside(farAway, far.Addr().String())
	if _, err := h.ask(9, false); err != nil {
		t.Fatal(err)
	}
	near, err := h.carry(farAway)
	if err != nil {
		t.Fatal(err)
	}
	other, err := far.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetDeadline(time.Now().Add(patience))
	testkit.Exchange(t, near, other)
	r.until("the link is over", func() bool { c := r.f.status().Links; return c.Live == 0 && c.Total == 1 })
	if c := r.f.status().Links; c.Bytes != 600_000 {
		t.Errorf("%d bytes were counted", c.Bytes)
	}
	r.until("the link is in the log", func() bool { return strings.Contains(r.log.String(), "msg=carried") })
	if log := r.log.String(); !strings.Contains(log, "kind=carry job="+string(job)+` ranks="[0 9]" node=a1`) || !strings.Contains(log, "cause=ended bytes_out=300000 bytes_in=300000 duration=") {
		t.Errorf("log: %s", log)
	}
}

func TestCarryOnlyWithoutARoute(t *testing.T) {
	r := newRig(t, plain)
	h := r.helper("a1")
	h.register(0)
	_, err := h.carry(farAway)
	if want := "frontal sitea: not permitted: site sitea is not gateway_only; its nodes dial for themselves"; !errors.Is(err, overlay.ErrForbidden) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func roundTrip(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	conn.Write([]byte("ping"))
	conn.CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "ping" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestInbound: a connection to the gateway's address is passed to the process.
func TestInbound(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	intro := &wire.Intro{Kind: wire.IntroProcess, Job: job, Rank: 0, From: overlay.NodeID{Site: "siteb", Name: "b1"}, Technique: overlay.Direct, Via: overlay.ViaTarget}
	outer := testkit.Show(r.t, r.f.gateway.PublicAddr, intro)
	inner := h.accept()
	if frame, err := wire.Read(inner); err != nil || *frame.(*wire.Intro) != *intro {
		t.Fatalf("the helper got %+v, %v", frame, err)
	}
	testkit.Exchange(t, outer, inner)
	r.until("the link is in the log", func() bool { return strings.Contains(r.log.String(), "kind=inbound") })
	if !strings.Contains(r.log.String(), `ranks=[0] node=a1 peer=siteb/b1`) {
		t.Error(r.log)
	}
}

// TestCarriedLinksOutliveTheBroker and end with the frontal.
func TestCarriedLinksOutliveTheBroker(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	outer := testkit.Show(r.t, r.f.gateway.PublicAddr, &wire.Intro{Kind: wire.IntroProcess, Job: job})
	inner := h.accept()
	wire.Read(inner)
	r.broker.stop()
	h.s.Close()
	r.until("both sessions are lost", func() bool { s := r.f.status(); return !s.Broker.Up && !s.Helpers[0].Up })
	io.WriteString(outer, "still here")
	got := make([]byte, 10)
	if _, err := io.ReadFull(inner, got); err != nil || string(got) != "still here" {
		t.Errorf("%q, %v", got, err)
	}
	r.stop()
	if _, err := outer.Read(got); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the frontal's end: %v", err)
	}
}

// TestManyLinksLeakNothing: no goroutine, no descriptor.
func TestManyLinksLeakNothing(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	far := testkit.Listen(t)
	echo(t, far)
	r.outside(farAway, far.Addr().String())
	h.ask(9, false)
	one := func() {
		conn, err := h.carry(farAway)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		roundTrip(t, conn)
	}
	batch := func(n int) (goroutines, files int) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range n / 20 {
					one()
				}
			})
		}
		wg.Wait()
		r.until("all links are over", func() bool { return r.f.status().Links.Live == 0 })
		return runtime.NumGoroutine(), openFiles(t)
	}
	batch(40) // fills what is kept for reuse
	g0, f0 := batch(20)
	batch(100)
	r.until("goroutines and descriptors are back", func() bool {
		return runtime.NumGoroutine() <= g0+5 && openFiles(t) <= f0+5
	})
	if n := r.f.status().Links.Total; n != 160 {
		t.Errorf("%d links", n)
	}
}

// openFiles returns the number of this process's descriptors; 0 if unknown.
func openFiles(t *testing.T) int {
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// TestServeLeavesNothing: many frontals, one after the other.
func TestServeLeavesNothing(t *testing.T) {
	r := newRig(t, nil)
	r.helper("a1").register(0)
	r.stop()
	cfg := *r.f.config()
	r.startFrontal(cfg)
	r.waitUp()
	r.stop()
	g0 := runtime.NumGoroutine()
	for range 20 {
		r.startFrontal(cfg)
		r.waitUp()
		r.stop()
	}
	r.until("goroutines are back", func() bool { return runtime.NumGoroutine() <= g0+2 })
}

// TestThroughAnHTTPProxy: the broker's session and carried data use the site's proxy if there is no
// other route out.
func TestThroughAnHTTPProxy(t *testing.T) {
	ln := testkit.Listen(t)
	tunnels := make(chan string, 100)
	go connectProxy(ln, tunnels)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *Config) {
		c.HTTPProxy.Address, c.HTTPProxy.User = ln.Addr().String(), "sitea"
		c.HTTPProxy.PasswordFile = daemon.Path(password)
		c.Profile.Egress = Given(overlay.EgressHTTPProxy)
	})
	if got := testkit.Receive(t, "a tunnel", tunnels); got != r.broker.addr+" sitea:secret" {
		t.Errorf("tunnel to %s", got)
	}
	h := r.helper("a1")
	h.register(0)
	far := testkit.Listen(t)
	echo(t, far)
	r.outside(farAway, far.Addr().String())
	h.ask(9, false)
	conn, err := h.carry(farAway)
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, conn)
	if got := testkit.Receive(t, "a tunnel", tunnels); got != far.Addr().String()+" sitea:secret" {
		t.Errorf("tunnel to %s", got)
	}
}

// connectProxy opens every requested tunnel and reports its destination.
func connectProxy(ln net.Listener, tunnels chan<- string) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				return
			}
			req.Header.Set("Authorization", req.Header.Get("Proxy-Authorization"))
			user, password, _ := req.BasicAuth()
			tunnels <- req.Host + " " + user + ":" + password
			to, err := net.Dial("tcp", req.Host)
			if err != nil {
				return
			}
			defer to.Close()
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			go func() { io.Copy(to, conn); to.(*net.TCPConn).CloseWrite() }()
			io.Copy(conn, to)
		}()
	}
}

func TestStatus(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0, 1)
	h.ask(9, false)
	s, err := r.dialAs(control.Identity{Role: control.RoleAdmin, Name: "root"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := controlpb.NewAdminClient(s.Conn()).Status(h.ctx(), &controlpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got Status
	if err := json.Unmarshal(resp.Json, &got); err != nil {
		t.Fatal(err)
	}
	if got.Site != "sitea" || !got.Broker.Up || got.Broker.Name != "main" || got.Broker.Epoch != 1 || got.Jobs[job] != 2 ||
		len(got.Helpers) != 1 || got.Helpers[0].Node != "a1" || got.Helpers[0].Processes != 2 || got.Helpers[0].Address != h.s.LocalAddr().String() ||
		got.Resolve.Calls != 1 || got.Public != r.f.gateway.PublicAddr.String() || !got.Profile.GatewayOnly {
		t.Errorf("%s", resp.Json)
	}
}
