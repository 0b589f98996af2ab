package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/reflector"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// plansTo makes the plan of two sites contain t, whatever Decide returns.
func (g *grid) plansTo(from, to overlay.SiteID, t overlay.Technique) {
	g.t.Helper()
	asker, err := g.b.registry.Site(from)
	if err != nil {
		g.t.Fatal(err)
	}
	target, err := g.b.registry.Site(to)
	if err != nil {
		g.t.Fatal(err)
	}
	p := g.b.plans.decide(g.log, asker, target, nil, nil)
	if p.step(t) == nil {
		p.Steps = append(p.Steps, overlay.Step{Technique: t, Reason: "the test says so"})
	}
}

// The ends' negotiation is passed on opaquely, for every technique that needs it, and a technique
// without a relay gets no assignment.
func TestNegotiationPassesThrough(t *testing.T) {
	told := make(chan *controlpb.Signal, 10)
	offer, answer := bytes.Repeat([]byte{1}, control.MaxNegotiation), bytes.Repeat([]byte{2}, control.MaxNegotiation)
	g, b, _ := pairGrid(t, func(in *controlpb.Signal, s grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		told <- in
		s.Send(&controlpb.SignalEvent{Kind: accepted, Answer: answer})
		return s.Send(&controlpb.SignalEvent{Kind: connected})
	}, nil)
	g.proxy("p1", "192.0.2.7:443")
	for _, technique := range []overlay.Technique{overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching, overlay.Relay} {
		g.plansTo("siteb", "sitec", technique)
		req := relayRequest()
		req.Technique, req.Offer, req.ConnectAddress = uint32(technique), offer, "192.0.2.66:22"
		list, err := signal(g.ctx(), b, req)
		if err != nil || kinds(list) != "ASSIGNED ACCEPTED CONNECTED" {
			t.Fatalf("%v: %v, %v", technique, kinds(list), err)
		}
		in := <-told
		relayed := technique == overlay.Relay
		if (list[0].Relay != nil) != relayed || (in.Relay != nil) != relayed || in.Technique != uint32(technique) || in.Reason == "" {
			t.Errorf("%v: assigned %v, the target was told %v", technique, list[0].Relay, in)
		}
		if !bytes.Equal(in.Offer, offer) || !bytes.Equal(list[1].Answer, answer) {
			t.Errorf("%v: offer of %d bytes, answer of %d", technique, len(in.Offer), len(list[1].Answer))
		}
		if in.ConnectAddress != "" {
			t.Errorf("%v: the target is sent to %s, which nobody checked", technique, in.ConnectAddress)
		}
	}
}

func TestNegotiationBounds(t *testing.T) {
	g, b, _ := pairGrid(t, func(_ *controlpb.Signal, s grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		return s.Send(&controlpb.SignalEvent{Kind: accepted, Answer: make([]byte, control.MaxNegotiation+1)})
	}, nil)
	req := relayRequest()
	req.Technique, req.Offer = uint32(overlay.SimultaneousOpen), make([]byte, control.MaxNegotiation+1)
	wantStatus(t, "long offer", signalErr(g.ctx(), b, req), wire.ErrMalformed, "malformed frame: an offer of 8193 bytes, at most 8192 are passed on")
	req.Offer = nil
	g.plansTo("siteb", "sitec", overlay.SimultaneousOpen)
	list, err := signal(g.ctx(), b, req)
	if err != nil || kinds(list) != "ASSIGNED FAILED" {
		t.Fatalf("%v, %v", list, err)
	}
	wantFault(t, "long answer", list[1].Fault, wire.ErrMalformed, "frontal sitec: malformed frame: an answer of 8193 bytes, at most 8192 are passed on")

	req.Technique = uint32(overlay.Direct)
	wantStatus(t, "direct", signalErr(g.ctx(), b, req), wire.ErrMalformed, "malformed frame: technique direct needs no signalling")
}

