package frontal

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit/pace"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/wire"
)

// TestQuota: a carried link waits for its job's rate and loses nothing; one too
// many is told which setting refuses it.
func TestQuota(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Quota.PerJob = pace.JobLimits{Rate: 2e6, Links: 1} })
	h := r.helper("a1")
	h.register(0)
	far := listenLoop(t)
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
	if refuse := r.refused(more); refuse.Code != wire.CodeOverloaded || !strings.Contains(refuse.Text, "quota.per_job.links") {
		t.Errorf("refused with %+v", refuse)
	}
	exchange(t, near, other)
	r.until("the link is in the log", func() bool { return strings.Contains(r.log.String(), "msg=carried") })
	if log := r.log.String(); !strings.Contains(log, "limited_to=2Mbit/s by=quota.per_job.rate") {
		t.Errorf("log: %s", log)
	}
	// What it moved, and what held it back, is still told.
	_, by := r.f.carriedNow()
	waits := uint64(0)
	for p, c := range by.moved.Counts() {
		waits += c.Waits
		if p.From != r.f.site && p.To != r.f.site || c.Bytes != 300_000 || c.Links != 0 || c.Waits > 0 && c.Rule != "quota.per_job.rate" {
			t.Errorf("%v: %+v", p, c)
		}
	}
	if waits == 0 {
		t.Errorf("nothing was held back: %+v", by.moved.Counts())
	}
	if st := r.f.status().Quota; st.Waits == 0 || st.Refused != 1 || st.Links != 0 {
		t.Errorf("status %+v", st)
	}
}

// stream is a connection that the kernel cannot copy from, as those of hole
// punching.
type stream struct{ *net.TCPConn }

// TestQuotaOfStreams: what passes through this process's memory waits, too.
func TestQuotaOfStreams(t *testing.T) {
	k, err := pace.New(quota.Rules{Rate: 2e6}, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() { k.Serve(ctx) })
	defer served.Wait()
	defer cancel()

	ln := listenLoop(t)
	var ends [2][2]net.Conn // inside and outside: of the node or peer, of the frontal
	for i := range ends {
		c, err := carrier.DialTCP(ctx, ln.Addr().String(), carrier.HTTPProxy{})
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		ends[i] = [2]net.Conn{c, accepted}
	}
	m := meterOf(ends[0][1].(*net.TCPConn), stream{ends[1][1].(*net.TCPConn)})
	l, err := k.Admit(quota.Owner{Job: job}, func() uint64 { return m.Stats().Total() })
	if err != nil {
		t.Fatal(err)
	}
	run := m.joining(l)
	carried := make(chan error, 1)
	go func() {
		defer l.Close()
		carried <- run(ctx)
	}()
	exchange(t, ends[0][0], ends[1][0])
	if err := receive(t, "the end of the link", carried); err != nil {
		t.Error(err)
	}
	if st := m.Stats(); st.AToB != 300_000 || st.BToA != 300_000 {
		t.Errorf("counted %+v", st)
	}
	if k.Status().Waits == 0 {
		t.Error("600 kB at 2 Mbit/s, and nothing had to wait")
	}
}
