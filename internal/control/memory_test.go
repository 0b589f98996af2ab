package control_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// empties returns m with n more elements in its first field, which have nothing in them: two bytes
// each.
func empties[M proto.Message](m M, n int) M {
	m.ProtoReflect().SetUnknown(bytes.Repeat([]byte{10, 0}, n))
	return m
}

// holding is a directory whose calls wait.
type holding struct {
	controlpb.UnimplementedDirectoryServer
	entered chan int      // how many items the request of a call has
	release chan struct{} // closed: they need not wait
}

func (h *holding) Register(ctx context.Context, r *controlpb.RegisterRequest) (*controlpb.RegisterResponse, error) {
	h.entered <- len(r.Points)
	select {
	case <-h.release:
	case <-ctx.Done():
	}
	return &controlpb.RegisterResponse{}, nil
}

// Resolve answers with many faults, each of which has nothing in it.
func (h *holding) Resolve(_ context.Context, r *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
	return empties(&controlpb.ResolveResponse{}, int(r.CachedPlans[0])), nil
}

// Signal sends a small event, and then one, or as many as there are generations, with many addresses
// that have nothing in them.
func (h *holding) Signal(r *controlpb.SignalRequest, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
	h.entered <- 1
	if err := out.Send(&controlpb.SignalEvent{}); err != nil {
		return err
	}
	e := &controlpb.SignalEvent{}
	relay := protowire.AppendTag(nil, 2, protowire.BytesType)
	e.ProtoReflect().SetUnknown(protowire.AppendBytes(relay, bytes.Repeat([]byte{0x12, 0}, int(r.Port))))
	for range max(r.TargetGeneration, 1) {
		if err := out.Send(e); err != nil {
			return err
		}
	}
	return nil
}

// held returns a directory's endpoint with a budget, and a session with it.
func held(t *testing.T, b control.Budget) (*holding, *control.Endpoint, controlpb.DirectoryClient) {
	t.Helper()
	g, h := newGrid(t), &holding{entered: make(chan int, 100), release: make(chan struct{})}
	e := control.NewEndpoint(g.creds(broker), slog.New(slog.DiscardHandler), func(r grpc.ServiceRegistrar) { controlpb.RegisterDirectoryServer(r, h) })
	e.SetBudget(b)
	t.Cleanup(e.Close)
	addr := serve(t, e, nil, nil)
	s, err := endpoint(t, g.creds(frontal), admin{}).Dial(t.Context(), control.DialConfig{Addr: addr, Role: control.RoleBroker})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return h, e, controlpb.NewDirectoryClient(s.Conn())
}