// observe asks the broker over TCP for the address it sees.
func (g *grid) observe() *wire.Observed {
	g.t.Helper()
	c, err := net.DialTimeout("tcp", g.addr, patience)
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	c.Write(wire.Append(nil, &wire.Observe{}))
	f, err := wire.Read(c)
	if err != nil {
		g.t.Fatal(err)
	}
	o, ok := f.(*wire.Observed)
	if !ok || o.From.String() != c.LocalAddr().String() {
		g.t.Fatalf("observed %+v, the question came from %v", f, c.LocalAddr())
	}
	return o
}

// A frame is answered on the port where sessions are accepted, concurrently with sessions.
func TestObserveBesideSessions(t *testing.T) {
	g := newGrid(t)
	g.start()
	g.frontal(openA, nil)
	g.observe()
	g.frontal(closedB, nil)
	if s := g.b.Status().Reflector; s.Observer.Answered != 1 {
		t.Errorf("status %+v", s)
	}
}

func TestReflectors(t *testing.T) {
	g := newGrid(t)
	g.cfg.STUNListen = netip.MustParseAddrPort("127.0.0.1:0")
	g.tune = func(b *Broker) { b.openSTUN(context.Background()) }
	g.start()
	a := g.frontal(openA, nil)
	before := time.Now().UnixNano()
	resp, err := a.directory.Reflectors(g.ctx(), &controlpb.ReflectorsRequest{})
	stun := fmt.Sprintf("127.0.0.1:%d", g.b.reflector.sockets.Port())
	if err != nil || resp.Time < before || resp.Time > time.Now().UnixNano() ||
		!slices.Equal(resp.Tcp, []string{g.addr}) || !slices.Equal(resp.Stun, []string{stun}) || resp.Clock != g.b.name {
		t.Errorf("alone: %v, %v", resp, err)
	}
	g.proxy("p2", "192.0.2.8:443")
	p1 := g.proxy("p1", "192.0.2.7:443")
	offer := offerOf("p1", "192.0.2.7:443")
	offer.Addresses = append(offer.Addresses, "192.0.2.9:443", "[2001:db8::7]:443", "[2001:db8::8]:443")
	offer.Stun = "192.0.2.7:3478"
	if _, err := p1.relays.Offer(g.ctx(), offer); err != nil {
		t.Fatal(err)
	}
	resp, err = a.directory.Reflectors(g.ctx(), &controlpb.ReflectorsRequest{})
	if err != nil || !slices.Equal(resp.Tcp, []string{g.addr, "192.0.2.7:443", "192.0.2.8:443"}) || !slices.Equal(resp.Stun, []string{stun, "192.0.2.7:3478"}) ||
		!slices.Equal(resp.Tcp6, []string{"[2001:db8::7]:443"}) || !slices.Equal(resp.Stun6, []string{"[2001:db8::7]:3478"}) {
		t.Errorf("with proxies: %v, %v", resp, err)
	}
	_, err = p1.directory.Reflectors(g.ctx(), &controlpb.ReflectorsRequest{})
	wantStatus(t, "a proxy asks", err, overlay.ErrForbidden, "not permitted: this call is for a frontal, and this session is that of proxy p1")

	offer.Stun = "p1"
	_, err = p1.relays.Offer(g.ctx(), offer)
	wantStatus(t, "no address", err, wire.ErrMalformed, `malformed frame: proxy p1 offers STUN at "p1": not an ip:port`)
	offer.Stun = "224.0.0.1:1"
	_, err = p1.relays.Offer(g.ctx(), offer)
	wantStatus(t, "nobody's address", err, overlay.ErrForbidden, "not permitted: proxy p1: STUN address 224.0.0.1:1 is not one host's address")
}

