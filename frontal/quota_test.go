package frontal

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/wire"
)

// TestQuota: a carried link waits for its job's rate and loses nothing; one too
// many is told which setting refuses it.
func TestQuota(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Quota.PerJob = ratelimit.JobLimits{Rate: 2e6, Links: 1} })
	h := r.helper("a1")
	h.register(0)
	far := testkit.Listen(t)
	r.outside(farAway, far.Addr().String())
	if _, err := h.ask(9, false); err != nil {
		t.Fatal(err)
	}
	near, err := h.carry(farAway)
	if err != nil {
		t.Fatal(err)
	}
	other, err := far.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetDeadline(time.Now().Add(patience))
	r.until("it is carried", func() bool { return r.f.status().Links.Live == 1 })
	more, err := h.carry(farAway)
	if err != nil {
		t.Fatal(err)
	}
	if refuse := testkit.Refused(r.t, more); refuse.Code != wire.CodeOverloaded || !strings.Contains(refuse.Text, "quota.per_job.links") {
		t.Errorf("refused with %+v", refuse)
	}
	testkit.Exchange(t, near, other)
	r.until("the link is in the log", func() bool { return strings.Contains(r.log.String(), "msg=carried") })
	if log := r.log.String(); !strings.Contains(log, "limited_to=2Mbit/s by=quota.per_job.rate") {
		t.Errorf("log: %s", log)
	}
	// What it moved, and what held it back, is still told.
	_, by := r.f.gateway.Totals()
	waits := uint64(0)
	for p, c := range by.Counts() {
		waits += c.Waits
		if p.From != r.f.site && p.To != r.f.site || c.Bytes != 300_000 || c.Links != 0 || c.Waits > 0 && c.Rule != "quota.per_job.rate" {
			t.Errorf("%v: %+v", p, c)
		}
	}
	if waits == 0 {
		t.Errorf("nothing was held back: %+v", by.Counts())
	}
	if st := r.f.status().Quota; st.Waits == 0 || st.Refused != 1 || st.Links != 0 {
		t.Errorf("status %+v", st)
	}
}
