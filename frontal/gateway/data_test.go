package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/directory"
	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// The gateway is not an open relay.
func TestCarryRefuses(t *testing.T) {
	r := newRig(t, func(set *settingsOf) { set.rule.Deny = []netip.Prefix{netip.MustParsePrefix("203.0.113.128/25")} })
	for _, addr := range []string{"127.0.0.1:80", "169.254.169.254:80", "203.0.113.200:443", farAway} {
		r.Allow(addr) // even if a broker were to name them
	}
	many := strings.Fields(strings.Repeat(farAway+" ", maxAddresses+1))
	of := func(change func(*controlpb.CarryRequest)) *controlpb.CarryRequest {
		req := carryRequest(farAway)
		change(req)
		return req
	}
	for _, tc := range []struct {
		req   *controlpb.CarryRequest
		class error
		text  string
	}{
		{carryRequest("127.0.0.1:80"), overlay.ErrForbidden, "frontal sitea: not permitted: 127.0.0.1:80 is a loopback address; those are never dialled for a node"},
		{carryRequest("169.254.169.254:80"), overlay.ErrForbidden, "169.254.169.254:80 is a link-local address"},
		{carryRequest("198.51.100.99:443"), overlay.ErrForbidden, "the broker did not name 198.51.100.99:443 to this site in the last 2m0s; resolve or signal first"},
		{carryRequest(farAway, "198.51.100.99:443"), overlay.ErrForbidden, "did not name 198.51.100.99:443"},
		{carryRequest("203.0.113.200:443"), overlay.ErrForbidden, "lies in 203.0.113.128/25, which this host's settings deny"},
		{carryRequest("example.org:443"), overlay.ErrForbidden, `"example.org:443" is not an address:port`},
		{carryRequest(), wire.ErrMalformed, "0 addresses to dial, want 1 to 8"},
		{carryRequest(many...), wire.ErrMalformed, "9 addresses to dial, want 1 to 8"},
		{of(func(q *controlpb.CarryRequest) { q.Asker.Job = "" }), wire.ErrMalformed, "asker: "},
		{of(func(q *controlpb.CarryRequest) { q.Target = nil }), wire.ErrMalformed, "target: "},
		{of(func(q *controlpb.CarryRequest) { q.Asker.Rank = 3 }), overlay.ErrForbidden, "neither is registered at its node"},
	} {
		if _, err := r.Carry(t.Context(), a1, tc.req); !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%v: %v, want %q", tc.req, err, tc.text)
		}
	}
	if n := r.Status().Waiting["carries"]; n != 0 {
		t.Errorf("%d connections are being dialled", n)
	}

	r = newRig(t, func(set *settingsOf) { set.profile.GatewayOnly = false })
	r.Allow(farAway)
	if _, err := r.Carry(t.Context(), a1, carryRequest(farAway)); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "site sitea is not gateway_only") {
		t.Errorf("of nodes with a route: %v", err)
	}
}

// The node learns why a dial failed before it connects, so that it can try another path, and nothing is
// left behind.
func TestCarryToNowhere(t *testing.T) {
	r := newRig(t, nil)
	gone := testkit.Listen(t)
	gone.Close()
	r.far(farAway, gone)
	_, err := r.Carry(t.Context(), a1, carryRequest(farAway))
	want := "frontal sitea: dial " + gone.Addr().String() + ": refused: nothing listens there, or a firewall resets"
	if !errors.Is(err, overlay.ErrRefused) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if n := r.Status().Waiting["carries"]; n != 0 {
		t.Errorf("%d connections wait for their node", n)
	}
}

