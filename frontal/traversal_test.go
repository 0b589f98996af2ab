package frontal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/frontal/outcomes"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/internal/nat/punch"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/internal/nat/stunserver"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// loopEnd is an end of coordinated traversals over loopback, which package coordinate itself
// refuses to contact: a TCP connection to the target, or a stream of hole punching.
type loopEnd struct {
	t    *testing.T
	stun netip.AddrPort

	mu     sync.Mutex
	ports  []uint16 // to ask from
	six    int      // ends that were to ask over IPv6
	kept   []string // peers and the ports they reserved
	asked  []string // peers
	before func()   // runs before this end connects, if set
}

func newLoopEnd(t *testing.T) *loopEnd {
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { new(stunserver.Server).Serve(ctx, pc) })
	t.Cleanup(func() { cancel(); served.Wait(); pc.Close() })
	return &loopEnd{t: t, stun: pc.LocalAddr().(*net.UDPAddr).AddrPort()}
}

// use makes r's frontal use e as its end.
func (r *rig) use(e signalling.End) {
	r.f.gateway.NewEnd = func(_ context.Context, ipv6 bool) (signalling.End, error) {
		if l, ok := e.(*loopEnd); ok && ipv6 {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.six++
		}
		return e, nil
	}
}

func (e *loopEnd) Ask(ctx context.Context, t overlay.Technique, peer string, port uint16, ex coordinate.Exchange) (net.Conn, error) {
	e.mu.Lock()
	e.asked, e.ports = append(e.asked, peer), append(e.ports, port)
	e.mu.Unlock()
	if t == overlay.HolePunching {
		return e.punch(ctx, true, ex)
	}
	if _, err := ex(ctx, []byte("prepare")); err != nil { // as traversing does
		return nil, err
	}
	answer, err := ex(ctx, []byte("open"))
	if err != nil {
		return nil, err
	}
	if e.before != nil {
		e.before()
	}
	return new(net.Dialer).DialContext(ctx, "tcp", string(answer))
}

