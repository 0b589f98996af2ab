package coordinate

import (
	"testing"

	"github.com/isthmus-grid/isthmus/internal/nat/coordinate/coordinatepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// TestOnlyPort: a site that opens one port keeps it for no later traversal.
func TestOnlyPort(t *testing.T) {
	s := &Side{PortPool: NewPortPool(), Profile: overlay.SiteProfile{Inbound: overlay.InboundPorts, Ports: overlay.Ports{First: 5000, Last: 5000}}}
	if p := s.ReservePort(t.Context(), overlay.Traversing, "peer", nil); p != nil { // asking the directory would panic
		t.Error("reserved a port")
	}
	s.PortPool.refill(t.Context(), s)
	if s.PortPool.spare != nil {
		t.Error("prepared ahead")
	}
}

// FuzzOffer: no offer makes the reader panic, and what it accepts is complete.
func FuzzOffer(f *testing.F) {
	f.Add(marshal(&coordinatepb.OpenOffer{Local: "10.0.0.1:1", Outside: "10.0.0.1:1", Server: "10.0.0.2:443"}))
	f.Fuzz(func(t *testing.T, in []byte) {
		var m coordinatepb.OpenOffer
		if unmarshal(in, &m) != nil {
			return
		}
		if e, err := endOf(&m); err == nil && (!e.Mapping.Local.IsValid() || !e.Mapping.Outside.IsValid() || e.Clock.RTT < 0) {
			t.Fatalf("accepted %+v", e)
		}
	})
}