// A dial without an answer ends so much before its caller does that the caller learns of it.
func TestCarryToSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := new(sync.WaitGroup)
		g := New(Options{
			Site: "sitea", Who: "frontal sitea", Log: slog.New(slog.DiscardHandler), Limits: Limits{Pending: 1},
			Settings: func() Settings { return Settings{Dial: time.Hour} }, Profile: func() overlay.SiteProfile { return overlay.SiteProfile{GatewayOnly: true} },
			Registry: directory.NewRegistry("sitea", time.Minute, 1, 1), Resolver: directory.NewResolver(t.Context(), work, "frontal sitea", "sitea", nil, 1, time.Minute),
			Life: t.Context(), Open: t.Context(), Work: work,
		})
		if err := g.registry.Register(overlay.AccessPoint{Process: proc(0), Generation: 1, Node: a1.Node()}, time.Now()); err != nil {
			t.Fatal(err)
		}
		g.Dial = func(ctx context.Context, addr string) (*net.TCPConn, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("dial %s: %w", addr, overlay.ErrTimeout)
		}
		g.Allow(farAway)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := g.Carry(ctx, a1, carryRequest(farAway))
		if !errors.Is(err, overlay.ErrTimeout) || time.Since(start) != 10*time.Second-uplink.AnswerMargin {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// All addresses are tried, in order, until one answers.
func TestCarryTriesAllAddresses(t *testing.T) {
	r := newRig(t, nil)
	gone, far := testkit.Listen(t), testkit.Listen(t)
	gone.Close()
	r.far("203.0.113.1:443", gone)
	r.far("203.0.113.2:443", far)
	near := testkit.Show(r.t, r.DataAddr, r.carryID("203.0.113.1:443", "203.0.113.2:443"))
	testkit.Exchange(t, near, r.accepted(far))
}

// A carry-id works once, and no other id works.
func TestCarryIDWorksOnce(t *testing.T) {
	r := newRig(t, func(set *settingsOf) { set.Carry = 10 * time.Second })
	far := testkit.Listen(t)
	r.far(farAway, far)
	used := r.carryID(farAway)
	testkit.Exchange(t, testkit.Show(r.t, r.DataAddr, used), r.accepted(far))
	const want = "timed out: unknown carry-id; it works once, for 10s"
	if refuse := testkit.Refused(r.t, testkit.Show(r.t, r.DataAddr, used)); refuse.Text != want || refuse.Code != wire.CodeTimeout {
		t.Errorf("used: %+v", refuse)
	}
}

// A connection that its node does not fetch is closed.
func TestCarryIDExpires(t *testing.T) {
	r := newRig(t, func(set *settingsOf) { set.Carry = 50 * time.Millisecond })
	far := testkit.Listen(t)
	r.far(farAway, far)
	late := r.carryID(farAway)
	if n, err := r.accepted(far).Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the dialled end: %d bytes, %v; want the end", n, err)
	}
	testkit.Until(t, "it is in the log", func() bool { return r.log.has("node a1 did not fetch the connection within 50ms") })
	if refuse := testkit.Refused(r.t, testkit.Show(r.t, r.DataAddr, late)); refuse.Code != wire.CodeTimeout {
		t.Errorf("late: %+v", refuse)
	}
}

// Each bad first frame gets its error, regardless of what came before.
func TestBadFirstFrames(t *testing.T) {
	r := newRig(t, nil)
	r.register(1, netip.AddrPort{})
	impatient := newRig(t, func(set *settingsOf) { set.Intro = 50 * time.Millisecond })
	process := func(rank uint32) wire.Frame { return &wire.Intro{Kind: wire.IntroProcess, Job: job, Rank: rank} }
	carry := &wire.Intro{Kind: wire.IntroCarry, Job: job}
	for _, tc := range []struct {
		at    netip.AddrPort
		frame wire.Frame
		code  wire.Code
		text  string
	}{
		{r.PublicAddr, process(5), wire.CodeUnknownProcess, "process is not registered: rank 5 of job " + string(job) + " is not at sitea"},
		{r.PublicAddr, process(1), wire.CodeUnreachable, "unreachable: the helper of rank 1 of job " + string(job) + " listens nowhere"},
		{r.PublicAddr, carry, wire.CodeForbidden, "not permitted: carry-ids count only inside the site"},
		{r.PublicAddr, &wire.Intro{Kind: wire.IntroReverse, Job: job}, wire.CodeForbidden, "unknown connect-id"},
		{r.DataAddr, process(0), wire.CodeRefused, "refused: this is the port for a node's own data, which shows a carry-id"},
		{r.DataAddr, carry, wire.CodeTimeout, "unknown carry-id"},
		{r.DataAddr, &wire.Ticket{Job: job}, wire.CodeMalformed, "unexpected frame: a ticket in place of an intro"},
		{impatient.DataAddr, nil, wire.CodeTimeout, "timed out: no intro arrived within 50ms"},
	} {
		if refuse := testkit.Refused(r.t, testkit.Show(r.t, tc.at, tc.frame)); refuse.Code != tc.code || !strings.Contains(refuse.Text, tc.text) || refuse.By != "frontal sitea" {
			t.Errorf("got %+v, want %q", refuse, tc.text)
		}
	}
	for name, bytes := range map[string]string{"HTTP": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a lying length": "IS\x01\x01\xff\xff", "another version": "IS\x02\x01\x00\x00"} {
		conn := testkit.Show(r.t, r.PublicAddr, nil)
		io.WriteString(conn, bytes)
		if refuse := testkit.Refused(r.t, conn); refuse.Code != wire.CodeMalformed && refuse.Code != wire.CodeVersion {
			t.Errorf("%s: %+v", name, refuse)
		}
	}
	r.helper.Close()
	if refuse := testkit.Refused(r.t, testkit.Show(r.t, r.PublicAddr, process(0))); !strings.Contains(refuse.Text, "helper sitea/a1 of rank 0") || !strings.Contains(refuse.Text, "nothing listens there") {
		t.Errorf("helper deaf: %+v", refuse)
	}
}

