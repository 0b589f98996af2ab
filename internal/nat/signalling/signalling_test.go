package signalling

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// script is a directory whose calls get these events, and then what ends says: io.EOF, or nil to go on until the
// call is ended.
type script struct {
	controlpb.DirectoryClient
	grpc.ServerStreamingClient[controlpb.SignalEvent]
	ctx    context.Context
	events []*controlpb.SignalEvent
	ends   error
}

func (s *script) Signal(ctx context.Context, _ *controlpb.SignalRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[controlpb.SignalEvent], error) {
	return &script{ctx: ctx, events: s.events, ends: s.ends}, nil
}

func (s *script) Recv() (*controlpb.SignalEvent, error) {
	if len(s.events) > 0 {
		e := s.events[0]
		s.events = s.events[1:]
		return e, nil
	}
	if s.ends == nil {
		<-s.ctx.Done()
		return nil, s.ctx.Err()
	}
	return nil, s.ends
}

const (
	assigned  = controlpb.SignalEvent_ASSIGNED
	accepted  = controlpb.SignalEvent_ACCEPTED
	connected = controlpb.SignalEvent_CONNECTED
)

func event(kind controlpb.SignalEvent_Kind) *controlpb.SignalEvent {
	return &controlpb.SignalEvent{Kind: kind, Answer: []byte{byte(kind)}}
}

func failed(err error) *controlpb.SignalEvent {
	return &controlpb.SignalEvent{Kind: controlpb.SignalEvent_FAILED, Fault: control.Fault(err)}
}

func list(events ...*controlpb.SignalEvent) []*controlpb.SignalEvent { return events }

// What a call's owner learns of its events, and of its end.
func TestCall(t *testing.T) {
	lost := errors.New("the session is lost")
	for name, tc := range map[string]struct {
		events        []*controlpb.SignalEvent
		ends          error
		await, result error // of the wait for ACCEPTED; of the call
		text          string
		failed        bool // the hook
	}{
		"connected":                 {events: list(event(assigned), event(accepted), event(connected)), ends: io.EOF},
		"connected, not assigned":   {events: list(event(accepted), event(connected)), ends: io.EOF},
		"fails at once":             {events: list(event(assigned), failed(overlay.ErrStale)), await: overlay.ErrStale, result: overlay.ErrStale},
		"too many at the other end": {events: list(failed(overlay.ErrOverloaded)), await: overlay.ErrOverloaded, result: ErrUnanswered},
		"fails after it accepted":   {events: list(event(accepted), failed(overlay.ErrStale)), result: overlay.ErrStale, failed: true},
		"no reason":                 {events: list(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_FAILED}), await: overlay.ErrRefused, result: overlay.ErrRefused},
		"no result":                 {events: list(event(accepted)), ends: io.EOF, result: overlay.ErrUnreachable, failed: true},
		"session lost":              {events: list(event(accepted)), ends: lost, result: lost, failed: true},
		"connected too early":       {events: list(event(connected)), await: wire.ErrMalformed, result: wire.ErrMalformed, text: "before it accepted"},
		"assigned twice":            {events: list(event(assigned), event(assigned)), await: wire.ErrMalformed, result: wire.ErrMalformed},
		"accepted twice":            {events: list(event(accepted), event(accepted)), result: wire.ErrMalformed, failed: true, text: "after it accepted"},
		"a long answer":             {events: list(&controlpb.SignalEvent{Kind: accepted, Answer: make([]byte, control.MaxNegotiation+1)}), await: wire.ErrMalformed, result: wire.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			var work sync.WaitGroup
			var why error
			c := Start(t.Context(), work.Go, &script{events: tc.events, ends: tc.ends}, nil, Hooks{
				CallError: func(err error) error { return err }, Failed: func(err error) { why = err },
			})
			e, err := c.Await(t.Context(), accepted)
			if !errors.Is(err, tc.await) || err == nil && e.Answer[0] != byte(accepted) {
				t.Errorf("accepted: %v, %v; want %v", e, err, tc.await)
			}
			e, err = c.Result()
			if !errors.Is(err, tc.result) || (err == nil) != (tc.result == nil) || err == nil && e.Kind != connected || err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Errorf("result: %v, %v; want %v", e, err, tc.result)
			}
			work.Wait()
			if (why != nil) != tc.failed || why != nil && why != err {
				t.Errorf("the hook got %v", why)
			}
		})
	}
}

