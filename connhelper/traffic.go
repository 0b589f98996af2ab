package connhelper

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Bounds of what one process may report about its links. The reports are the process's own, so they
// must not fill the audit log.
const (
	maxOpenLinks = 4096 // open links that are remembered; of others only the end is known
	maxEnded     = 4096 // records of ends at once; those beyond are summed up in one
	endsPerSec   = 16   // and how many more each second
	maxPassed    = 256  // ends in one call to the frontal
)

// passAfter is how long ends wait for others before the frontal is notified. It is checked when the
// process sends a report, and all are sent when the process leaves.
const passAfter = 5 * time.Second

// accounts are what a process reports that its links have moved. Its reader goroutine owns them,
// and after that the code that handles its end. They use no clock.
type accounts struct {
	open    map[[16]byte]told // links that are not over
	ended   []ended           // not yet reported to the frontal
	endedAt time.Time         // time of the first of them
	surplus surplus

	room   float64   // records of ends that may be written now
	roomAt time.Time // when room was computed
}

// told is the last report about a link, and its time.
type told struct {
	overlay.Traffic
	at time.Time
}

// ended is a link that is over.
type ended struct {
	overlay.Traffic
	unsaid time.Duration // how long the process had reported nothing when it was killed; 0: it reported the end
}

// surplus sums up ends that were too many to be written one by one.
type surplus struct{ links, sent, received uint64 }

// take processes a report about a link, and returns the link's end if that is to be written
// individually.
func (a *accounts) take(t overlay.Traffic, now time.Time) (e ended, write bool) {
	if !t.Over {
		if _, known := a.open[t.Link]; !known && len(a.open) >= maxOpenLinks {
			return e, false
		}
		if a.open == nil {
			a.open = map[[16]byte]told{}
		}
		a.open[t.Link] = told{t, now}
		return e, false
	}
	delete(a.open, t.Link)
	return a.end(ended{Traffic: t}, now)
}

// end records a link that is over.
func (a *accounts) end(e ended, now time.Time) (_ ended, write bool) {
	if a.roomAt.IsZero() {
		a.room = maxEnded
	} else {
		a.room = min(maxEnded, a.room+endsPerSec*max(now.Sub(a.roomAt), 0).Seconds())
	}
	a.roomAt = now
	if a.room < 1 {
		a.surplus.links++
		a.surplus.sent += e.Sent
		a.surplus.received += e.Received
		return e, false
	}
	a.room--
	if len(a.ended) == 0 {
		a.endedAt = now
	}
	a.ended = append(a.ended, e)
	return e, true
}

// lost ends the links whose end the process can no longer report, because it is gone.
func (a *accounts) lost(now time.Time) (write []ended) {
	for _, t := range a.open {
		e := ended{Traffic: t.Traffic, unsaid: max(now.Sub(t.at), time.Nanosecond)}
		e.Lasted += e.unsaid
		if e, ok := a.end(e, now); ok {
			write = append(write, e)
		}
	}
	clear(a.open)
	return write
}

// passable returns what to report to the frontal now.
func (a *accounts) passable(now time.Time, all bool) []ended {
	if !all && len(a.ended) < maxPassed && now.Sub(a.endedAt) < passAfter {
		return nil
	}
	out := a.ended
	a.ended = nil
	return out
}

// traffic processes a process's report about one of its links.
func (h *Helper) traffic(ctx context.Context, p *process, f *wire.LocalTraffic) {
	if overlay.CheckName("site", string(f.Peer.Site)) != nil || overlay.CheckName("node", f.Peer.Name) != nil {
		f.Peer = overlay.NodeID{} // an older peer did not name it, or the process made it up
	}
	before := len(p.accounts.open)
	e, write := p.accounts.take(f.Traffic, time.Now())
	h.ownLinks.Add(int64(len(p.accounts.open) - before))
	if write {
		h.auditEnded(p, e)
	}
	h.passOn(ctx, p, false)
}

// reportTraffic writes down what is known of the links of a process whose socket has ended, and
// reports it to the frontal before the frontal is notified that the process is gone. If the process
// is not gone but has another socket, it reports there what becomes of its links.
func (h *Helper) reportTraffic(ctx context.Context, p *process, gone bool) {
	h.ownLinks.Add(-int64(len(p.accounts.open)))
	if gone {
		for _, e := range p.accounts.lost(time.Now()) {
			h.auditEnded(p, e)
		}
	}
	if s := p.accounts.surplus; s.links > 0 {
		r := h.record(p)
		r.Event, r.Count, r.Sent, r.Received = audit.LinkEnd, s.links, s.sent, s.received
		r.Rule, r.Reason = audit.OwnWord, fmt.Sprintf("sum of %d links that ended too quickly to be written one by one", s.links)
		h.opts.Audit.Append(r)
	}
	h.passOn(ctx, p, true)
}

// auditEnded records the end of a link that no daemon carried.
func (h *Helper) auditEnded(p *process, e ended) {
	r := h.record(p)
	r.Event, r.Link, r.Ranks = audit.LinkEnd, hex.EncodeToString(e.Link[:]), append(r.Ranks, e.Rank)
	if e.Peer != (overlay.NodeID{}) {
		r.Sites, r.Nodes = append(r.Sites, string(e.Peer.Site)), append(r.Nodes, e.Peer.Name)
	}
	r.Technique, r.Sent, r.Received, r.Seconds = e.Technique.String(), e.Sent, e.Received, e.Lasted.Seconds()
	r.Rule, r.Reason = audit.OwnWord, audit.OwnWordReason(e.unsaid)
	h.opts.Audit.Append(r)
}

// passOn reports links that are over to the frontal, all of them or when there are many: the
// frontal keeps the site's audit log, and knows on whose behalf the process works. A frontal that
// is away gets no report; the helper's own log has them.
func (h *Helper) passOn(ctx context.Context, p *process, all bool) {
	ends := p.accounts.passable(time.Now(), all)
	f, _ := h.home.currentFrontal()
	if f == nil || len(ends) == 0 {
		return
	}
	for len(ends) > 0 {
		n := min(len(ends), maxPassed)
		if err := h.pass(ctx, f, p, ends[:n]); err != nil {
			if ctx.Err() == nil && !errors.Is(err, wire.ErrVersion) { // an older frontal does not support it
				h.log.Warn("the site's audit log lacks what direct links have moved", "process", p.name.String(), "links", len(ends), "error", err)
			}
			return
		}
		ends = ends[n:]
	}
}

// pass reports some links to the frontal.
func (h *Helper) pass(ctx context.Context, f *frontal, p *process, ends []ended) error {
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	req := &controlpb.AccountRequest{Process: control.ProcessToPB(p.name)}
	for _, e := range ends {
		m := &controlpb.LinkAccount{
			Link: e.Link[:], Rank: e.Rank, Technique: uint32(e.Technique), Sent: e.Sent, Received: e.Received,
			LastedMs: uint64(e.Lasted.Milliseconds()), UnsaidMs: uint64((e.unsaid + time.Millisecond - 1).Milliseconds()),
		}
		if e.Peer != (overlay.NodeID{}) {
			m.Node = e.Peer.String()
		}
		req.Links = append(req.Links, m)
	}
	return h.callBriefly(ctx, func() error {
		_, err := controlpb.NewNodesClient(f.session.Conn()).Account(ctx, req)
		return control.FromStatus(err)
	})
}
