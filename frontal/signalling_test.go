package frontal

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func signalRequest(t overlay.Technique, asker uint32) *controlpb.SignalRequest {
	return &controlpb.SignalRequest{
		Link: make([]byte, 16), Technique: uint32(t), Asker: control.ProcessToPB(proc(asker)),
		Target: control.ProcessToPB(proc(9)), TargetGeneration: 1,
	}
}

func sendAll(events ...*controlpb.SignalEvent) func(*controlpb.SignalRequest, grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
	return func(_ *controlpb.SignalRequest, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		for _, e := range events {
			if err := out.Send(e); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestSignalByRelay: the request is forwarded with the node's name in it, the events are
// returned, and the relay may be dialled from then on, for this link.
func TestSignalByRelay(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	r.broker.locked(func() {
		r.broker.signal = sendAll(
			&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ASSIGNED, Relay: &controlpb.Assignment{Proxy: "p1", Addresses: []string{"203.0.113.20:443"}, Ticket: []byte("t")}},
			&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ACCEPTED},
			&controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED},
		)
	})
	for call := 1; call <= 2; call++ { // an assignment is never answered from a cache
		events, err := h.signal(signalRequest(overlay.Relay, 0))
		if err != nil || len(events) != 3 || events[0].Relay.Proxy != "p1" || events[2].Kind != controlpb.SignalEvent_CONNECTED {
			t.Fatalf("%v, %v", events, err)
		}
		if asked := r.broker.signalRequests(); len(asked) != call || asked[call-1].AskerNode != "a1" {
			t.Errorf("the broker was asked %v", asked)
		}
	}
	if err := r.f.gateway.Check("203.0.113.20:443", time.Now()); err != nil {
		t.Error(err)
	}
}

func TestSignalErrors(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	r.helper("a2").register(7)
	r.broker.locked(func() {
		r.broker.signal = func(*controlpb.SignalRequest, grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
			return control.Status(fmt.Errorf("broker main: %w", overlay.ErrNoRelay))
		}
	})
	noJob := signalRequest(overlay.Relay, 0)
	noJob.Asker.Job = "x"
	shortID := signalRequest(overlay.Reversed, 0)
	shortID.ConnectId = []byte{1}
	for _, tc := range []struct {
		req   *controlpb.SignalRequest
		class error
		text  string
	}{
		{signalRequest(overlay.Relay, 0), overlay.ErrNoRelay, "broker main: no proxy is available"},
		{signalRequest(overlay.Relay, 7), overlay.ErrForbidden, "frontal sitea: not permitted: helper sitea/a1 may not speak for rank 7 of job " + string(job) + ", which is not registered at its node"},
		{signalRequest(overlay.Relay, 8), overlay.ErrForbidden, "may not speak for rank 8"},
		{signalRequest(99, 0), wire.ErrMalformed, "unknown technique 99"},
		{noJob, wire.ErrMalformed, `asker: job id "x"`},
		{shortID, wire.ErrMalformed, "a connect-id of 1 bytes, want 16"},
	} {
		if _, err := h.signal(tc.req); !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("got %v, want %q", err, tc.text)
		}
	}
}

// TestReversedToTheGateway: the target dials the gateway and is connected to the node that
// requested it, with the frame it sent.
func TestReversedToTheGateway(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	id := wire.ID{1, 2, 3}
	r.broker.locked(func() {
		r.broker.signal = func(req *controlpb.SignalRequest, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
			if req.ConnectAddress != r.f.gateway.PublicAddr.String() {
				t.Errorf("connect address %q, want the gateway's %v", req.ConnectAddress, r.f.gateway.PublicAddr)
			}
			return out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED})
		}
	})
	intro := &wire.Intro{Kind: wire.IntroReverse, ID: id, Job: job, Rank: 9, From: overlay.NodeID{Site: "siteb", Name: "b1"}, Technique: overlay.Reversed}
	refuse := testkit.Refused(r.t, testkit.Show(r.t, r.f.gateway.PublicAddr, intro))
	if want := "not permitted: unknown connect-id, or its signalling request is over"; refuse.Code != wire.CodeForbidden || refuse.Text != want || refuse.By != "frontal sitea" {
		t.Errorf("before the signalling request: %+v", refuse)
	}
	req := signalRequest(overlay.Reversed, 0)
	req.ConnectId, req.ConnectAddress = id[:], "198.51.100.1:1"
	if _, err := h.signal(req); err != nil {
		t.Fatal(err)
	}
	// The broker's event arrived first; the connection is still accepted.
	outer := testkit.Show(r.t, r.f.gateway.PublicAddr, intro)
	inner := h.accept()
	if frame, err := wire.Read(inner); err != nil || *frame.(*wire.Intro) != *intro {
		t.Fatalf("the helper got %+v, %v", frame, err)
	}
	testkit.Exchange(t, outer, inner)
}

