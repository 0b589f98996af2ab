package proxy

import (
	"encoding/hex"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

// whenEnded is what happens when a link has ended. A link whose place is seen to be free is in the logs.
func (s *Server) whenEnded() account.Subscribers[*relayedLink] {
	return account.Subscribers[*relayedLink]{
		s.logEnded,
		func(_ *relayedLink, e account.LinkEnded) { s.set.Audit.Append(audit.EndOf(e)) },
		s.countEnded,
		func(*relayedLink, account.LinkEnded) { s.noteChange() },
	}
}

// ended returns what is known of the link at its end. The proxy counts payload, as the processes do,
// and not the tickets. The link has its throttle still.
func (l *relayedLink) ended(proxy string, stats carrier.Stats, err error) account.LinkEnded {
	t := l.asker.ticket
	e := account.LinkEnded{
		ID: hex.EncodeToString(t.Link[:]), Principal: t.Principal, Job: t.Job, Ranks: []uint32{t.Asker, t.Target},
		Technique: overlay.Relay.String(), Relay: proxy, Peer: l.asker.conn.RemoteAddr().String() + " " + l.target.conn.RemoteAddr().String(),
		Traffic: stats, Lasted: time.Since(l.joined), Err: err, Reason: "both ends closed",
	}
	if err != nil {
		e.Reason = err.Error()
	}
	if rate, key := l.throttle.Limit(); key != "" {
		e.LimitedTo, e.LimitedBy = rate.String(), key
	}
	return e
}

// logEnded writes a log line for each end.
func (s *Server) logEnded(l *relayedLink, e account.LinkEnded) {
	line := func(from *end, rank, peer uint32, sent, received uint64) {
		s.log.Info("link ended", append([]any{
			"link", e.ID, "job", string(e.Job), "rank", rank, "peer", peer, "user", e.Principal.User, "project", e.Principal.Project,
			"from", from.conn.RemoteAddr().String(), "form", from.form.String(), "sent", sent, "received", received,
			"waited", l.joined.Sub(from.since).Round(time.Microsecond), "duration", e.Lasted.Round(time.Microsecond), "cause", e.Reason,
		}, e.LimitAttrs()...)...)
	}
	line(l.asker, e.Ranks[0], e.Ranks[1], e.Traffic.AToB, e.Traffic.BToA)
	line(l.target, e.Ranks[1], e.Ranks[0], e.Traffic.BToA, e.Traffic.AToB)
}

// countEnded moves the link from those that are joined to the counts of those that were.
func (s *Server) countEnded(l *relayedLink, e account.LinkEnded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
	s.count.ended(e.Traffic, e.Err)
	out, back := traffic.Of(e.Traffic, l.throttle, false)
	s.siteTraffic.note(l, out, back)
	s.siteTraffic.sums.AddProject(e.Principal.Project, e.Traffic.Total())
}
