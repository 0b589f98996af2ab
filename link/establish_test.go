package link

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func identity(t testing.TB, rank uint32) Identity {
	t.Helper()
	key, err := jobkey.Parse("demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	if err != nil {
		t.Fatal(err)
	}
	return NewIdentity(key, rank, 7)
}

// tcpPair returns both ends of a connection over loopback.
func tcpPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func admitAll(*wire.Hello) error { return nil }

type outcome struct {
	link *Link
	err  error
}

// shakeHands runs both ends; the dialler is rank 1 and looks for rank 2.
func shakeHands(t *testing.T, a, b net.Conn, dialler, target Identity) (outcome, outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	path := overlay.Path{Technique: overlay.Relay, Proxy: "p1"}
	atTarget := make(chan outcome, 1)
	go func() {
		l, err := Establish(ctx, overlay.Carrier{Conn: b, Path: path}, target, nil, admitAll)
		atTarget <- outcome{l, err}
	}()
	peer := overlay.ProcessName{Job: dialler.Process.Job, Rank: 2}
	l, err := Establish(ctx, overlay.Carrier{Conn: a, Path: path}, dialler, &peer, admitAll)
	both := [2]outcome{{l, err}, <-atTarget}
	t.Cleanup(func() {
		for _, o := range both {
			if o.link != nil {
				o.link.stream.Fail(net.ErrClosed)
				o.link.stream.Wait()
			}
		}
	})
	return both[0], both[1]
}

// Data may follow the proof directly; no byte of it may be lost.
func TestEstablish(t *testing.T) {
	a, b := tcpPair(t)
	d, g := shakeHands(t, a, b, identity(t, 1), identity(t, 2))
	if d.err != nil || g.err != nil {
		t.Fatal(d.err, g.err)
	}
	if d.link.Peer.Rank != 2 || g.link.Peer.Rank != 1 || !d.link.Dialled || g.link.Dialled || d.link.Generation != 7 || d.link.RTT <= 0 || g.link.RTT <= 0 {
		t.Errorf("%+v and %+v", d.link, g.link)
	}
	d.link.Conn.Write([]byte("data"))
	d.link.Conn.Close()
	if got, err := io.ReadAll(g.link.Conn); string(got) != "data" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// recorder records what is written and read, in order.
type recorder struct {
	net.Conn
	log *[]string
}

func (r recorder) Write(b []byte) (int, error) {
	for in := b; len(in) > 0; {
		h, err := wire.ParseHeader(in)
		if err != nil {
			break // the handshake is over
		}
		*r.log = append(*r.log, "send "+h.Type.String())
		in = in[wire.HeaderLen+h.Length:]
	}
	return r.Conn.Write(b)
}

func (r recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if n == wire.HeaderLen && len(b) == wire.HeaderLen {
		if h, perr := wire.ParseHeader(b); perr == nil {
			*r.log = append(*r.log, "read "+h.Type.String())
		}
	}
	return n, err
}

// The dialler sends once before it has the answer and once after: one round trip.
func TestRoundTrips(t *testing.T) {
	a, b := tcpPair(t)
	var atA, atB []string
	d, g := shakeHands(t, recorder{a, &atA}, recorder{b, &atB}, identity(t, 1), identity(t, 2))
	if d.err != nil || g.err != nil {
		t.Fatal(d.err, g.err)
	}
	if got := strings.Join(atA, ", "); got != "send padding, send hello, read padding, read hello, read proof, send proof" {
		t.Error("dialler: ", got)
	}
	if got := strings.Join(atB, ", "); got != "send padding, send hello, read padding, read hello, send proof, read proof" {
		t.Error("target: ", got)
	}
}

// The errors at both ends when the ends do not belong together.
func TestRefusals(t *testing.T) {
	foreign, err := jobkey.Parse("demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHiA")
	if err != nil {
		t.Fatal(err)
	}
	job := identity(t, 0).Process.Job
	to2 := "link to rank 2 of job " + string(job) + " (relay through p1): "
	from1 := "link to rank 1 of job " + string(job) + " (relay through p1): "
	for _, tc := range []struct {
		name       string
		change     func(dialler, target *Identity)
		class      error
		atDialler  string
		atTarget   string
		mayDiffer  bool // the ends may notice in either order
		differText string
	}{
		{name: "wrong key", change: func(_, g *Identity) { g.Key = foreign.Links() }, class: overlay.ErrForbidden,
			atDialler: to2 + "not permitted: its proof is wrong: it does not have the job's key, or an attacker replays or modifies messages",
			atTarget:  from1 + "it says: not permitted: its proof is wrong: it does not have the job's key, or an attacker replays or modifies messages"},
		{name: "wrong job", change: func(_, g *Identity) { g.Process.Job = foreign.ID() }, class: overlay.ErrForbidden,
			atDialler: to2 + "not permitted: it belongs to job " + string(foreign.ID()) + ", this process to job " + string(job),
			atTarget:  from1 + "not permitted: it belongs to job " + string(job) + ", this process to job " + string(foreign.ID())},
		{name: "wrong rank", change: func(_, g *Identity) { g.Process.Rank = 3 }, class: overlay.ErrForbidden,
			atDialler: to2 + "not permitted: it is rank 3, but rank 2 was dialled",
			atTarget:  from1 + "not permitted: it looks for rank 2, this is rank 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := tcpPair(t)
			dialler, target := identity(t, 1), identity(t, 2)
			tc.change(&dialler, &target)
			d, g := shakeHands(t, a, b, dialler, target)
			if !errors.Is(d.err, tc.class) || d.err.Error() != tc.atDialler {
				t.Errorf("dialler:\n got %v\nwant %s", d.err, tc.atDialler)
			}
			if !errors.Is(g.err, tc.class) || g.err.Error() != tc.atTarget {
				t.Errorf("target:\n got %v\nwant %s", g.err, tc.atTarget)
			}
		})
	}
}