// The broker's address is the advertised one, if it is set.
func TestReflectorsAdvertised(t *testing.T) {
	g := newGrid(t)
	g.cfg.Advertise, g.cfg.STUNListen = []netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:4443")}, netip.AddrPort{}
	g.tune = func(b *Broker) { b.openSTUN(context.Background()) }
	g.start()
	resp, err := g.frontal(openA, nil).directory.Reflectors(g.ctx(), &controlpb.ReflectorsRequest{})
	if err != nil || !slices.Equal(resp.Tcp, []string{"198.51.100.1:4443"}) || len(resp.Stun) != 0 {
		t.Errorf("%v, %v", resp, err)
	}
}

// A peer that connected over the other IP version than that of the advertised address gets the
// address to which it connected first.
func TestReflectorsAdvertisedOtherwise(t *testing.T) {
	g := newGrid(t)
	g.cfg.Advertise, g.cfg.STUNListen = []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:4443")}, netip.AddrPort{}
	g.tune = func(b *Broker) { b.openSTUN(context.Background()) }
	g.start()
	resp, err := g.frontal(openA, nil).directory.Reflectors(g.ctx(), &controlpb.ReflectorsRequest{})
	if err != nil || !slices.Equal(resp.Tcp, []string{g.addr}) || !slices.Equal(resp.Tcp6, []string{"[2001:db8::1]:4443"}) {
		t.Errorf("%v, %v", resp, err)
	}
}

// A port that is in use disables the STUN server, not the broker.
func TestSTUNPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	g := newGrid(t)
	g.cfg.STUNListen = netip.MustParseAddrPort(taken.Addr().String())
	g.tune = func(b *Broker) { b.openSTUN(context.Background()) }
	g.start()
	resp, err := g.frontal(openA, nil).directory.Reflectors(g.ctx(), &controlpb.ReflectorsRequest{})
	if err != nil || len(resp.Stun) != 0 || !strings.Contains(g.logs.String(), "no STUN server") {
		t.Errorf("%v, %v", resp, err)
	}
}

var testNonce = []byte("0123456789abcdef")

// somebody listens on an address of this host and returns the data it receives.
func somebody(t *testing.T, ip string) (addr string, got <-chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(patience))
			b, _ := io.ReadAll(c)
			c.Close()
			sent <- string(b)
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String(), sent
}

func TestCallBack(t *testing.T) {
	g := newGrid(t)
	g.start()
	a := g.frontal(openA, nil)
	addr, got := somebody(t, "127.0.0.1") // the session comes from there
	resp, err := a.directory.CallBack(g.ctx(), &controlpb.CallBackRequest{To: addr, Nonce: testNonce})
	if err != nil || resp.Outcome != controlpb.CallBackResponse_CONNECTED {
		t.Fatalf("%v, %v", resp, err)
	}
	if sent := testkit.Receive(t, "a call back", got); sent != string(testNonce) {
		t.Errorf("sent %q", sent)
	}
	resp, err = a.directory.CallBack(g.ctx(), &controlpb.CallBackRequest{To: addr, Nonce: testNonce, From: g.addr})
	if err != nil || resp.Outcome != controlpb.CallBackResponse_CONNECTED {
		t.Errorf("from the broker, by name: %v, %v", resp, err)
	}
	testkit.Receive(t, "a call back, by name", got)

	// An address other than the session's is called only after it has contacted the broker.
	other, heard := somebody(t, "127.0.0.2")
	req := &controlpb.CallBackRequest{To: other, Nonce: testNonce}
	_, err = a.directory.CallBack(g.ctx(), req)
	wantStatus(t, "never heard of", err, overlay.ErrForbidden,
		"not permitted: call back "+other+": neither does the session of frontal sitea come from 127.0.0.2, nor was broker main asked an observe frame from there within 10m0s")
	g.b.reflector.seen.Note(netip.MustParseAddr("127.0.0.2"), time.Now())
	if resp, err = a.directory.CallBack(g.ctx(), req); err != nil || resp.Outcome != controlpb.CallBackResponse_CONNECTED {
		t.Errorf("after it asked: %v, %v", resp, err)
	}
	testkit.Receive(t, "a call back to the other address", heard)

	s := g.b.Status().Reflector
	if text, _ := json.Marshal(s); s.CallBacks["CONNECTED"] != 3 || s.Refused != 1 {
		t.Errorf("status %s", text)
	}
}

