package proxy

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// startWith serves under a quota.
func startWith(t *testing.T, rules quota.Rules) *rig {
	t.Helper()
	k, err := ratelimit.New(rules, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return start(t, Settings{Quota: k})
}

func ofJob(name string) func(*wire.Ticket) {
	return func(t *wire.Ticket) { t.Job = job[:len(job)-1] + overlay.JobID(name) }
}

// Both ends of a link over the quota get the reason; other jobs have their own.
func TestQuotaOfLinks(t *testing.T) {
	r := startWith(t, quota.Rules{Job: quota.Limits{Links: 1}})
	a, b := r.link()
	echoes(t, a, b)
	c, d := r.link()
	for _, end := range []*net.TCPConn{c, d} {
		no := testkit.Refused(r.t, end)
		if no.Code != wire.CodeOverloaded || !strings.Contains(no.Text, "quota.per_job.links") || no.By != "proxy p1" {
			t.Errorf("refused with %+v", no)
		}
	}
	e, f := r.link(ofJob("b"))
	echoes(t, e, f)
	a.Close()
	b.Close()
	r.until("the first link's end", func(st Status) bool { return st.Links == 1 })
	g, h := r.link()
	echoes(t, g, h)
	if st := r.Status(); st.Refused[OverQuota] != 2 || st.Quota.Refused != 1 {
		t.Errorf("status %+v", st)
	}
}

// A link counts for its asker, and so do the limits that apply to it.
func TestQuotaOfUser(t *testing.T) {
	r := startWith(t, quota.Rules{User: quota.Limits{Links: 1}})
	by := func(name string) func(*wire.Ticket) {
		return func(t *wire.Ticket) { t.Principal = overlay.Principal{User: name, Project: "p"} }
	}
	a, b := r.link(by("alice"))
	echoes(t, a, b)
	c, d := r.link(by("alice"), ofJob("b"))
	for _, end := range []*net.TCPConn{c, d} {
		if no := testkit.Refused(r.t, end); !strings.Contains(no.Text, "alice has 1 links here already") {
			t.Errorf("refused with %+v", no)
		}
	}
	e, f := r.link(by("bob"))
	echoes(t, e, f)
	if st := r.Status().Quota; st.Users["alice"].Links != 1 || st.Projects["p"].Links != 2 {
		t.Errorf("status %+v", st)
	}
}

// A reader that does not read takes nothing from the others of its job: they get the whole rate.
func TestQuotaStuckReader(t *testing.T) {
	const rate, volume = 80e6, 4 << 20
	r := startWith(t, quota.Rules{Rate: 2 * rate, Job: quota.Limits{Rate: rate}})
	stuck, _ := r.link()
	var all sync.WaitGroup
	defer all.Wait()
	defer stuck.Close()
	all.Go(func() { io.Copy(stuck, endless{}) }) // until every buffer on the way is full, and then until it is closed
	r.until("the stuck reader's buffers to fill", func(st Status) bool { return st.Bytes > 1<<20 })

	a, b := r.link()
	start := time.Now()
	all.Go(func() { io.Copy(a, io.LimitReader(endless{}, volume)) })
	if n, err := io.Copy(io.Discard, io.LimitReader(b, volume)); err != nil || n != volume {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if took, least := time.Since(start), time.Duration((volume-1<<20)*8*float64(time.Second)/rate); took < least {
		t.Errorf("%d bytes took %v, at the job's rate it is %v at least", volume, took, least)
	}
	a.Close()
	b.Close()
	r.until("the second link's end", func(st Status) bool { return st.Links == 1 })
	if log := r.log.String(); !strings.Contains(log, "limited_to=80Mbit/s by=quota.per_job.rate") {
		t.Errorf("the log does not say what held the link back:\n%s", log)
	}
}

// endless is a source of zeros.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// A site's policy is enforced in addition to the proxy's own quota, and an owner that reaches it is
// told whose it is.
func TestPolicyLimits(t *testing.T) {
	r := startWith(t, quota.Rules{})
	within := func(t *wire.Ticket) {
		t.Allowances[0] = overlay.Allowance{Site: "sitea", Rule: "guests", Owner: "project p", Contact: "ops@sitea", Links: 1, Rate: 1e9}
	}
	a, b := r.link(within)
	echoes(t, a, b)
	c, d := r.link(within)
	for _, end := range []*net.TCPConn{c, d} {
		no := testkit.Refused(r.t, end)
		if want := `the policy of sitea (rule "guests") allows project p 1 relayed links at a time, which are in use; contact ops@sitea`; no.Code != wire.CodeOverloaded || no.Text != want {
			t.Errorf("refused with %+v", no)
		}
	}
	e, f := r.link()
	echoes(t, e, f)
	st := r.Status()
	if use := st.Quota.Allowed["sitea/guests project p"]; st.Refused[OverPolicy] != 2 || use.Links != 1 || use.Rate != 1e9 {
		t.Errorf("status %+v", st)
	}
}