// TestNoReturnWithoutAPublicPort: a closed gateway cannot be dialled back.
func TestNoReturnWithoutAPublicPort(t *testing.T) {
	r := newRig(t, closed)
	h := r.helper("a1")
	h.register(0)
	req := signalRequest(overlay.Reversed, 0)
	req.ConnectId = make([]byte, 16)
	_, err := h.signal(req)
	if want := "frontal sitea: no technique connects the sites: the gateway of sitea listens nowhere for connections from outside (public_listen), so it cannot be dialled back"; !errors.Is(err, overlay.ErrNoPath) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	r.until("the broker has the process", func() bool { return r.broker.has(0) })
	if p := r.broker.point(0).Public; p != "" {
		t.Errorf("registered with the public address %q", p)
	}
}

// closed makes sitea refuse all inbound connections.
func closed(c *Config) {
	c.Profile.Inbound = Given(overlay.InboundNone)
	c.PublicListen = netip.AddrPort{}
}

// plain makes sitea a site whose nodes have a route out.
func plain(c *Config) {
	closed(c)
	c.Profile.GatewayOnly = false
	c.DataListen = netip.AddrPort{}
}

// TestNodesWithARouteNameTheirOwnAddress: the frontal adds nothing for those.
func TestNodesWithARouteNameTheirOwnAddress(t *testing.T) {
	r := newRig(t, plain)
	h := r.helper("a1")
	h.register(0)
	r.broker.locked(func() { r.broker.signal = sendAll() })
	req := signalRequest(overlay.Reversed, 0)
	req.ConnectId, req.ConnectAddress = make([]byte, 16), "198.51.100.1:4000"
	if _, err := h.signal(req); err != nil || r.broker.signalRequests()[0].ConnectAddress != "198.51.100.1:4000" {
		t.Errorf("%v, %v", err, r.broker.signalRequests())
	}
}

// TestSignalledReachesTheHelper: the broker's signalling request is passed to the node where the
// target runs, and the helper's events are returned.
func TestSignalledReachesTheHelper(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	seen := make(chan *controlpb.Signal, 1)
	h.signalTarget = func(in *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		seen <- in
		return errors.Join(out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ACCEPTED}),
			out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_FAILED, Fault: control.Fault(fmt.Errorf("helper sitea/a1: %w", overlay.ErrTimeout))}))
	}
	events, err := r.broker.signalTarget(&controlpb.Signal{
		Link: []byte{7}, Technique: uint32(overlay.Relay), Asker: control.ProcessToPB(proc(9)), AskerSite: "siteb", AskerNode: "b1", Target: control.ProcessToPB(proc(0)), TargetGeneration: 1,
		Relay: &controlpb.Assignment{Proxy: "p1", Addresses: []string{"203.0.113.20:443"}}, ConnectAddress: "203.0.113.21:4000",
	})
	if err != nil || len(events) != 2 || !errors.Is(control.FaultErr(events[1].Fault), overlay.ErrTimeout) {
		t.Fatalf("%v, %v", events, err)
	}
	if got := <-seen; got.AskerNode != "b1" || got.Link[0] != 7 {
		t.Errorf("the helper got %v", got)
	}
	for _, addr := range []string{"203.0.113.20:443", "203.0.113.21:4000"} {
		if err := r.f.gateway.Check(addr, time.Now()); err != nil {
			t.Error(err)
		}
	}
}

func TestSignalledErrors(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0, 1)
	hanging := make(chan struct{})
	h.signalTarget = func(_ *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		close(hanging)
		<-out.Context().Done()
		return out.Context().Err()
	}
	call := func(rank uint32, generation uint64) error {
		_, err := r.broker.signalTarget(&controlpb.Signal{Technique: uint32(overlay.Relay), Target: control.ProcessToPB(proc(rank)), TargetGeneration: generation})
		return err
	}
	expect := func(what string, err, class error, text string) {
		t.Helper()
		if !errors.Is(err, class) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", what, err, text)
		}
	}
	expect("unknown", call(5, 1), overlay.ErrUnknownProcess, "frontal sitea: process is not registered: rank 5 of job "+string(job)+" is not at sitea")
	expect("stale", call(0, 2), overlay.ErrStale, "frontal sitea: access point is stale: rank 0 of job "+string(job)+" is in generation 1, asked for is generation 2")
	left := make(chan error)
	go func() { left <- call(0, 1) }()
	testkit.Receive(t, "the question at the helper", hanging)
	h.s.Close()
	expect("left meanwhile", <-left, overlay.ErrUnreachable, "frontal sitea: unreachable: helper sitea/a1 left while it was asked about rank 0")
	r.until("the helper is off", func() bool { return r.f.registry.Helpers()[0].Session == nil })
	expect("away", call(1, 1), overlay.ErrUnreachable, "frontal sitea: unreachable: helper sitea/a1 has no session with its frontal since ")
}

// accept returns the next connection to the node's listener.
func (h *fakeHelper) accept() *net.TCPConn {
	h.r.t.Helper()
	h.ln.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	conn, err := h.ln.Accept()
	if err != nil {
		h.r.t.Fatal(err)
	}
	h.r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}
