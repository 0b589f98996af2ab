package frontal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/decode"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A helper cannot make the frontal keep what it invents: outcomes of sites that no broker has named,
// and long reasons; and the broker is not told them, nor another node's name.
func TestInventedSites(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	report := func(site string) {
		t.Helper()
		req := &controlpb.ReportRequest{
			Target: control.ProcessToPB(proc(9)), TargetSite: site, Plan: 7, Technique: uint32(overlay.Direct), Fault: &controlpb.Fault{Code: 5, Text: strings.Repeat("x", 32<<10)}, Node: "a2",
		}
		req.ProtoReflect().SetUnknown(append([]byte{0xfa, 0x3f, 100}, make([]byte, 100)...)) // of a later version
		if _, err := h.dir.Report(h.ctx(), req); err != nil {
			t.Fatal(err)
		}
	}
	report("siteb")
	for i := range 100 {
		report(fmt.Sprint("made-up", i))
	}
	if s := r.f.status().Memory; len(s) != 0 {
		t.Errorf("before a broker names a site, %d are remembered", len(s))
	}
	if _, err := h.ask(9, false); err != nil {
		t.Fatal(err)
	}
	r.f.resolver.Forget() // as at a new policy
	report("siteb")
	report("made-up")
	s := r.f.status().Memory
	if len(s) != 1 || s[0].Site != "siteb" || len(s[0].Techniques) != 1 || len(s[0].Techniques[0].Reason) > maxReason {
		t.Errorf("remembered: %d sites, %.300q", len(s), fmt.Sprintf("%+v", s))
	}
	r.until("the broker has a report", func() bool {
		r.broker.mu.Lock()
		defer r.broker.mu.Unlock()
		return len(r.broker.reports) > 0
	})
	r.broker.locked(func() {
		for _, req := range r.broker.reports {
			if len(req.Fault.Text) > maxReason || len(req.ProtoReflect().GetUnknown()) > 0 {
				t.Errorf("the broker is told %d bytes of a reason, and %d of what the frontal does not know", len(req.Fault.Text), len(req.ProtoReflect().GetUnknown()))
			}
			if req.Node != "a1" {
				t.Errorf("the broker is told that %q reports, which is a1", req.Node)
			}
		}
	})
	if log := r.log.String(); strings.Contains(log, strings.Repeat("x", maxReason+1)) {
		t.Error("a long reason is logged")
	}
}

// A call with many refused processes is some lines in the log and a count.
func TestRefusedProcessesAreCounted(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	req, names := &controlpb.RegisterRequest{}, &controlpb.PublishRequest{}
	for range 300 {
		req.Points, names.Names = append(req.Points, &controlpb.AccessPoint{}), append(names.Names, &controlpb.Publication{})
	}
	if resp, err := h.dir.Register(h.ctx(), req); err != nil || len(resp.Faults) != 300 {
		t.Errorf("%d faults, %v", len(resp.GetFaults()), err)
	}
	if resp, err := h.dir.Publish(h.ctx(), names); err != nil || len(resp.Faults) != 300 {
		t.Errorf("%d faults, %v", len(resp.GetFaults()), err)
	}
	log := r.log.String()
	for _, what := range []string{"process refused", "name refused"} {
		if n := strings.Count(log, what); n != maxLogged {
			t.Errorf("%d lines of %q", n, what)
		}
	}
	for _, what := range []string{"more processes refused", "more names refused"} {
		if strings.Count(log, what) != 1 {
			t.Errorf("no line of %q with a count", what)
		}
	}
}

// A site with more processes and names than one message holds registers and publishes all of them, those that
// were refused one by one excepted.
func TestLongListsTakeSeveralCalls(t *testing.T) {
	const ranks, each = 600, 100 // of one call of the helper
	r := newRig(t, nil)
	h := r.helper("a1")
	for first := uint32(0); first < ranks; first += each {
		var some []uint32
		for rank := range uint32(each) {
			some = append(some, first+rank)
		}
		h.register(some...)
	}
	names := 0
	for ; names < 100; names++ {
		if err := h.publish(true, h.name(uint32(names), 1, fmt.Sprint("name", names), strings.Repeat("p", 1000))); err != nil {
			t.Fatal(err)
		}
	}
	r.broker.stop()
	r.until("the session has ended", func() bool { return !r.f.up.Up() })
	r.broker.locked(func() {
		clear(r.broker.registered)
		r.broker.refuse = func(p *controlpb.AccessPoint) *controlpb.Fault {
			if p.Process.Rank == 300 {
				return control.Fault(overlay.ErrForbidden)
			}
			return nil
		}
	})
	r.broker.names.change(func() { clear(r.broker.names.published) })
	r.broker.start()
	r.waitUp()
	r.until("all processes but one, and all names, are at the broker", func() (all bool) {
		r.broker.locked(func() { all = len(r.broker.registered) == ranks-1 && r.broker.registered[300] == nil })
		r.broker.names.change(func() { all = all && len(r.broker.names.published) == names })
		return all
	})
	r.broker.locked(func() {
		if r.broker.largest > decode.MaxBytes {
			t.Errorf("a call of %d bytes", r.broker.largest)
		}
	})
}