// script plays a peer as scripted, and returns the error of the handshake with it.
func script(t *testing.T, dialled bool, peer func(net.Conn)) error {
	t.Helper()
	a, b := tcpPair(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); peer(b) }()
	var who *overlay.ProcessName
	if dialled {
		who = &overlay.ProcessName{Job: identity(t, 1).Process.Job, Rank: 2}
	}
	_, err := Establish(ctx, overlay.Carrier{Conn: a}, identity(t, 1), who, admitAll)
	if _, readErr := a.Read(make([]byte, 1)); !errors.Is(readErr, net.ErrClosed) {
		t.Errorf("the carrier was left open: %v", readErr)
	}
	b.Close()
	<-ended
	return err
}

func TestBadPeers(t *testing.T) {
	me := identity(t, 2)
	hello := func(dialled bool) *wire.Hello {
		return &wire.Hello{Job: me.Process.Job, From: 2, To: 1, Generation: 7, Dialled: dialled, Link: wire.ID{9}}
	}
	say := func(frames ...wire.Frame) func(net.Conn) {
		return func(c net.Conn) {
			for _, f := range frames {
				c.Write(wire.Append(nil, f))
			}
			io.Copy(io.Discard, c)
		}
	}
	// A replay: the proof of an earlier handshake, for whose hellos it was valid.
	old := hello(true)
	replayed := &wire.Proof{MAC: proof(me.Key, old, &wire.Hello{Job: me.Process.Job, From: 1, To: 1, Generation: 7}, 0)}
	raw := func(s string) func(net.Conn) {
		return func(c net.Conn) { c.Write([]byte(s)); io.Copy(io.Discard, c) }
	}
	for _, tc := range []struct {
		name    string
		dialled bool // by us
		peer    func(net.Conn)
		class   error
		text    string
	}{
		{"refused on the way", true, say(&wire.Refuse{Code: wire.CodeForbidden, By: "proxy p1", Text: "the ticket expired 3 s ago"}),
			overlay.ErrForbidden, "(same node): proxy p1: the ticket expired 3 s ago"},
		{"refused after hello", true, say(hello(false), &wire.Refuse{Code: wire.CodeDuplicate, By: "rank 2", Text: "have one"}),
			overlay.ErrDuplicate, "rank 2: have one"},
		{"closed", true, func(c net.Conn) { wire.Read(c); c.Close() }, io.EOF, "it closed the connection before its hello"},
		{"replayed hello and proof", false, say(old, replayed), overlay.ErrForbidden, "its proof is wrong"},
		{"reflected", false, func(c net.Conn) { io.Copy(c, c) }, overlay.ErrForbidden, "it says that it is rank 1, as this process is"},
		{"both dialled", true, say(hello(true)), wire.ErrMalformed, "both ends say that they dialled"},
		{"none dialled", false, say(hello(false)), wire.ErrMalformed, "both ends say that they were dialled"},
		{"version", true, raw("IS\x02\x10\x00\x00"), wire.ErrVersion, "in place of its hello: unknown protocol version: the peer speaks version 2, this side 1"},
		{"no peer of ours", true, raw("HTTP/1.1 400 Bad Request\r\n"), wire.ErrMagic, "in place of its hello: not an Isthmus frame"},
		{"lying length", true, raw("IS\x01\x10\xff\xff"), wire.ErrMalformed, "hello says it has 65535 bytes"},
		{"other frame", true, say(&wire.LocalCancel{}), wire.ErrType, "local cancel in place of its hello"},
		{"proof before hello", true, say(&wire.Proof{}), wire.ErrType, "proof in place of its hello"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := script(t, tc.dialled, tc.peer)
			if !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v, want %q", err, tc.text)
			}
		})
	}
}

