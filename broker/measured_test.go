package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A site's measurement is shown beside its declared profile, and differences are logged; decisions
// use the declared profile.
func TestMeasuredIsShown(t *testing.T) {
	g := newGrid(t)
	g.cfg.Lease = 50 * time.Millisecond
	g.start()
	a := g.frontal(openA, nil)
	m := probe.Measured{Time: time.Unix(9, 0), Node: "a1", Findings: []probe.Finding{
		{Field: probe.Inbound, Value: "none", How: "nothing came in"},
		{Field: probe.Filter, Value: "", How: "no UDP"},
		{Field: probe.Refusal, Value: "drop", How: "silence"},
	}}
	req := &controlpb.JoinRequest{Profile: declared(openA), Measured: m.ToPB()}
	if _, err := a.sites.Join(g.ctx(), req); err != nil {
		t.Fatal(err)
	}
	site := g.b.Status().Sites[0]
	if site.Measured == nil || site.Measured.Node != "a1" || len(site.Measured.Findings) != 3 ||
		len(site.Differs) != 1 || site.Differs[0] != (probe.Difference{Field: "inbound", Declared: "open", Measured: "none", How: "nothing came in"}) {
		t.Errorf("status %+v", site)
	}
	if log := g.logs.String(); !strings.Contains(log, "a site's declared profile is not what it measured") || !strings.Contains(log, "field=inbound declared=open measured=none") {
		t.Error("the difference was not logged")
	}
	if site.Profile.Inbound != overlay.InboundOpen {
		t.Error("the measurement changed the profile")
	}

	req.Measured.Findings[0].How = strings.Repeat("x", 2000)
	_, err := a.sites.Join(g.ctx(), req)
	wantStatus(t, "long finding", err, wire.ErrMalformed, "what sitea measured: malformed frame: a finding of more than 1024 bytes")

	req.Measured = nil
	if _, err := a.sites.Join(g.ctx(), req); err != nil || g.b.Status().Sites[0].Measured != nil {
		t.Errorf("withdrawn, but shown: %v", err)
	}
	req.Measured = m.ToPB()
	if _, err := a.sites.Join(g.ctx(), req); err != nil {
		t.Fatal(err)
	}
	a.close()
	testkit.Until(g.t, "the site's measurement is forgotten with it", func() bool { return g.b.measured.get("sitea") == nil })
}
