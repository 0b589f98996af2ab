package frontal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// fakeNames is what a fakeBroker knows of names.
type fakeNames struct {
	mu        sync.Mutex
	published map[string]*controlpb.Publication
	taken     map[string]bool // another site's
}

func (b *fakeBroker) Publish(_ context.Context, req *controlpb.PublishRequest) (*controlpb.PublishResponse, error) {
	b.locked(func() { b.largest = max(b.largest, proto.Size(req)) })
	n := &b.names
	n.mu.Lock()
	defer n.mu.Unlock()
	errs := make([]error, len(req.Names))
	for i, p := range req.Names {
		if n.taken[p.Name] {
			errs[i] = fmt.Errorf("%w: it is siteb's", overlay.ErrNameTaken)
			continue
		}
		if n.published == nil {
			n.published = map[string]*controlpb.Publication{}
		}
		n.published[p.Name] = p
	}
	return &controlpb.PublishResponse{Faults: control.Verdicts(errs)}, nil
}

func (b *fakeBroker) Unpublish(_ context.Context, req *controlpb.UnpublishRequest) (*controlpb.UnpublishResponse, error) {
	b.names.mu.Lock()
	defer b.names.mu.Unlock()
	for _, p := range req.Names {
		delete(b.names.published, p.Name)
	}
	return &controlpb.UnpublishResponse{Faults: control.Verdicts(make([]error, len(req.Names)))}, nil
}

func (b *fakeBroker) LookupName(ctx context.Context, req *controlpb.LookupNameRequest) (*controlpb.LookupNameResponse, error) {
	b.names.mu.Lock()
	defer b.names.mu.Unlock()
	if p := b.names.published[req.Name]; p != nil {
		return &controlpb.LookupNameResponse{Port: p.Port, Owner: p.Process}, nil
	}
	return nil, control.Status(fmt.Errorf("%w: %q", overlay.ErrUnknownName, req.Name)) // at once, though it may wait
}

// change lets a test have a say in what the broker knows.
func (n *fakeNames) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *fakeNames) port(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.published[name].GetPort()
}

func (h *fakeHelper) name(rank uint32, generation uint64, name, port string) *controlpb.Publication {
	return &controlpb.Publication{Process: control.ProcessToPB(proc(rank)), Generation: generation, Name: name, Port: port}
}

func (h *fakeHelper) publish(again bool, p *controlpb.Publication) error {
	h.r.t.Helper()
	resp, err := h.dir.Publish(h.ctx(), &controlpb.PublishRequest{Again: again, Names: []*controlpb.Publication{p}})
	if err != nil {
		h.r.t.Fatal(control.FromStatus(err))
	}
	errs, err := control.VerdictErrs(resp.Faults, 1)
	if err != nil {
		h.r.t.Fatal(err)
	}
	return errs[0]
}

func TestNamesAreThePublishers(t *testing.T) {
	r := newRig(t, nil)
	r.waitUp()
	h, other := r.helper("a1"), r.helper("a2")
	h.register(0)
	if err := h.publish(false, h.name(0, 1, "x", "p")); err != nil || r.broker.names.port("x") != "p" {
		t.Errorf("%v, and the broker has %q", err, r.broker.names.port("x"))
	}
	for what, got := range map[string]struct{ err, class error }{
		"another node": {other.publish(false, h.name(0, 1, "y", "p")), overlay.ErrUnknownProcess},
		"another life": {h.publish(false, h.name(0, 2, "y", "p")), overlay.ErrStale},
		"nobody":       {h.publish(false, h.name(7, 1, "y", "p")), overlay.ErrUnknownProcess},
	} {
		if !errors.Is(got.err, got.class) {
			t.Errorf("%s: %v, want %v", what, got.err, got.class)
		}
	}
	r.broker.names.change(func() { r.broker.names.taken = map[string]bool{"siteb's": true} })
	if err := h.publish(false, h.name(0, 1, "siteb's", "p")); !errors.Is(err, overlay.ErrNameTaken) || !strings.Contains(err.Error(), "it is siteb's") {
		t.Errorf("a taken name: %v", err)
	}
	if got := r.f.registry.Publications(); len(got) != 1 || got[0].Name != "x" {
		t.Errorf("the registry has %v", got)
	}
	resp, err := other.dir.LookupName(other.ctx(), &controlpb.LookupNameRequest{Name: "x"})
	if err != nil || resp.Port != "p" {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := h.dir.Unpublish(h.ctx(), &controlpb.UnpublishRequest{Names: []*controlpb.Publication{h.name(0, 1, "x", "")}}); err != nil {
		t.Error(err)
	}
	if _, err := other.dir.LookupName(other.ctx(), &controlpb.LookupNameRequest{Name: "x"}); !errors.Is(control.FromStatus(err), overlay.ErrUnknownName) {
		t.Errorf("after it was taken back: %v", err)
	}
}

// A lookup that waits goes on though the broker says no at once, and though it is
// away for a while.
func TestALookupWaits(t *testing.T) {
	r := newRig(t, nil)
	r.waitUp()
	h := r.helper("a1")
	found := make(chan string, 1)
	go func() {
		resp, err := h.dir.LookupName(h.ctx(), &controlpb.LookupNameRequest{Name: "late", WaitMs: uint32(patience.Milliseconds())})
		found <- fmt.Sprint(resp.GetPort(), err)
	}()
	r.broker.stop()
	r.broker.names.change(func() { r.broker.names.published = map[string]*controlpb.Publication{"late": {Port: "p"}} })
	r.broker.start()
	if got := testkit.Receive(t, "the name", found); got != "p<nil>" {
		t.Error(got)
	}
}

// What was published is published again to a broker that knows nothing any more,
// also when a helper said so while the broker was away; but what somebody else has
// taken meanwhile is lost, and what was taken back stays so.
func TestNamesSurviveTheBroker(t *testing.T) {
	r := newRig(t, nil)
	r.waitUp()
	h := r.helper("a1")
	h.register(0)
	for _, name := range []string{"x", "stolen", "back"} {
		if err := h.publish(false, h.name(0, 1, name, "p")); err != nil {
			t.Fatal(err)
		}
	}
	r.broker.stop()
	r.until("the frontal to miss its broker", func() bool { return !r.f.up.Up() })
	r.broker.names.change(func() { r.broker.names.published, r.broker.names.taken = nil, map[string]bool{"stolen": true} })
	if err := h.publish(true, h.name(0, 1, "meanwhile", "q")); err != nil {
		t.Errorf("published again while the broker is away: %v", err)
	}
	if _, err := h.dir.Unpublish(h.ctx(), &controlpb.UnpublishRequest{Names: []*controlpb.Publication{h.name(0, 1, "back", "")}}); err != nil {
		t.Error(err)
	}
	r.broker.start()
	r.until("the names to be there again", func() bool { return r.broker.names.port("x") == "p" && r.broker.names.port("meanwhile") == "q" })
	if r.broker.names.port("stolen")+r.broker.names.port("back") != "" {
		t.Error("more was published again than was this site's")
	}
	r.until("the stolen name to be forgotten", func() bool {
		return len(r.f.registry.Publications()) == 2
	})
	// A helper that registers the process anew keeps its names; another life has none.
	h.register(0)
	if n := len(r.f.registry.Publications()); n != 2 {
		t.Errorf("%d names after the same life registered anew", n)
	}
	if _, err := h.dir.Register(h.ctx(), &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{h.point(0, 2)}}); err != nil {
		t.Error(err)
	}
	if n := len(r.f.registry.Publications()); n != 0 {
		t.Errorf("%d names of a former life", n)
	}
}