// timed is a context that ends when the test says so.
type timed struct {
	context.Context
	over chan struct{}
}

func (c timed) Done() <-chan struct{} { return c.over }

func (c timed) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A peer that never answers costs no more than the context allows.
func TestSilentPeer(t *testing.T) {
	a, b := tcpPair(t)
	ctx := timed{context.Background(), make(chan struct{})}
	go func() {
		b.SetReadDeadline(time.Now().Add(30 * time.Second))
		b.Read(make([]byte, 1)) // of the hello
		close(ctx.over)
	}()
	peer := overlay.ProcessName{Job: identity(t, 1).Process.Job, Rank: 2}
	_, err := Establish(ctx, overlay.Carrier{Conn: a}, identity(t, 1), &peer, admitAll)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for its hello") {
		t.Errorf("got %v", err)
	}
}

// What the helper knows about a carrier takes precedence over the socket's error.
func TestFaultExplains(t *testing.T) {
	a, b := tcpPair(t)
	b.Close()
	peer := overlay.ProcessName{Job: identity(t, 1).Process.Job, Rank: 2}
	c := overlay.Carrier{Conn: a, Fault: func() error { return wire.CodeUnreachable.Errorf("helper siteb/b1 cannot reach proxy p1") }}
	_, err := Establish(context.Background(), c, identity(t, 1), &peer, admitAll)
	if !errors.Is(err, overlay.ErrUnreachable) || !strings.HasSuffix(err.Error(), ": helper siteb/b1 cannot reach proxy p1") {
		t.Errorf("got %v", err)
	}
}

// ended is a connection whose owner's context ends with its n-th write.
type ended struct {
	net.Conn
	n   int
	end func()
}

func (c *ended) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.n--; c.n == 0 {
		c.end()
	}
	return n, err
}

// A dialler whose context ends after its proof was sent has the link, as its peer has: neither may
// consider the other gone.
func TestTimeIsOverWithTheProof(t *testing.T) {
	a, b := tcpPair(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dialler, target := identity(t, 1), identity(t, 2)
	atTarget := make(chan error, 1)
	go func() {
		_, _, err := runHandshake(t.Context(), overlay.Carrier{Conn: b}, target, nil, terms{admit: func(*wire.Hello) (uint64, error) { return 0, nil }})
		atTarget <- err
	}()
	c, _, err := runHandshake(ctx, overlay.Carrier{Conn: &ended{Conn: a, n: 2, end: cancel}}, dialler, &target.Process,
		terms{link: wire.ID{1}, admit: func(*wire.Hello) (uint64, error) { return 0, nil }})
	if err := errors.Join(err, <-atTarget); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Conn.Write([]byte{7}); err != nil {
		t.Errorf("the deadline of the handshake holds on: %v", err)
	}
}