// A wait ends with its context, and the call with its owner's word, of which the hook hears nothing.
func TestCallEnds(t *testing.T) {
	var work sync.WaitGroup
	c := Start(t.Context(), work.Go, &script{events: list(event(accepted))}, nil, Hooks{
		CallError: func(err error) error { return err }, Failed: func(err error) { t.Error(err) },
	})
	over, cancel := context.WithCancelCause(t.Context())
	cancel(overlay.ErrTimeout)
	if _, err := c.Await(over, connected); !errors.Is(err, overlay.ErrTimeout) || !errors.Is(err, ErrUnanswered) {
		t.Error(err)
	}
	if _, err := c.Await(t.Context(), accepted); err != nil {
		t.Error(err)
	}
	c.End()
	work.Wait()
	gone := Start(t.Context(), work.Go, &script{events: list(event(assigned), event(accepted))}, nil, Hooks{
		Assigned: func(*controlpb.SignalEvent) error { return overlay.ErrUnreachable },
	})
	if _, err := gone.Result(); !errors.Is(err, overlay.ErrUnreachable) || gone.Has(accepted) {
		t.Errorf("the node is gone: %v", err)
	}
}

// end is an end of traversals that exchanges offers, and connects if the last one is answered.
type end struct {
	offers   [][]byte
	answered [][]byte
	waits    bool  // after the last answer, for its context
	fails    error // after the last answer
}

func (e *end) Ask(ctx context.Context, _ overlay.Technique, _ string, _ uint16, ex coordinate.Exchange) (net.Conn, error) {
	for _, offer := range e.offers {
		answer, err := ex(ctx, offer)
		if err != nil {
			return nil, err
		}
		e.answered = append(e.answered, answer)
	}
	if e.waits {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if e.fails != nil {
		return nil, e.fails
	}
	c, _ := net.Pipe()
	return c, nil
}

func (e *end) Answer(_ context.Context, _ overlay.Technique, _ string, offer []byte, reply func([]byte) error) (net.Conn, error) {
	if err := reply(offer); err != nil || e.waits {
		return nil, err
	}
	c, _ := net.Pipe()
	return c, nil
}

func (e *end) ReservePort(context.Context, overlay.Technique, string, []byte) []byte {
	return []byte("next")
}

func (e *end) Keep(string, []byte) {}

// Ask makes a call for each offer, of which the last stays; a failure ends the traversal.
func TestAsk(t *testing.T) {
	two := [][]byte{[]byte("prepare"), []byte("open")}
	for name, tc := range map[string]struct {
		end    end
		events []*controlpb.SignalEvent
		calls  int
		want   error
	}{
		"connects":     {end{offers: two}, list(event(accepted)), 2, nil},
		"is aborted":   {end{offers: two[1:], waits: true}, list(event(accepted), failed(overlay.ErrStale)), 1, overlay.ErrStale},
		"is refused":   {end{offers: two}, list(failed(overlay.ErrStale)), 1, overlay.ErrStale},
		"its own end":  {end{offers: two[1:], fails: overlay.ErrPortRangeFull}, list(event(accepted)), 1, overlay.ErrPortRangeFull},
		"nobody knows": {end{}, nil, 0, overlay.ErrUnreachable},
		"a long offer": {end{offers: [][]byte{make([]byte, control.MaxNegotiation+1)}}, nil, 0, wire.ErrMalformed},
	} {
		var work sync.WaitGroup
		var calls []*Call
		c, call, err := Ask(t.Context(), &tc.end, overlay.SimultaneousOpen, "siteb/b1", 0, func(_ []byte, failed func(error)) *Call {
			calls = append(calls, Start(t.Context(), work.Go, &script{events: tc.events}, nil, Hooks{CallError: func(err error) error { return err }, Failed: failed}))
			return calls[len(calls)-1]
		})
		if len(calls) != tc.calls || !errors.Is(err, tc.want) || (err == nil) != (c != nil && call == calls[len(calls)-1]) {
			t.Errorf("%s: %d calls, %v, %v", name, len(calls), c, err)
		}
		for _, one := range calls {
			select {
			case <-one.Done():
			default:
				if one != call {
					t.Errorf("%s: an earlier call goes on", name)
				}
			}
		}
		if call != nil {
			call.End()
		}
		work.Wait()
	}
}

// Answer tells the asker when it begins, and has the connection delivered before a port is reserved.
func TestAnswer(t *testing.T) {
	m := &controlpb.Signal{Technique: uint32(overlay.SimultaneousOpen), Offer: []byte("offer")}
	for name, tc := range map[string]struct {
		end       end
		deliver   error
		delivered int
		want      string
	}{
		"connects":            {end{}, nil, 1, "next"},
		"only prepares":       {end{waits: true}, nil, 0, ""},
		"cannot be handed on": {end{}, overlay.ErrRefused, 1, ""},
	} {
		var told []*controlpb.SignalEvent
		n := 0
		e, err := Answer(t.Context(), &tc.end, m, func(e *controlpb.SignalEvent) error { told = append(told, e); return nil }, func(net.Conn) error { n++; return tc.deliver })
		if !errors.Is(err, tc.deliver) || n != tc.delivered || string(e.GetAnswer()) != tc.want || err == nil && e.Kind != connected {
			t.Errorf("%s: %v, %v, delivered %d", name, e, err, n)
		}
		if len(told) != 1 || told[0].Kind != accepted || string(told[0].Answer) != "offer" {
			t.Errorf("%s: told %v", name, told)
		}
	}
}