func (e *loopEnd) Answer(ctx context.Context, t overlay.Technique, peer string, offer []byte, reply func([]byte) error) (net.Conn, error) {
	e.mu.Lock()
	e.asked = append(e.asked, peer)
	e.mu.Unlock()
	if t == overlay.HolePunching {
		return e.punch(ctx, false, func(_ context.Context, own []byte) ([]byte, error) { return offer, reply(own) })
	}
	if string(offer) == "prepare" {
		return nil, reply([]byte("prepared"))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	if err := reply([]byte(ln.Addr().String())); err != nil {
		return nil, err
	}
	if e.before != nil {
		e.before()
	}
	return ln.Accept()
}

// punch describes this end, swaps descriptions and connects.
func (e *loopEnd) punch(ctx context.Context, controlling bool, swap coordinate.Exchange) (net.Conn, error) {
	a, err := punch.New(punch.Config{Local: netip.MustParseAddrPort("127.0.0.1:0"), STUN: []netip.AddrPort{e.stun}, Controlling: controlling, AllowLoopback: true})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	own, err := a.Describe(ctx)
	if err != nil {
		return nil, err
	}
	peer, err := swap(ctx, own)
	if err != nil {
		return nil, err
	}
	c, err := a.Connect(ctx, peer)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (e *loopEnd) ReservePort(context.Context, overlay.Technique, string, []byte) []byte {
	return []byte("for next time")
}

func (e *loopEnd) Keep(peer string, port []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(e.kept, peer+": "+string(port))
}

// leadTo makes a's broker pass signalling requests to b's gateway.
func (r *rig) leadTo(b *rig) {
	r.broker.locked(func() {
		r.broker.signal = func(req *controlpb.SignalRequest, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
			b.broker.mu.Lock()
			s := b.broker.session
			b.broker.mu.Unlock()
			if err := out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ASSIGNED}); err != nil {
				return err
			}
			events, err := controlpb.NewTargetClient(s.Conn()).Signal(out.Context(), &controlpb.Signal{
				Link: req.Link, Technique: req.Technique, Asker: req.Asker, AskerSite: "siteq", AskerNode: req.AskerNode,
				Target: req.Target, TargetGeneration: req.TargetGeneration, Offer: req.Offer,
			})
			for err == nil {
				var e *controlpb.SignalEvent
				if e, err = events.Recv(); err == nil {
					err = out.Send(e)
				}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	})
}

// helpersCall is a helper's pending Signal call.
type helpersCall struct {
	t      *testing.T
	stream grpc.ServerStreamingClient[controlpb.SignalEvent]
	cancel context.CancelFunc
}

func (h *fakeHelper) begin(req *controlpb.SignalRequest) *helpersCall {
	h.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	h.r.t.Cleanup(cancel)
	stream, err := h.dir.Signal(ctx, req)
	if err != nil {
		h.r.t.Fatal(err)
	}
	return &helpersCall{h.r.t, stream, cancel}
}

// next returns the next event, which must be of that kind.
func (c *helpersCall) next(kind controlpb.SignalEvent_Kind) *controlpb.SignalEvent {
	c.t.Helper()
	e, err := c.stream.Recv()
	if err != nil || e.Kind != kind {
		c.t.Fatalf("%v, %v; want %v", e, control.FromStatus(err), kind)
	}
	return e
}

// end expects the call to end.
func (c *helpersCall) end() error {
	c.t.Helper()
	e, err := c.stream.Recv()
	if err == nil {
		c.t.Fatalf("%v after the last event", e)
	}
	if err == io.EOF {
		return nil
	}
	return control.FromStatus(err)
}

// fetch presents a carry-id.
func (r *rig) fetch(e *controlpb.SignalEvent) *net.TCPConn {
	r.t.Helper()
	return testkit.Show(r.t, r.f.gateway.DataAddr, &wire.Intro{Kind: wire.IntroCarry, ID: wire.ID(e.CarryId), Job: job})
}

// two returns the rigs of two gateways that can connect, with rank 0 at the first and rank 9 at the
// second.
func two(t *testing.T) (a, b *rig, ha, hb *fakeHelper, ends [2]*loopEnd) {
	a, b = newRig(t, closed), newRig(t, closed)
	ends = [2]*loopEnd{newLoopEnd(t), newLoopEnd(t)}
	a.use(ends[0])
	b.use(ends[1])
	a.leadTo(b)
	ha, hb = a.helper("a1"), b.helper("b1")
	ha.register(0)
	hb.register(9)
	return a, b, ha, hb, ends
}

// traversal makes a link by a technique from the first helper's node to the other's, and returns its two ends.
func traversal(a *rig, ha, hb *fakeHelper, technique overlay.Technique) (call *helpersCall, near, far net.Conn) {
	a.t.Helper()
	call = ha.begin(signalRequest(technique, 0))
	call.next(controlpb.SignalEvent_ASSIGNED)
	near = a.fetch(call.next(controlpb.SignalEvent_ACCEPTED))
	far = hb.accept()
	if _, err := wire.Read(far); err != nil {
		a.t.Fatal(err)
	}
	call.next(controlpb.SignalEvent_CONNECTED)
	return call, near, far
}

// TestTraversal: two nodes without a route out get a link through their gateways, over a kernel
// socket and over a stream of hole punching.
func TestTraversal(t *testing.T) {
	for _, technique := range []overlay.Technique{overlay.SimultaneousOpen, overlay.HolePunching} {
		t.Run(technique.String(), func(t *testing.T) {
			a, b, ha, hb, ends := two(t)
			if _, err := ha.ask(9, false); err != nil { // so that the gateway knows the target's node
				t.Fatal(err)
			}
			req := signalRequest(technique, 0)
			req.Port, req.Ipv6 = 443, true
			call := ha.begin(req)
			call.next(controlpb.SignalEvent_ASSIGNED)
			near := a.fetch(call.next(controlpb.SignalEvent_ACCEPTED))
			far := hb.accept()
			want := wire.Intro{Kind: wire.IntroProcess, Job: job, Rank: 9, From: overlay.NodeID{Site: "siteq", Name: "a1"}, Technique: technique, Via: overlay.ViaTarget}
			if frame, err := wire.Read(far); err != nil || *frame.(*wire.Intro) != want {
				t.Fatalf("the target's helper got %+v, %v", frame, err)
			}
			if e := call.next(controlpb.SignalEvent_CONNECTED); len(e.Answer) > 0 {
				t.Errorf("the node was given the gateway's reserved port: %q", e.Answer)
			}
			if err := call.end(); err != nil {
				t.Error(err)
			}
			testkit.Exchange(t, near, far)
			for i, r := range []*rig{a, b} {
				r.until("the link is in the log", func() bool { return strings.Contains(r.log.String(), "msg=carried") })
				line := fmt.Sprintf(`kind=traversal job=%s ranks="[0 9]" node=%s1 peer=%s link=%032x `, job, []string{"a", "b"}[i], []string{"siteb/b1", "siteq/a1"}[i], 0)
				if log := r.log.String(); !strings.Contains(log, line) || !strings.Contains(log, "cause=ended technique="+technique.String()+" bytes_out=300000 bytes_in=300000 ") {
					t.Errorf("no %q in\n%s", line, log)
				}
				s := r.f.status()
				if s.Traversals != (gateway.TraversalCounters{Connected: 1}) || s.Links.Live != 0 || s.Links.Bytes != 600_000 || s.Waiting["carries"] != 0 {
					t.Errorf("%+v, %+v, %v", s.Traversals, s.Links, s.Waiting)
				}
			}
			if e := ends[0]; len(e.kept) != 1 || e.kept[0] != "siteb/b1: for next time" || e.asked[0] != "siteb/b1" || e.ports[0] != 443 {
				t.Errorf("kept %q, asked for %q from %v", e.kept, e.asked, e.ports)
			}
			if a, b := ends[0].six, ends[1].six; a != 1 || b != 0 {
				t.Errorf("%d of the asker's ends are over IPv6, and %d of the target's, which goes by the offer", a, b)
			}
			if e := ends[1]; e.asked[0] != "siteq/a1" {
				t.Errorf("the target's gateway answered %q", e.asked)
			}
			for _, asked := range a.broker.signalRequests() {
				if asked.AskerNode != "a1" || len(asked.Offer) == 0 || asked.Port != 0 || asked.Ipv6 {
					t.Errorf("the broker was asked %v", asked)
				}
			}
		})
	}
}

// By which technique the gateway's own links carry, it sees itself, and that outweighs what nodes say of it.
func TestGatewaySeesWhatWorks(t *testing.T) {
	const technique = overlay.SimultaneousOpen
	a, b, ha, hb, _ := two(t)
	now := time.Now()
	a.f.memory.Connected("siteb", outcomes.Pair{Own: "a9", Far: "siteb/b9"}, 7, overlay.Relay, time.Millisecond, now)
	for i := range 6 {
		a.f.memory.Failed("siteb", outcomes.Pair{Own: fmt.Sprint("a", i%2), Far: fmt.Sprint("siteb/b", i/2)}, 7, technique, "so they say", now)
	}
	barred := func() bool {
		_, bars := a.f.memory.Advice("siteb", outcomes.Pair{Own: "a3", Far: "siteb/b7"}, 7, now)
		return len(bars) > 0
	}
	if !barred() {
		t.Fatal("nodes that fail together bar nothing")
	}
	if _, err := ha.ask(9, false); err != nil { // so that the gateway knows the target's node
		t.Fatal(err)
	}
	call, near, far := traversal(a, ha, hb, technique)
	if err := call.end(); err != nil {
		t.Error(err)
	}
	for _, c := range [][2]net.Conn{{near, far}, {far, near}} {
		if n := len(gateway.Worked(a.f.gateway, time.Time{})); n != 0 {
			t.Errorf("%d links have carried before both ends have sent", n)
		}
		if _, err := c[0].Write(make([]byte, 10_000)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c[1], make([]byte, 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	a.until("the link has carried", func() bool { return len(gateway.Worked(a.f.gateway, time.Time{})) == 1 })
	if w := gateway.Worked(a.f.gateway, time.Time{})[0]; w.Technique != technique || w.Far != "siteb/b1" || w.At.Before(now) {
		t.Errorf("what worked: %+v", w)
	}
	if n := len(gateway.Worked(a.f.gateway, time.Now().Add(time.Hour))) + len(gateway.Worked(b.f.gateway, time.Time{})); n != 0 {
		t.Errorf("%d old links, or of the target's gateway", n)
	}
	noteWorked(a.f.memory, a.f.gateway, now)
	if barred() {
		t.Error("what the gateway sees to work is barred for all")
	}
	testkit.Exchange(t, near, far)
}

// scriptEnd is an end that does what its functions say.
type scriptEnd struct {
	loopEnd
	ask    func(context.Context, coordinate.Exchange) (net.Conn, error)
	answer func(context.Context, func([]byte) error) (net.Conn, error)
}

func (e *scriptEnd) Ask(ctx context.Context, _ overlay.Technique, _ string, _ uint16, ex coordinate.Exchange) (net.Conn, error) {
	return e.ask(ctx, ex)
}

func (e *scriptEnd) Answer(ctx context.Context, _ overlay.Technique, _ string, _ []byte, reply func([]byte) error) (net.Conn, error) {
	return e.answer(ctx, reply)
}

// afterAnswer waits, once there is an answer, for the traversal to be aborted.
func afterAnswer(ctx context.Context, ex coordinate.Exchange) (net.Conn, error) {
	if _, err := ex(ctx, []byte("offer")); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// otherJob differs from job in its last digit.
var otherJob = string(job)[:len(job)-1] + "e"

var (
	isAssigned  = &controlpb.SignalEvent{Kind: controlpb.SignalEvent_ASSIGNED}
	isAccepted  = &controlpb.SignalEvent{Kind: controlpb.SignalEvent_ACCEPTED, Answer: []byte("answer")}
	isConnected = &controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED}
	hasFailed   = &controlpb.SignalEvent{Kind: controlpb.SignalEvent_FAILED, Fault: control.Fault(fmt.Errorf("frontal siteb: %w: nobody came", overlay.ErrTimeout))}
)

// TestAskFails: if any participant fails, the call fails with the reason and its class, and nothing
// is left behind.
func TestAskFails(t *testing.T) {
	r := newRigWith(t, bounds{intro: patience, carry: patience, meet: patience, refuse: patience}, closed)
	h := r.helper("a1")
	h.register(0)
	refuses := func(*controlpb.SignalRequest, grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		return control.Status(fmt.Errorf("broker main: %w: siteb forbids it", overlay.ErrNoPath))
	}
	for name, tc := range map[string]struct {
		broker func(*controlpb.SignalRequest, grpc.ServerStreamingServer[controlpb.SignalEvent]) error
		change func(*controlpb.SignalRequest)
		ask    func(context.Context, coordinate.Exchange) (net.Conn, error)
		class  error
		text   string
	}{
		"the broker refuses":         {broker: refuses, class: overlay.ErrNoPath, text: "broker main: no technique connects the sites: siteb forbids it"},
		"the target fails at once":   {broker: sendAll(isAssigned, hasFailed), class: overlay.ErrTimeout, text: "frontal siteb: timed out: nobody came"},
		"the target fails meanwhile": {broker: sendAll(isAssigned, isAccepted, hasFailed), class: overlay.ErrTimeout, text: "frontal siteb: timed out: nobody came"},
		"the broker says nothing":    {broker: sendAll(), class: overlay.ErrUnreachable, text: "frontal sitea: unreachable: the signalling request ended without a result"},
		"no result":                  {broker: sendAll(isAccepted), class: overlay.ErrUnreachable, text: "frontal sitea: unreachable: the signalling request ended without a result"},
		"the own end fails": {ask: func(context.Context, coordinate.Exchange) (net.Conn, error) {
			return nil, fmt.Errorf("10.0.0.1:4000: %w", overlay.ErrPortRangeFull)
		}, class: overlay.ErrPortRangeFull, text: "frontal sitea: 10.0.0.1:4000: "},
		"connected without a signalling request": {ask: func(context.Context, coordinate.Exchange) (net.Conn, error) {
			c, _ := net.Pipe() // as if some process listens on a port that the target reserved before
			return c, nil
		}, class: overlay.ErrUnreachable, text: "but the process there could not be notified"},
		"a long offer": {ask: func(ctx context.Context, ex coordinate.Exchange) (net.Conn, error) {
			_, err := ex(ctx, make([]byte, control.MaxNegotiation+1))
			return nil, err
		}, class: wire.ErrMalformed, text: "frontal sitea: malformed frame: an offer of 8193 bytes"},
		"another job": {change: func(m *controlpb.SignalRequest) { m.Target.Job = otherJob }, class: overlay.ErrForbidden, text: "of another job"},
		"no port":     {change: func(m *controlpb.SignalRequest) { m.Port = 65536 }, class: wire.ErrMalformed, text: "port 65536 to dial from"},
		"no target":   {change: func(m *controlpb.SignalRequest) { m.Target = nil }, class: wire.ErrMalformed, text: "target: "},
		"another's process": {change: func(m *controlpb.SignalRequest) { m.Asker.Rank = 5 }, class: overlay.ErrForbidden,
			text: "may not speak for rank 5"},
	} {
		r.broker.locked(func() { r.broker.signal = tc.broker })
		e := &scriptEnd{ask: tc.ask}
		if tc.ask == nil {
			e.ask = afterAnswer
		}
		r.use(e)
		req := signalRequest(overlay.HolePunching, 0)
		if tc.change != nil {
			tc.change(req)
		}
		_, err := h.signal(req)
		if !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v, want %q", name, err, tc.text)
		}
		if s := r.f.status(); s.Waiting["carries"] != 0 || s.Traversals.UnderWay != 0 || s.Traversals.Connected != 0 {
			t.Errorf("%s: %v and %+v stay behind", name, s.Waiting, s.Traversals)
		}
	}
	if n := strings.Count(r.log.String(), `msg="not carried" kind=traversal`); n != 8 {
		t.Errorf("%d audit lines\n%s", n, r.log)
	}
}

// held requests a coordinated traversal and returns the asker's call, which was ACCEPTED, and the
// far end of the connection that the gateway holds.
func (h *fakeHelper) held() (*helpersCall, *controlpb.SignalEvent, *net.TCPConn) {
	h.r.t.Helper()
	far := testkit.Listen(h.r.t)
	h.r.use(&scriptEnd{ask: func(ctx context.Context, ex coordinate.Exchange) (net.Conn, error) {
		if _, err := ex(ctx, []byte("offer")); err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, "tcp", far.Addr().String())
	}})
	call := h.begin(signalRequest(overlay.SimultaneousOpen, 0))
	accepted := call.next(controlpb.SignalEvent_ACCEPTED)
	far.SetDeadline(time.Now().Add(patience))
	conn, err := far.Accept()
	if err != nil {
		h.r.t.Fatal(err)
	}
	h.r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return call, accepted, conn.(*net.TCPConn)
}

// acceptThen makes the broker accept, and send the given events.
func (r *rig) acceptThen(events <-chan *controlpb.SignalEvent) {
	r.broker.locked(func() {
		r.broker.signal = func(_ *controlpb.SignalRequest, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
			if err := out.Send(isAccepted); err != nil {
				return err
			}
			select {
			case e := <-events:
				return out.Send(e)
			case <-out.Context().Done():
				return out.Context().Err()
			}
		}
	})
}

// ended expects conn to be at its end, by a reset or not.
func ended(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	var timeout net.Error
	if n, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("%s: %d bytes, %v; want the end", what, n, err)
	}
}

// TestHeldConnections: a connection that the gateway holds for a node ends with the node's call,
// with the target's failure, with its own bound or with the frontal; and CONNECTED may arrive
// before the node fetches it.
func TestHeldConnections(t *testing.T) {
	short := bounds{intro: patience, carry: 50 * time.Millisecond, meet: patience, refuse: patience}
	long := bounds{intro: patience, carry: 2 * patience, meet: patience, refuse: patience}
	start := func(t *testing.T, b bounds) (*rig, *fakeHelper, chan *controlpb.SignalEvent) {
		r := newRigWith(t, b, closed)
		h := r.helper("a1")
		h.register(0)
		events := make(chan *controlpb.SignalEvent, 1)
		r.acceptThen(events)
		return r, h, events
	}
	t.Run("not fetched", func(t *testing.T) {
		r, h, _ := start(t, short)
		_, accepted, far := h.held()
		ended(t, "the far end", far)
		r.until("it is in the log", func() bool {
			return strings.Contains(r.log.String(), "node a1 did not fetch the connection within 50ms")
		})
		if refuse := testkit.Refused(r.t, r.fetch(accepted)); refuse.Code != wire.CodeTimeout {
			t.Errorf("late: %+v", refuse)
		}
	})
	t.Run("the call is cancelled", func(t *testing.T) {
		r, h, _ := start(t, long)
		call, _, far := h.held()
		call.cancel()
		ended(t, "the far end", far)
		r.until("it is in the log", func() bool { return strings.Contains(r.log.String(), "node a1 gave the connection up") })
	})
	t.Run("the helper goes away", func(t *testing.T) {
		_, h, _ := start(t, long)
		_, _, far := h.held()
		h.s.Close()
		ended(t, "the far end", far)
	})
	t.Run("the target fails", func(t *testing.T) {
		_, h, events := start(t, long)
		call, _, far := h.held()
		events <- hasFailed
		e := call.next(controlpb.SignalEvent_FAILED)
		if err := control.FaultErr(e.Fault); !errors.Is(err, overlay.ErrTimeout) || err.Error() != "frontal siteb: timed out: nobody came" {
			t.Error(err)
		}
		ended(t, "the far end", far)
	})
	t.Run("the target fails when it is fetched", func(t *testing.T) {
		_, h, events := start(t, long)
		call, accepted, far := h.held()
		near := h.r.fetch(accepted)
		h.r.until("it is carried", func() bool { return h.r.f.status().Links.Live == 1 })
		events <- hasFailed
		call.next(controlpb.SignalEvent_FAILED)
		testkit.Exchange(t, near, far) // the gateway does not judge the link
	})
	t.Run("fetched after the call", func(t *testing.T) {
		r, h, events := start(t, long)
		call, accepted, far := h.held()
		events <- isConnected
		call.next(controlpb.SignalEvent_CONNECTED)
		if err := call.end(); err != nil {
			t.Error(err)
		}
		testkit.Exchange(t, r.fetch(accepted), far)
	})
	t.Run("the frontal ends", func(t *testing.T) {
		r, h, _ := start(t, long)
		_, _, far := h.held()
		r.stop()
		ended(t, "the far end", far)
	})
}

// askedOf is a signalling request for a process of this site.
func askedOf(rank uint32) *controlpb.Signal {
	return &controlpb.Signal{
		Link: make([]byte, 16), Technique: uint32(overlay.HolePunching), Asker: control.ProcessToPB(proc(9)), AskerSite: "siteb", AskerNode: "b1",
		Target: control.ProcessToPB(proc(rank)), TargetGeneration: 1, Offer: []byte("offer"),
	}
}

// TestAnswerFails: the asker gets the reason, and both connections are closed.
func TestAnswerFails(t *testing.T) {
	r := newRigWith(t, bounds{intro: patience, carry: patience, meet: patience, refuse: patience}, closed)
	h := r.helper("a1")
	h.register(0)
	deaf := h.point(1, 1)
	deaf.Local = ""
	gone := h.point(2, 1)
	nobody := testkit.Listen(t)
	nobody.Close()
	gone.Local = nobody.Addr().String()
	if _, err := h.dir.Register(h.ctx(), &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{deaf, gone}}); err != nil {
		t.Fatal(err)
	}
	far := make(chan net.Conn, 1)
	connects := func(_ context.Context, reply func([]byte) error) (net.Conn, error) {
		ln := testkit.Listen(t)
		defer ln.Close()
		if err := reply([]byte("answer")); err != nil {
			return nil, err
		}
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return nil, err
		}
		other, err := ln.Accept()
		far <- other
		return c, err
	}
	fails := func(context.Context, func([]byte) error) (net.Conn, error) {
		return nil, fmt.Errorf("the broker names no STUN server: %w", overlay.ErrUnreachable)
	}
	for name, tc := range map[string]struct {
		answer func(context.Context, func([]byte) error) (net.Conn, error)
		change func(*controlpb.Signal)
		class  error
		text   string
		far    bool // a connection was made
	}{
		"the own end fails":       {answer: fails, class: overlay.ErrUnreachable, text: "frontal sitea: the broker names no STUN server: unreachable"},
		"another job":             {change: func(m *controlpb.Signal) { m.Asker.Job = otherJob }, class: overlay.ErrForbidden, text: "of another job"},
		"no asker":                {change: func(m *controlpb.Signal) { m.Asker = nil }, class: wire.ErrMalformed, text: "asker: "},
		"a helper without a port": {change: func(m *controlpb.Signal) { m.Target.Rank = 1 }, class: overlay.ErrUnreachable, text: "the helper of rank 1 of job " + string(job) + " listens nowhere"},
		"a helper's port is gone": {change: func(m *controlpb.Signal) { m.Target.Rank = 2 }, class: overlay.ErrRefused, text: "frontal sitea: helper sitea/a1 of rank 2", far: true},
	} {
		e := &scriptEnd{answer: tc.answer}
		if tc.answer == nil {
			e.answer = connects
		}
		r.use(e)
		in := askedOf(0)
		if tc.change != nil {
			tc.change(in)
		}
		events, err := r.broker.signalTarget(in)
		if err != nil || len(events) == 0 || events[len(events)-1].Kind != controlpb.SignalEvent_FAILED {
			t.Errorf("%s: %v, %v", name, events, err)
			continue
		}
		if err := control.FaultErr(events[len(events)-1].Fault); !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v, want %q", name, err, tc.text)
		}
		if tc.far {
			c := testkit.Receive(t, name+": its connection", far)
			c.SetDeadline(time.Now().Add(patience))
			ended(t, name, c)
			c.Close()
		}
	}
	if s := r.f.status(); s.Traversals != (gateway.TraversalCounters{Failed: 2}) || s.Links.Live != 0 {
		t.Errorf("%+v, %+v", s.Traversals, s.Links)
	}
}