// A request or an answer that would take much more memory than it has bytes is refused before it is
// decoded, in words, and the session goes on.
func TestMemoryOfAMessage(t *testing.T) {
	h, _, to := held(t, control.Budget{Bytes: 8 << 20, Calls: 100})
	close(h.release)
	ctx := t.Context()
	calls := map[string]func() error{
		"a request": func() error {
			_, err := to.Register(ctx, empties(&controlpb.RegisterRequest{}, 30_000))
			return err
		},
		"a request for a stream": func() error {
			request := &controlpb.SignalRequest{Port: 1}
			request.ProtoReflect().SetUnknown(bytes.Repeat([]byte{0x1a, 0}, 30_000)) // an asker, again and again
			events, err := to.Signal(ctx, request)
			if err == nil {
				_, err = events.Recv()
			}
			return err
		},
		"a request that is too long": func() error {
			_, err := to.Report(ctx, &controlpb.ReportRequest{TargetSite: strings.Repeat("x", 65<<10)})
			return err
		},
		"an answer": func() error {
			_, err := to.Resolve(ctx, &controlpb.ResolveRequest{CachedPlans: []uint64{500_000}})
			return err
		},
		"an event": func() error {
			events, err := to.Signal(ctx, &controlpb.SignalRequest{Port: 30_000})
			if err == nil {
				if _, err = events.Recv(); err != nil {
					t.Errorf("the event before it: %v", err)
				}
				<-h.entered
				_, err = events.Recv()
			}
			return err
		},
	}
	for name, call := range calls {
		if err := control.FromStatus(call()); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "isthmus.control.v1.") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(h.entered); n > 0 {
		t.Errorf("%d handlers were called", n)
	}
	if _, err := to.Register(ctx, empties(&controlpb.RegisterRequest{}, 100)); err != nil {
		t.Errorf("a small request after them: %v", err)
	}
	if _, err := to.Resolve(ctx, &controlpb.ResolveRequest{CachedPlans: []uint64{100}}); err != nil {
		t.Errorf("a small answer after them: %v", err)
	}
	events, err := to.Signal(ctx, &controlpb.SignalRequest{Port: 100})
	for n := 0; err == nil; n++ {
		if _, err = events.Recv(); errors.Is(err, io.EOF) && n != 2 {
			t.Errorf("a small stream after them has %d events", n)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("a small stream after them: %v", err)
	}
}

// What requests take in memory counts in the budget until their calls are over, and not their bytes.
func TestMemoryOfCalls(t *testing.T) {
	h, e, to := held(t, control.Budget{Bytes: 1 << 20, Calls: 100})
	done := make(chan error, 100)
	ask := func() {
		go func() { // ends with the call
			_, err := to.Register(t.Context(), empties(&controlpb.RegisterRequest{}, 1000))
			done <- err
		}()
	}
	held := 0
	for ; held < 20; held++ { // 2 KB, or some 250
		ask()
		select {
		case err := <-done:
			if err := control.FromStatus(err); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "limits.peer_bytes") {
				t.Fatalf("call %d: %v", held, err)
			}
		case <-h.entered:
			continue
		}
		break
	}
	if held < 2 || held > 8 {
		t.Errorf("%d calls are served at a time, whose requests take some 250 KB each", held)
	}
	if n := e.ByteStats().Used; n < 512<<10 || n > 1<<20 {
		t.Errorf("%d bytes are counted", n)
	}
	close(h.release)
	for range held {
		if err := testkit.Receive(t, "the end of a call", done); err != nil {
			t.Error(err)
		}
	}
	if n := e.ByteStats().Used; n != 0 {
		t.Errorf("%d bytes are counted, and all calls are over", n)
	}
	ask()
	if err := testkit.Receive(t, "a call after them", done); err != nil {
		t.Error(err)
	}
}

// What answers and events take in memory counts until the call is over or the next one comes, and not
// for longer. Together they are more than the 32 MiB that a peer that was dialled has.
func TestMemoryOfAnswers(t *testing.T) {
	h, _, to := held(t, control.Budget{Bytes: 1 << 20, Calls: 100})
	close(h.release)
	const many, elements = 300, 4000 // which take some hundred KB
	for i := range many {
		if _, err := to.Resolve(t.Context(), &controlpb.ResolveRequest{CachedPlans: []uint64{elements}}); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
	events, err := to.Signal(t.Context(), &controlpb.SignalRequest{Port: elements, TargetGeneration: many})
	for err == nil {
		_, err = events.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("events of one call: %v", err)
	}
	for i := range many { // the reader leaves them behind
		ctx, cancel := context.WithCancel(t.Context())
		events, err := to.Signal(ctx, &controlpb.SignalRequest{Port: elements})
		for n := 0; err == nil && n < 2; n++ {
			_, err = events.Recv()
		}
		<-h.entered
		if cancel(); err != nil {
			t.Fatalf("events of call %d: %v", i, err)
		}
	}
}

// A request that is longer than that of any call which a daemon offers is refused at its length: gRPC does not wait for
// the rest, and the codec does not see it. The session goes on.
func TestRequestLongerThanAny(t *testing.T) {
	h, _, to := held(t, control.Budget{Bytes: 32 << 20, Calls: 100})
	close(h.release)
	_, err := to.Register(t.Context(), empties(&controlpb.RegisterRequest{}, 1_500_000))
	if err = control.FromStatus(err); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "larger than max") || strings.Contains(err.Error(), "isthmus.control.v1.") {
		t.Errorf("3 MB: %v", err)
	}
	if _, err := to.Register(t.Context(), empties(&controlpb.RegisterRequest{}, 100)); err != nil {
		t.Errorf("a small request after it: %v", err)
	}
}
