package frontal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// exchange sends 300 kB in each direction concurrently, ends each direction separately, and checks
// the received data.
func exchange(t *testing.T, a, b net.Conn) {
	t.Helper()
	const size = 300_000
	send := func(c net.Conn, fill byte) error {
		_, err := c.Write([]byte(strings.Repeat(string(fill), size)))
		return errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}
	receive := func(c net.Conn, fill byte) error {
		got, err := io.ReadAll(c)
		if err == nil && (len(got) != size || strings.Trim(string(got), string(fill)) != "") {
			err = fmt.Errorf("%d bytes arrived, or not those that were sent", len(got))
		}
		return err
	}
	var wg sync.WaitGroup
	for _, work := range []func() error{
		func() error { return send(a, 'a') }, func() error { return send(b, 'b') },
		func() error { return receive(a, 'b') }, func() error { return receive(b, 'a') },
	} {
		wg.Go(func() {
			if err := work(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

const farAway = "203.0.113.7:443" // what pointAt says

// TestCarry: a node without a route reaches an address that the broker named.
func TestCarry(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	far := listenLoop(t)
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
	exchange(t, near, other)
	r.until("the link is over", func() bool { c := r.f.status().Links; return c.Live == 0 && c.Total == 1 })
	if c := r.f.status().Links; c.Bytes != 600_000 {
		t.Errorf("%d bytes were counted", c.Bytes)
	}
	r.until("the link is in the log", func() bool { return strings.Contains(r.log.String(), "msg=carried") })
	if log := r.log.String(); !strings.Contains(log, "kind=carry job="+string(job)+` ranks="[0 9]" node=a1`) || !strings.Contains(log, "cause=ended bytes_out=300000 bytes_in=300000 duration=") {
		t.Errorf("log: %s", log)
	}
}

// TestCarryRefuses: the gateway is not an open relay.
func TestCarryRefuses(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Deny = []netip.Prefix{netip.MustParsePrefix("203.0.113.128/25")} })
	h := r.helper("a1")
	h.register(0)
	for _, addr := range []string{"127.0.0.1:80", "169.254.169.254:80", "203.0.113.200:443", farAway} {
		r.f.gateway.Allow(addr) // even if a broker were to name them
	}
	many := strings.Split(strings.Repeat(farAway+" ", 9), " ")[:9]
	for _, tc := range []struct {
		addrs []string
		class error
		text  string
	}{
		{[]string{"127.0.0.1:80"}, overlay.ErrForbidden, "frontal sitea: not permitted: 127.0.0.1:80 is a loopback address; those are never dialled for a node"},
		{[]string{"169.254.169.254:80"}, overlay.ErrForbidden, "169.254.169.254:80 is a link-local address"},
		{[]string{"198.51.100.99:443"}, overlay.ErrForbidden, "the broker did not name 198.51.100.99:443 to this site in the last 2m0s; resolve or signal first"},
		{[]string{farAway, "198.51.100.99:443"}, overlay.ErrForbidden, "did not name 198.51.100.99:443"},
		{[]string{"203.0.113.200:443"}, overlay.ErrForbidden, "lies in 203.0.113.128/25, which this host's settings deny"},
		{[]string{"example.org:443"}, overlay.ErrForbidden, `"example.org:443" is not an address:port`},
		{nil, wire.ErrMalformed, "0 addresses to dial, want 1 to 8"},
		{many, wire.ErrMalformed, "9 addresses to dial, want 1 to 8"},
	} {
		if _, err := h.carry(tc.addrs...); !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%v: %v, want %q", tc.addrs, err, tc.text)
		}
	}
	_, err := h.nodes.Carry(h.ctx(), &controlpb.CarryRequest{Addresses: []string{farAway}, Asker: control.ProcessToPB(proc(3)), Target: control.ProcessToPB(proc(9))})
	if err = control.FromStatus(err); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "neither is registered at its node") {
		t.Errorf("for processes elsewhere: %v", err)
	}
	if n := r.f.status().Waiting["carries"]; n != 0 {
		t.Errorf("%d connections are being dialled", n)
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

// TestCarryToNowhere: the node learns why the dial failed before it connects, so that it can try
// another path, and nothing is left behind.
func TestCarryToNowhere(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	gone := listenLoop(t)
	gone.Close()
	r.outside(farAway, gone.Addr().String())
	h.ask(9, false)
	_, err := h.carry(farAway)
	want := "frontal sitea: dial " + gone.Addr().String() + ": refused: nothing listens there, or a firewall resets"
	if !errors.Is(err, overlay.ErrRefused) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if n := r.f.status().Waiting["carries"]; n != 0 {
		t.Errorf("%d connections wait for their node", n)
	}
}

// TestCarryToSilence: a dial without an answer ends before the caller's time does, and reports
// that.
func TestCarryToSilence(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	r.outside(farAway, farAway)
	r.f.gateway.Dial = func(ctx context.Context, addr string) (*net.TCPConn, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("dial %s: %w", addr, overlay.ErrTimeout)
	}
	h.ask(9, false)
	var err error
	for range 5 { // if the machine stalls for the margin, the caller's time ends first
		ctx, cancel := context.WithTimeout(h.ctx(), 2*uplink.AnswerMargin)
		defer cancel()
		_, err = h.nodes.Carry(ctx, &controlpb.CarryRequest{Addresses: []string{farAway}, Asker: control.ProcessToPB(proc(0)), Target: control.ProcessToPB(proc(9))})
		if ctx.Err() == nil {
			break
		}
	}
	if err = control.FromStatus(err); !errors.Is(err, overlay.ErrTimeout) || err.Error() != "frontal sitea: dial "+farAway+": timed out" {
		t.Errorf("got %v", err)
	}
}

// TestCarryTriesAllAddresses: in order, until one answers.
func TestCarryTriesAllAddresses(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	gone, far := listenLoop(t), listenLoop(t)
	gone.Close()
	echo(t, far)
	r.outside("203.0.113.1:443", gone.Addr().String())
	r.outside("203.0.113.2:443", far.Addr().String())
	r.f.gateway.AllowRelay(&controlpb.Assignment{Addresses: []string{"203.0.113.1:443", "203.0.113.2:443"}}, gateway.AllowedFor)
	conn, err := h.carry("203.0.113.1:443", "203.0.113.2:443")
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, conn)
}

func roundTrip(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	conn.Write([]byte("ping"))
	conn.CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "ping" {
		t.Errorf("got %q, %v", got, err)
	}
}

// carryID asks the frontal to dial far away and returns the intro to show.
func (h *fakeHelper) carryID() *wire.Intro {
	h.r.t.Helper()
	resp, err := h.nodes.Carry(h.ctx(), &controlpb.CarryRequest{Addresses: []string{farAway}, Asker: control.ProcessToPB(proc(0)), Target: control.ProcessToPB(proc(9))})
	if err != nil {
		h.r.t.Fatal(control.FromStatus(err))
	}
	return &wire.Intro{Kind: wire.IntroCarry, ID: wire.ID(resp.CarryId), Job: job}
}

// TestCarryIDWorksOnce, and no other id works.
func TestCarryIDWorksOnce(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	far := listenLoop(t)
	echo(t, far)
	r.outside(farAway, far.Addr().String())
	h.ask(9, false)
	used := h.carryID()
	roundTrip(t, r.show(r.f.gateway.DataAddr, used))
	const want = "timed out: unknown carry-id; it works once, for 10s"
	if refuse := r.refused(r.show(r.f.gateway.DataAddr, used)); refuse.Text != want || refuse.Code != wire.CodeTimeout {
		t.Errorf("used: %+v", refuse)
	}
}

// TestCarryIDExpires: a connection that is not fetched is closed.
func TestCarryIDExpires(t *testing.T) {
	r := newRigWith(t, bounds{intro: patience, carry: 50 * time.Millisecond, refuse: patience}, nil)
	h := r.helper("a1")
	h.register(0)
	far := listenLoop(t)
	r.outside(farAway, far.Addr().String())
	h.ask(9, false)
	late := h.carryID()
	conn, err := far.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the dialled end: %d bytes, %v; want the end", n, err)
	}
	r.until("it is in the log", func() bool {
		return strings.Contains(r.log.String(), "node a1 did not fetch the connection within 50ms")
	})
	if refuse := r.refused(r.show(r.f.gateway.DataAddr, late)); refuse.Code != wire.CodeTimeout {
		t.Errorf("late: %+v", refuse)
	}
}

// TestInbound: a connection to the gateway's address is passed to the process.
func TestInbound(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	intro := &wire.Intro{Kind: wire.IntroProcess, Job: job, Rank: 0, From: overlay.NodeID{Site: "siteb", Name: "b1"}, Technique: overlay.Direct, Via: overlay.ViaTarget}
	outer := r.show(r.f.gateway.PublicAddr, intro)
	inner := h.accept()
	if frame, err := wire.Read(inner); err != nil || *frame.(*wire.Intro) != *intro {
		t.Fatalf("the helper got %+v, %v", frame, err)
	}
	exchange(t, outer, inner)
	r.until("the link is in the log", func() bool { return strings.Contains(r.log.String(), "kind=inbound") })
	if !strings.Contains(r.log.String(), `ranks=[0] node=a1 peer=siteb/b1`) {
		t.Error(r.log)
	}
}

// TestBadFirstFrames: each gets its error, regardless of what came before.
func TestBadFirstFrames(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	deaf := h.point(1, 1)
	deaf.Local = ""
	h.dir.Register(h.ctx(), &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{deaf}})
	impatient := newRigWith(t, bounds{intro: 50 * time.Millisecond, carry: patience, refuse: patience}, nil)
	process := func(rank uint32) wire.Frame { return &wire.Intro{Kind: wire.IntroProcess, Job: job, Rank: rank} }
	carry := &wire.Intro{Kind: wire.IntroCarry, Job: job}
	for _, tc := range []struct {
		at    netip.AddrPort
		frame wire.Frame
		code  wire.Code
		text  string
	}{
		{r.f.gateway.PublicAddr, process(5), wire.CodeUnknownProcess, "process is not registered: rank 5 of job " + string(job) + " is not at sitea"},
		{r.f.gateway.PublicAddr, process(1), wire.CodeUnreachable, "unreachable: the helper of rank 1 of job " + string(job) + " listens nowhere"},
		{r.f.gateway.PublicAddr, carry, wire.CodeForbidden, "not permitted: carry-ids count only inside the site"},
		{r.f.gateway.DataAddr, process(0), wire.CodeRefused, "refused: this is the port for a node's own data, which shows a carry-id"},
		{r.f.gateway.DataAddr, carry, wire.CodeTimeout, "unknown carry-id"},
		{r.f.gateway.DataAddr, &wire.Ticket{Job: job}, wire.CodeMalformed, "unexpected frame: a ticket in place of an intro"},
		{impatient.f.gateway.DataAddr, nil, wire.CodeTimeout, "timed out: no intro arrived within 50ms"},
	} {
		if refuse := r.refused(r.show(tc.at, tc.frame)); refuse.Code != tc.code || !strings.Contains(refuse.Text, tc.text) || refuse.By != "frontal sitea" {
			t.Errorf("got %+v, want %q", refuse, tc.text)
		}
	}
	for name, bytes := range map[string]string{"HTTP": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a lying length": "IS\x01\x01\xff\xff", "another version": "IS\x02\x01\x00\x00"} {
		conn := r.show(r.f.gateway.PublicAddr, nil)
		io.WriteString(conn, bytes)
		if refuse := r.refused(conn); refuse.Code != wire.CodeMalformed && refuse.Code != wire.CodeVersion {
			t.Errorf("%s: %+v", name, refuse)
		}
	}
	h.ln.Close()
	if refuse := r.refused(r.show(r.f.gateway.PublicAddr, process(0))); !strings.Contains(refuse.Text, "helper sitea/a1 of rank 0") || !strings.Contains(refuse.Text, "nothing listens there") {
		t.Errorf("helper deaf: %+v", refuse)
	}
}