// TestTraversalsStayBelowTheLimits on links and on traversals.
func TestTraversalsStayBelowTheLimits(t *testing.T) {
	r := newRigWith(t, bounds{intro: patience, carry: patience, meet: patience, refuse: patience}, func(c *Config) {
		closed(c)
		c.Limits.Links, c.Limits.Pending = 1, 1
	})
	h := r.helper("a1")
	h.register(0)
	events := make(chan *controlpb.SignalEvent, 1)
	r.acceptThen(events)
	call, accepted, far := h.held()
	_, err := h.signal(signalRequest(overlay.SimultaneousOpen, 0))
	if !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "1 connections that wait for their node for all together is reached (limits.pending)") {
		t.Errorf("pending: %v", err)
	}
	near := r.fetch(accepted)
	r.until("it is carried", func() bool { return r.f.status().Links.Live == 1 })
	_, err = h.signal(signalRequest(overlay.SimultaneousOpen, 0))
	const full = "1 links that are carried for all together is reached (limits.links)"
	if !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), full) {
		t.Errorf("links, asker's side: %v", err)
	}
	told, err := r.broker.signalTarget(askedOf(0))
	if err != nil || len(told) != 1 || !strings.Contains(told[0].Fault.GetText(), full) {
		t.Errorf("links, target's side: %v, %v", told, err)
	}
	events <- isConnected
	call.next(controlpb.SignalEvent_CONNECTED)
	testkit.Exchange(t, near, far)
}

