package frontal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

var reflectorsAsked atomic.Int64

// Reflectors of the scripted broker tells how often it was asked.
func (b *fakeBroker) Reflectors(context.Context, *controlpb.ReflectorsRequest) (*controlpb.ReflectorsResponse, error) {
	return &controlpb.ReflectorsResponse{Time: reflectorsAsked.Add(1), Tcp: []string{"192.0.2.1:443"}, Stun: []string{"192.0.2.1:3478"}}, nil
}

// CallBack of the scripted broker refuses one address and says of others what
// it was asked.
func (b *fakeBroker) CallBack(_ context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	if req.To == "192.0.2.66:22" {
		return nil, control.Status(fmt.Errorf("%w: not yours", overlay.ErrForbidden))
	}
	return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_SILENT, Text: fmt.Sprintf("%s %t %s %s", req.To, req.Udp, req.Nonce, req.From)}, nil
}

// The broker's clock is asked anew each time: an old answer is of no use.
func TestReflectorsAreNotCached(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	directory := h.dir
	first, err := directory.Reflectors(t.Context(), &controlpb.ReflectorsRequest{})
	if err != nil || first.Tcp[0] != "192.0.2.1:443" || first.Stun[0] != "192.0.2.1:3478" {
		t.Fatalf("%v, %v", first, err)
	}
	second, err := directory.Reflectors(t.Context(), &controlpb.ReflectorsRequest{})
	if err != nil || second.Time == first.Time {
		t.Errorf("%v, %v", second, err)
	}
	r.broker.stop()
	r.until("the outage is seen", func() bool { return !r.f.up.Up() })
	if _, err := directory.Reflectors(t.Context(), &controlpb.ReflectorsRequest{}); !errors.Is(control.FromStatus(err), overlay.ErrUnreachable) {
		t.Errorf("without a broker: %v", err)
	}
}

func TestCallBackIsPassedOn(t *testing.T) {
	r := newRig(t, nil)
	directory := r.helper("a1").dir
	resp, err := directory.CallBack(t.Context(), &controlpb.CallBackRequest{To: "192.0.2.2:5", Udp: true, Nonce: []byte("nonce"), From: "192.0.2.1:443"})
	if err != nil || resp.Text != "192.0.2.2:5 true nonce 192.0.2.1:443" {
		t.Errorf("%v, %v", resp, err)
	}
	_, err = directory.CallBack(t.Context(), &controlpb.CallBackRequest{To: "192.0.2.66:22"})
	if err = control.FromStatus(err); !errors.Is(err, overlay.ErrForbidden) || err.Error() != "not permitted: not yours" {
		t.Errorf("%v", err)
	}
}

// What the ends negotiate passes in both directions, unread and bounded.
func TestNegotiationIsPassedOn(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(0)
	text := bytes.Repeat([]byte{7}, control.MaxNegotiation)
	answer := func(b []byte) {
		r.broker.locked(func() {
			r.broker.signal = sendAll(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ACCEPTED, Answer: b})
		})
	}
	answer(text)
	req := signalRequest(overlay.SimultaneousOpen, 0)
	req.Offer = text
	events, err := h.signal(req)
	if err != nil || len(events) != 1 || !bytes.Equal(events[0].Answer, text) || !bytes.Equal(r.broker.signalRequests()[0].Offer, text) {
		t.Fatalf("%d events, %v", len(events), err)
	}
	answer(append(text, 7))
	_, err = h.signal(req)
	if err = control.FromStatus(err); !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), "an answer of 8193 bytes, at most 8192 are passed on") {
		t.Errorf("a long answer: %v", err)
	}
	req.Offer = append(text, 7)
	_, err = h.signal(req)
	if err = control.FromStatus(err); !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), "an offer of 8193 bytes, at most 8192 are passed on") {
		t.Errorf("a long offer: %v", err)
	}
}
