package connhelper

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/connhelper/traffic"
	"github.com/isthmus-grid/isthmus/internal/account"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// trafficReports passes on what the processes of this node report about their links.
type trafficReports struct {
	*common
	ownLinks atomic.Int64 // open links in the accounts of all processes
}

// take processes a process's report about one of its links.
func (t *trafficReports) take(ctx context.Context, p *process, f *wire.LocalTraffic) {
	if overlay.CheckName("site", string(f.Peer.Site)) != nil || overlay.CheckName("node", f.Peer.Name) != nil {
		f.Peer = overlay.NodeID{} // an older peer did not name it, or the process made it up
	}
	before := p.account.Open()
	e, write := p.account.Take(f.Traffic, time.Now())
	t.ownLinks.Add(int64(p.account.Open() - before))
	if write {
		t.audit.ended(p, e)
	}
	t.passOn(ctx, p, false)
}

// end writes down what is known of the links of a process whose socket has ended, and
// reports it to the frontal before the frontal is notified that the process is gone. If the process
// is not gone but has another socket, it reports there what becomes of its links.
func (t *trafficReports) end(ctx context.Context, p *process, gone bool) {
	t.ownLinks.Add(-int64(p.account.Open()))
	if gone {
		for _, e := range p.account.Lost(time.Now()) {
			t.audit.ended(p, e)
		}
	}
	if s := p.account.Surplus(); s.Links > 0 {
		t.audit.log.Append(audit.EndOf(account.LinkEnded{
			Principal: p.principal, Job: p.name.Job, Ranks: []uint32{p.name.Rank}, Nodes: []overlay.NodeID{t.node}, Peer: p.who(),
			Traffic: carrier.Stats{AToB: s.Sent, BToA: s.Received}, Count: s.Links, Rule: audit.OwnWord,
			Reason: fmt.Sprintf("sum of %d links that ended too quickly to be written one by one", s.Links),
		}))
	}
	t.passOn(ctx, p, true)
}

// passOn reports links that are over to the frontal, all of them or when there are many: the
// frontal keeps the site's audit log, and knows on whose behalf the process works. A frontal that
// is away gets no report; the helper's own log has them.
func (t *trafficReports) passOn(ctx context.Context, p *process, all bool) {
	ends := p.account.Passable(time.Now(), all)
	f, _ := t.uplink.currentFrontal()
	if f == nil || len(ends) == 0 {
		return
	}
	for len(ends) > 0 {
		n := min(len(ends), traffic.MaxPassed)
		if err := t.pass(ctx, f, p, ends[:n]); err != nil {
			if ctx.Err() == nil && !errors.Is(err, wire.ErrVersion) { // an older frontal does not support it
				t.log.Warn("the site's audit log lacks what direct links have moved", "process", p.name.String(), "links", len(ends), "error", err)
			}
			return
		}
		ends = ends[n:]
	}
}

// pass reports some links to the frontal.
func (t *trafficReports) pass(ctx context.Context, f *frontal, p *process, ends []traffic.Ended) error {
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	req := &controlpb.AccountRequest{Process: control.ProcessToPB(p.name)}
	for _, e := range ends {
		m := &controlpb.LinkAccount{
			Link: e.Link[:], Rank: e.Rank, Technique: uint32(e.Technique), Sent: e.Sent, Received: e.Received,
			LastedMs: uint64(e.Lasted.Milliseconds()), UnsaidMs: uint64((e.Unsaid + time.Millisecond - 1).Milliseconds()),
		}
		if e.Peer != (overlay.NodeID{}) {
			m.Node = e.Peer.Key()
		}
		req.Links = append(req.Links, m)
	}
	return t.uplink.callBriefly(ctx, func() error {
		_, err := controlpb.NewNodesClient(f.session.Conn()).Account(ctx, req)
		return control.FromStatus(err)
	})
}