// callee is a proxy that records its call-back requests.
type callee struct {
	controlpb.UnimplementedReflectorServer
	asked chan *controlpb.CallBackRequest
}

func (c callee) CallBack(_ context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	c.asked <- req
	return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_SILENT}, nil
}

func TestCallBackFromProxy(t *testing.T) {
	g := newGrid(t)
	g.start()
	a := g.frontal(openA, nil)
	c := callee{asked: make(chan *controlpb.CallBackRequest, 1)}
	end := control.NewEndpoint(g.credentials(control.Identity{Role: control.RoleProxy, Name: "p1"}), g.log, func(r grpc.ServiceRegistrar) {
		controlpb.RegisterReflectorServer(r, c)
	})
	t.Cleanup(end.Close)
	s, err := end.Dial(t.Context(), g.dialConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	offer := offerOf("p1", "192.0.2.7:443")
	offer.Stun = "192.0.2.7:3478"
	if _, err := controlpb.NewRelaysClient(s.Conn()).Offer(g.ctx(), offer); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"192.0.2.7:443", "192.0.2.7:3478"} {
		resp, err := a.directory.CallBack(g.ctx(), &controlpb.CallBackRequest{To: "127.0.0.1:9", Udp: true, Nonce: testNonce, From: from})
		if err != nil || resp.Outcome != controlpb.CallBackResponse_SILENT {
			t.Fatalf("%v, %v", resp, err)
		}
		if req := <-c.asked; req.To != "127.0.0.1:9" || !req.Udp || !bytes.Equal(req.Nonce, testNonce) || req.From != "" {
			t.Errorf("the proxy was asked %v", req)
		}
	}
	_, err = a.directory.CallBack(g.ctx(), &controlpb.CallBackRequest{To: "127.0.0.1:9", Nonce: testNonce, From: "192.0.2.8:443"})
	wantStatus(t, "nobody there", err, overlay.ErrUnreachable, "unreachable: no reflector has the address 192.0.2.8:443; ask for the reflectors again")
}

func TestCallBackBounds(t *testing.T) {
	g := newGrid(t)
	g.tune = func(b *Broker) { b.reflector.rates = reflector.NewRates[overlay.SiteID](3, time.Hour) }
	g.start()
	a, b := g.frontal(openA, nil), g.frontal(closedB, nil)
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	req := &controlpb.CallBackRequest{To: closed.LocalAddr().String(), Udp: true, Nonce: testNonce}
	closed.Close() // connections are refused at once
	for i := range 3 {
		if _, err := a.directory.CallBack(g.ctx(), req); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	_, err = a.directory.CallBack(g.ctx(), req)
	if err = control.FromStatus(err); !errors.Is(err, overlay.ErrOverloaded) || !strings.HasPrefix(err.Error(), "overloaded: sitea has been called back as often as it may; again in ") {
		t.Errorf("too many: %v", err)
	}
	if _, err := b.directory.CallBack(g.ctx(), req); err != nil {
		t.Errorf("another site pays for it: %v", err)
	}
	for range callBacksAtOnce {
		g.b.reflector.inFlight <- struct{}{}
	}
	_, err = b.directory.CallBack(g.ctx(), req)
	wantStatus(t, "too many at once", err, overlay.ErrOverloaded, fmt.Sprintf("overloaded: %d call-backs are under way, the broker's limit", callBacksAtOnce))
	_, err = b.directory.CallBack(g.ctx(), &controlpb.CallBackRequest{To: "127.0.0.1:9"})
	wantStatus(t, "no nonce", err, wire.ErrMalformed, "malformed frame: a nonce of 0 bytes, want 16")
}
