package connhelper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func (f *fakeFrontal) Publish(_ context.Context, r *controlpb.PublishRequest) (*controlpb.PublishResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([]error, len(r.Names))
	for i, p := range r.Names {
		switch {
		case f.taken[p.Name]:
			errs[i] = fmt.Errorf("%w: it is another's", overlay.ErrNameTaken)
		case f.points[overlay.ProcessName{Job: overlay.JobID(p.Process.Job), Rank: p.Process.Rank}].Generation != overlay.Generation(p.Generation):
			errs[i] = fmt.Errorf("%w: %v is not registered", overlay.ErrUnknownProcess, p.Process)
		default:
			f.names[p.Name] = fmt.Sprintf("%s again=%v", p.Port, r.Again)
		}
	}
	return &controlpb.PublishResponse{Faults: control.Verdicts(errs)}, nil
}

func (f *fakeFrontal) Unpublish(_ context.Context, r *controlpb.UnpublishRequest) (*controlpb.UnpublishResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([]error, len(r.Names))
	for i, p := range r.Names {
		if f.names[p.Name] == "" {
			errs[i] = fmt.Errorf("%w: %q", overlay.ErrUnknownName, p.Name)
		}
		delete(f.names, p.Name)
	}
	return &controlpb.UnpublishResponse{Faults: control.Verdicts(errs)}, nil
}

func (f *fakeFrontal) LookupName(ctx context.Context, r *controlpb.LookupNameRequest) (*controlpb.LookupNameResponse, error) {
	for {
		port, ends := f.lookedUp(r)
		switch {
		case ends:
			control.SessionOf(ctx).Close()
			return nil, ctx.Err()
		case port != "":
			return &controlpb.LookupNameResponse{Port: port}, nil
		case r.WaitMs == 0 || ctx.Err() != nil:
			return nil, control.Status(fmt.Errorf("%w: %q", overlay.ErrUnknownName, r.Name))
		}
		time.Sleep(time.Millisecond) // until it is published again
	}
}

func (f *fakeFrontal) lookedUp(r *controlpb.LookupNameRequest) (port string, ends bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nameEnds > 0 && r.WaitMs > 0 {
		f.nameEnds--
		return "", true
	}
	return f.names[r.Name], false
}

// asks sends a request about names and returns its port or its error.
func (r *rank) asks(f wire.Frame) (string, error) {
	r.t.Helper()
	r.send(f)
	switch got, _ := r.next(); got := got.(type) {
	case *wire.LocalNamed:
		return got.Port, nil
	case *wire.LocalFailed:
		return "", got.Code.Errorf("%s", got.Text)
	default:
		r.t.Fatalf("got %+v", got)
		return "", nil
	}
}

func (f *fakeFrontal) named(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.names[name]
}

// Names pass through the helper to its frontal; a new session with the frontal gets the names of
// the processes here again.
func TestNames(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	f.taken = map[string]bool{"taken": true}
	s1, _ := f.helper("a1")
	r := join(t, s1, newKey(t), 0)
	if _, err := r.asks(&wire.LocalPublish{Request: 1, Name: "x", Port: "p"}); err != nil || f.named("x") != "p again=false" {
		t.Errorf("%v, the frontal has %q", err, f.named("x"))
	}
	if _, err := r.asks(&wire.LocalPublish{Request: 2, Name: "taken", Port: "p"}); !errors.Is(err, overlay.ErrNameTaken) {
		t.Error(err)
	}
	if _, err := r.asks(&wire.LocalPublish{Request: 3, Name: "back", Port: "p"}); err != nil {
		t.Error(err)
	}
	if _, err := r.asks(&wire.LocalUnpublish{Request: 4, Name: "back"}); err != nil || f.named("back") != "" {
		t.Errorf("%v, the frontal has %q", err, f.named("back"))
	}
	if _, err := r.asks(&wire.LocalUnpublish{Request: 5, Name: "back"}); !errors.Is(err, overlay.ErrUnknownName) {
		t.Error(err)
	}
	f.mu.Lock()
	f.names["earlier"] = "published by way of a helper that is no more"
	f.mu.Unlock()
	if _, err := r.asks(&wire.LocalUnpublish{Request: 8, Name: "earlier"}); err != nil || f.named("earlier") != "" {
		t.Errorf("%v, the frontal has %q", err, f.named("earlier"))
	}
	if _, err := r.asks(&wire.LocalLookup{Request: 6, Name: "nobody's"}); !errors.Is(err, overlay.ErrUnknownName) {
		t.Error(err)
	}

	// The session dies during a pending lookup; the restarted frontal knows nothing.
	f.mu.Lock()
	f.nameEnds = 1
	clear(f.names)
	f.mu.Unlock()
	if port, err := r.asks(&wire.LocalLookup{Request: 7, Name: "x", Budget: 20 * time.Second}); err != nil || port != "p again=true" {
		t.Errorf("%q, %v", port, err)
	}
	if f.named("taken")+f.named("back") != "" {
		t.Errorf("published again: taken %q, back %q", f.named("taken"), f.named("back"))
	}
}

func TestNamesOfAProcessAreBounded(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	s1, _ := f.helper("a1")
	r := join(t, s1, newKey(t), 0)
	for i := range uint32(overlay.MaxNamesPerJob) {
		if _, err := r.asks(&wire.LocalPublish{Request: i, Name: fmt.Sprint(i), Port: "p"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.asks(&wire.LocalPublish{Request: 99, Name: "one more", Port: "p"}); !errors.Is(err, overlay.ErrOverloaded) {
		t.Error(err)
	}
}

// The number of names of an account is limited, whichever of its processes published them; those
// that were withdrawn, refused, or belong to an ended process do not count.
func TestNamesOfAnAccount(t *testing.T) {
	f := newFakeFrontal(t, open, overlay.Direct)
	f.taken = map[string]bool{"taken": true}
	socket, _ := f.helper("a1")
	names := f.last.budgets.names
	names.SetMax(0, 2)
	first, second := join(t, socket, newKey(t), 0), join(t, socket, newKey(t), 0)
	publish := func(r *rank, request uint32, name string) error {
		_, err := r.asks(&wire.LocalPublish{Request: request, Name: name, Port: "p"})
		return err
	}
	for i, err := range []error{publish(first, 1, "a"), publish(first, 2, "a"), publish(second, 1, "b")} {
		if err != nil {
			t.Errorf("name %d: %v", i, err)
		}
	}
	if err := publish(first, 3, "c"); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "(limits.names_per_user)") || f.named("c") != "" {
		t.Errorf("a third name: %v", err)
	}
	if _, err := first.asks(&wire.LocalUnpublish{Request: 4, Name: "a"}); err != nil {
		t.Error(err)
	}
	if err := publish(first, 5, "taken"); !errors.Is(err, overlay.ErrNameTaken) {
		t.Error(err)
	}
	if err := publish(first, 6, "c"); err != nil {
		t.Errorf("after one was taken back: %v", err)
	}
	first.conn.Close()
	second.conn.Close()
	for end := time.Now().Add(time.Minute); names.Stats().Used > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after their processes there are %d names", names.Stats().Used)
		}
	}
}