// TestBoundsOnData: over each bound there is a clear refusal, and below it connections are accepted
// again.
func TestBoundsOnData(t *testing.T) {
	r := newRigWith(t, bounds{intro: patience, carry: patience, refuse: patience}, func(c *Config) {
		c.Limits.HalfOpen, c.Limits.HalfOpenPerSource, c.Limits.Links, c.Limits.Pending = 1, 1, 1, 1
	})
	h := r.helper("a1")
	h.register(0)
	silent := r.show(r.f.gateway.PublicAddr, nil)
	r.until("it is being let in", func() bool { return r.f.status().Waiting["half_open"] == 1 })
	if refuse := r.refused(r.show(r.f.gateway.PublicAddr, nil)); refuse.Code != wire.CodeOverloaded || !strings.Contains(refuse.Text, "is reached (limits.half_open") {
		t.Errorf("half open: %+v", refuse)
	}
	silent.Write(wire.Append(nil, &wire.Intro{Kind: wire.IntroProcess, Job: job}))
	inner := h.accept()
	wire.Read(inner)
	r.until("it is carried", func() bool { return r.f.status().Links.Live == 1 })

	far := listenLoop(t)
	echo(t, far)
	r.outside(farAway, far.Addr().String())
	h.ask(9, false)
	conn, err := h.carry(farAway)
	if err != nil {
		t.Fatal(err)
	}
	if refuse := r.refused(conn); refuse.Code != wire.CodeOverloaded || !strings.Contains(refuse.Text, "1 links that are carried for all together is reached (limits.links)") {
		t.Errorf("links: %+v", refuse)
	}
	exchange(t, silent, inner)
	r.until("there is room again", func() bool { return r.f.status().Links.Live == 0 })
	if conn, err = h.carry(farAway); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, conn)

	unfetched := &controlpb.CarryRequest{Addresses: []string{farAway}, Asker: control.ProcessToPB(proc(0)), Target: control.ProcessToPB(proc(9))}
	if _, err := h.nodes.Carry(h.ctx(), unfetched); err != nil {
		t.Fatal(err)
	}
	_, err = h.nodes.Carry(h.ctx(), unfetched)
	if err = control.FromStatus(err); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "1 connections that wait for their node for all together is reached (limits.pending)") {
		t.Errorf("pending: %v", err)
	}
	r.stop() // the first is not fetched; the frontal's end is its end
}

// TestCarriedLinksOutliveTheBroker and end with the frontal.
func TestCarriedLinksOutliveTheBroker(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	outer := r.show(r.f.gateway.PublicAddr, &wire.Intro{Kind: wire.IntroProcess, Job: job})
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
	far := listenLoop(t)
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
	ln := listenLoop(t)
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
	if got := receive(t, "a tunnel", tunnels); got != r.broker.addr+" sitea:secret" {
		t.Errorf("tunnel to %s", got)
	}
	h := r.helper("a1")
	h.register(0)
	far := listenLoop(t)
	echo(t, far)
	r.outside(farAway, far.Addr().String())
	h.ask(9, false)
	conn, err := h.carry(farAway)
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, conn)
	if got := receive(t, "a tunnel", tunnels); got != far.Addr().String()+" sitea:secret" {
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
