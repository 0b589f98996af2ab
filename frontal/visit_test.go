package frontal

import (
	"log/slog"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
)

// Who only visits under a helper's name may ask, and neither ends the helper's
// session nor takes its place.
func TestVisitorsReplaceNobody(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("n1")
	h.register(0)
	ep := control.NewEndpoint(r.creds(control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "n1"}), slog.New(slog.DiscardHandler), nil)
	t.Cleanup(ep.Close)
	s, err := ep.Dial(t.Context(), control.DialConfig{Addr: r.at, Role: control.RoleFrontal, Visit: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := controlpb.NewNodesClient(s.Conn()).Enter(t.Context(), &controlpb.EnterRequest{}); err != nil {
		t.Errorf("the visitor's call: %v", control.FromStatus(err))
	}
	s.Close()
	// A second visit comes after what the first set going.
	again, err := ep.Dial(t.Context(), control.DialConfig{Addr: r.at, Role: control.RoleFrontal, Visit: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := controlpb.NewNodesClient(again.Conn()).Enter(t.Context(), &controlpb.EnterRequest{}); err != nil {
		t.Fatal(control.FromStatus(err))
	}
	select {
	case <-h.s.Done():
		t.Error("the helper's session ended")
	default:
	}
	if got := r.f.registry.Helpers()[0].Session.RemoteAddr(); got != h.s.LocalAddr() {
		t.Errorf("the registry has the session from %v, the helper's is from %v", got, h.s.LocalAddr())
	}
}