// A target that dials back with the connect-id of a signalling request reaches the asker, of its own job
// only, while the request lasts and a little longer.
func TestDialledBack(t *testing.T) {
	r := newRig(t, nil)
	release, err := r.ExpectReturn(wire.ID{7}, proc(0), "a1", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	release() // the connection may come after the answer
	intro := wire.Intro{Kind: wire.IntroReverse, ID: wire.ID{7}, Job: job, Rank: 9, From: overlay.NodeID{Site: "siteb", Name: "b1"}}
	other := intro
	other.Job = "other-0123456789abcdef0123456789abcdef"
	if refuse := testkit.Refused(r.t, testkit.Show(r.t, r.PublicAddr, &other)); refuse.Code != wire.CodeForbidden {
		t.Errorf("another job: %+v", refuse)
	}
	outer := testkit.Show(r.t, r.PublicAddr, &intro)
	inner := r.accepted(r.helper)
	if frame, err := wire.Read(inner); err != nil || *frame.(*wire.Intro) != intro {
		t.Fatalf("the helper got %+v, %v", frame, err)
	}
	testkit.Exchange(t, outer, inner)
	testkit.Until(t, "the link is in the log", func() bool { return r.log.has("kind=reversed") && r.log.has(`ranks="[0 9]" node=a1 peer=siteb/b1`) })
	r.Expire(time.Now().Add(time.Minute))
	if n := r.Status().Waiting["returns"]; n != 0 {
		t.Errorf("%d are still waited for", n)
	}
}

// Over each bound there is a clear refusal, and below it connections are accepted again.
func TestBoundsOnData(t *testing.T) {
	r := newRig(t, func(set *settingsOf) { set.Limits = Limits{Links: 1, Pending: 1, HalfOpen: 1, HalfOpenPerSource: 1} })
	silent := testkit.Show(r.t, r.PublicAddr, nil)
	testkit.Until(t, "it is being let in", func() bool { return r.Status().Waiting["half_open"] == 1 })
	if refuse := testkit.Refused(r.t, testkit.Show(r.t, r.PublicAddr, nil)); refuse.Code != wire.CodeOverloaded || !strings.Contains(refuse.Text, "is reached (limits.half_open") {
		t.Errorf("half open: %+v", refuse)
	}
	silent.Write(wire.Append(nil, &wire.Intro{Kind: wire.IntroProcess, Job: job}))
	inner := r.accepted(r.helper)
	wire.Read(inner)
	testkit.Until(t, "it is carried", func() bool { return r.LinkCount() == 1 })

	far := testkit.Listen(t)
	r.far(farAway, far)
	if refuse := testkit.Refused(r.t, testkit.Show(r.t, r.DataAddr, r.carryID(farAway))); refuse.Code != wire.CodeOverloaded || !strings.Contains(refuse.Text, "1 links that are carried for all together is reached (limits.links)") {
		t.Errorf("links: %+v", refuse)
	}
	r.accepted(far)
	testkit.Exchange(t, silent, inner)
	testkit.Until(t, "there is room again", func() bool { return r.LinkCount() == 0 })
	near := testkit.Show(r.t, r.DataAddr, r.carryID(farAway))
	testkit.Exchange(t, near, r.accepted(far))

	r.carryID(farAway) // which nobody fetches: the gateway's end is its end
	_, err := r.Carry(t.Context(), a1, carryRequest(farAway))
	if !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "1 connections that wait for their node for all together is reached (limits.pending)") {
		t.Errorf("pending: %v", err)
	}
}

// Cut ends the links of the processes that it names, and no others.
func TestCut(t *testing.T) {
	r := newRig(t, nil)
	outer := testkit.Show(r.t, r.PublicAddr, &wire.Intro{Kind: wire.IntroProcess, Job: job})
	wire.Read(r.accepted(r.helper))
	testkit.Until(t, "it is carried", func() bool { return r.LinkCount() == 1 })
	if n := r.Cut([]overlay.ProcessName{proc(1), {Job: "other-0123456789abcdef0123456789abcdef"}}, overlay.ErrForbidden); n != 0 {
		t.Errorf("%d links of others", n)
	}
	if n := r.Cut([]overlay.ProcessName{proc(0)}, errors.New("revoked")); n != 1 {
		t.Errorf("%d links", n)
	}
	if _, err := outer.Read(make([]byte, 1)); err == nil {
		t.Error("it goes on")
	}
	testkit.Until(t, "it is in the log", func() bool { return r.log.has("cause=revoked") })
}