// TestTraversalsEndWithTheFrontal, whatever they wait for.
func TestTraversalsEndWithTheFrontal(t *testing.T) {
	r := newRigWith(t, bounds{intro: patience, carry: patience, meet: 2 * patience, refuse: patience}, closed)
	h := r.helper("a1")
	h.register(0)
	r.acceptThen(nil)
	hanging := make(chan struct{}, 2)
	r.use(&scriptEnd{ask: func(ctx context.Context, ex coordinate.Exchange) (net.Conn, error) {
		hanging <- struct{}{}
		return afterAnswer(ctx, ex)
	}, answer: func(ctx context.Context, _ func([]byte) error) (net.Conn, error) {
		hanging <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	over := make(chan error, 2)
	go func() { _, err := h.signal(signalRequest(overlay.HolePunching, 0)); over <- err }()
	go func() {
		events, err := r.broker.signalTarget(askedOf(0))
		for _, e := range events {
			err = errors.Join(err, control.FaultErr(e.Fault))
		}
		over <- err
	}()
	testkit.Receive(t, "one of the traversals", hanging)
	testkit.Receive(t, "the other traversal", hanging)
	r.stop()
	for range 2 {
		if err := testkit.Receive(t, "a call's end", over); err == nil {
			t.Error("a call succeeded after the frontal's end")
		}
	}
	if n := r.f.status().Traversals; n.UnderWay != 0 {
		t.Errorf("%+v", n)
	}
}

// TestTraversalsAreBounded in time, and the error says by how much.
func TestTraversalsAreBounded(t *testing.T) {
	r := newRigWith(t, bounds{intro: patience, carry: patience, meet: 50 * time.Millisecond, refuse: patience}, closed)
	h := r.helper("a1")
	h.register(0)
	r.acceptThen(nil)
	hangs := func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, context.Cause(ctx) }
	r.use(&scriptEnd{
		ask:    func(ctx context.Context, _ coordinate.Exchange) (net.Conn, error) { return hangs(ctx) },
		answer: func(ctx context.Context, _ func([]byte) error) (net.Conn, error) { return hangs(ctx) },
	})
	const want = "frontal sitea: timed out after 50ms"
	if _, err := h.signal(signalRequest(overlay.HolePunching, 0)); !errors.Is(err, overlay.ErrTimeout) || err.Error() != want {
		t.Errorf("asking: %v", err)
	}
	events, err := r.broker.signalTarget(askedOf(0))
	if err != nil || len(events) != 1 || events[0].Fault.GetText() != want {
		t.Errorf("answering: %v, %v", events, err)
	}
}

// TestACutStreamIsNoWholeOne: when the peer's end of a stream fails, the node reads a reset.
func TestACutStreamIsNoWholeOne(t *testing.T) {
	a, _, ha, hb, _ := two(t)
	call := ha.begin(signalRequest(overlay.HolePunching, 0))
	call.next(controlpb.SignalEvent_ASSIGNED)
	near := a.fetch(call.next(controlpb.SignalEvent_ACCEPTED))
	far := hb.accept()
	if _, err := wire.Read(far); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(far, "half"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(near, got); err != nil || string(got) != "half" {
		t.Fatalf("%q, %v", got, err)
	}
	far.SetLinger(0)
	far.Close()
	if n, err := near.Read(got); err == nil || err == io.EOF {
		t.Errorf("%d bytes, %v; want a reset", n, err)
	}
}

// TestPreparingIsOver: when the technique makes its next request, the previous one ends, and that
// is not a failure.
func TestPreparingIsOver(t *testing.T) {
	r := newRig(t, closed)
	h := r.helper("a1")
	h.register(0)
	ended := make(chan string, 2)
	r.broker.locked(func() {
		r.broker.signal = func(req *controlpb.SignalRequest, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
			err := out.Send(isAccepted)
			<-out.Context().Done()
			ended <- string(req.Offer)
			return err
		}
	})
	r.use(&scriptEnd{ask: func(ctx context.Context, ex coordinate.Exchange) (net.Conn, error) {
		for _, offer := range []string{"first", "second"} {
			if _, err := ex(ctx, []byte(offer)); err != nil {
				return nil, err
			}
		}
		select {
		case offer := <-ended:
			return nil, fmt.Errorf("%s is over: %w", offer, overlay.ErrRefused)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}})
	if _, err := h.signal(signalRequest(overlay.Traversing, 0)); !errors.Is(err, overlay.ErrRefused) || err.Error() != "frontal sitea: first is over: refused" {
		t.Error(err)
	}
	if offer := testkit.Receive(t, "the end of the second", ended); offer != "second" {
		t.Errorf("then %q is over", offer)
	}
}

// TestConnectedBeforeTheAnswer: a technique may be done before the answer arrives, and the
// signalling request continues to its end.
func TestConnectedBeforeTheAnswer(t *testing.T) {
	r := newRig(t, closed)
	h := r.helper("a1")
	h.register(0)
	far := testkit.Listen(t)
	echo(t, far)
	asked, held := make(chan struct{}), make(chan struct{})
	r.broker.locked(func() {
		r.broker.signal = func(req *controlpb.SignalRequest, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
			close(asked)
			select {
			case <-held:
			case <-out.Context().Done():
			}
			return sendAll(isAssigned, isAccepted, isConnected)(req, out)
		}
	})
	r.use(&scriptEnd{ask: func(ctx context.Context, ex coordinate.Exchange) (net.Conn, error) {
		carrying, cancel := context.WithCancel(ctx)
		var carried sync.WaitGroup
		carried.Go(func() { ex(carrying, []byte("offer")) })
		select {
		case <-asked:
		case <-ctx.Done():
		}
		cancel()
		carried.Wait()
		return net.Dial("tcp", far.Addr().String())
	}})
	call := h.begin(signalRequest(overlay.Traversing, 0))
	accepted := call.next(controlpb.SignalEvent_ACCEPTED)
	close(held)
	call.next(controlpb.SignalEvent_CONNECTED)
	if err := call.end(); err != nil {
		t.Error(err)
	}
	roundTrip(t, r.fetch(accepted))
}

// TestOthersMeetForThemselves: if nodes have a route out, or send an offer, the gateway passes
// signalling requests on.
func TestOthersMeetForThemselves(t *testing.T) {
	r := newRig(t, plain)
	r.f.gateway.NewEnd = func(context.Context, bool) (signalling.End, error) { panic("the gateway is nobody's end") }
	h := r.helper("a1")
	h.register(0)
	r.broker.locked(func() { r.broker.signal = sendAll(isConnected) })
	for _, offer := range [][]byte{nil, []byte("offer")} {
		req := signalRequest(overlay.HolePunching, 0)
		req.Offer = offer
		if events, err := h.signal(req); err != nil || len(events) != 1 {
			t.Errorf("%v, %v", events, err)
		}
	}
	h.signalTarget = func(in *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		return out.Send(isConnected)
	}
	if events, err := r.broker.signalTarget(askedOf(0)); err != nil || len(events) != 1 {
		t.Errorf("%v, %v", events, err)
	}
	g := newRig(t, closed)
	g.f.gateway.NewEnd = r.f.gateway.NewEnd
	g.broker.locked(func() { g.broker.signal = sendAll(isConnected) })
	h = g.helper("a1")
	h.register(0)
	req := signalRequest(overlay.HolePunching, 0)
	req.Offer = []byte("offer")
	if events, err := h.signal(req); err != nil || len(events) != 1 || string(g.broker.signalRequests()[0].Offer) != "offer" {
		t.Errorf("%v, %v", events, err)
	}
}

// TestSide: the gateway's end is where its own connections originate, and it never contacts what it
// never dials.
func TestSide(t *testing.T) {
	r := newRig(t, func(c *Config) { closed(c); c.Deny = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")} })
	e, err := r.f.gateway.Side(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	side := e.(*coordinate.Side)
	if side.Address != netip.MustParseAddr("127.0.0.1") || !side.Profile.GatewayOnly || side.PortPool == nil {
		t.Errorf("%+v", side)
	}
	for _, addr := range []string{"10.9.1.1", "10.8.1.1", "0.1.2.3", "255.255.255.255", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::"} {
		forbidden := side.Permit(netip.MustParseAddr(addr)) != nil
		for _, p := range side.Forbidden {
			forbidden = forbidden || p.Contains(netip.MustParseAddr(addr))
		}
		if !forbidden {
			t.Errorf("%s may be contacted", addr)
		}
	}
	r.broker.stop()
	r.until("the session is lost", func() bool { return !r.f.up.Up() })
	if _, err := r.f.gateway.Side(t.Context(), false); !errors.Is(err, overlay.ErrUnreachable) {
		t.Errorf("without a broker: %v", err)
	}
}

// TestTraversalsLeakNothing: no goroutine, no descriptor.
func TestTraversalsLeakNothing(t *testing.T) {
	a, b, ha, hb, _ := two(t)
	some := func() {
		for i := range 6 {
			technique := []overlay.Technique{overlay.SimultaneousOpen, overlay.HolePunching}[i%2]
			call, near, far := traversal(a, ha, hb, technique)
			testkit.Exchange(t, near, far)
			near.Close()
			far.Close()
			call.cancel()
		}
		for _, r := range []*rig{a, b} {
			r.until("all links are over", func() bool { return r.f.status().Links.Live == 0 })
		}
	}
	some() // fills what is kept for reuse
	g0, f0 := runtime.NumGoroutine(), openFiles(t)
	some()
	a.until("goroutines and descriptors are back", func() bool {
		return runtime.NumGoroutine() <= g0+5 && openFiles(t) <= f0+5
	})
}
