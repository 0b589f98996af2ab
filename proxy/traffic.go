package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// siteTraffic is what links moved, by the sites of their ends. A ticket does not name the sites, so
// the proxy asks a broker for those of each link; what a link moved that ended earlier waits for
// the answer. The server's mu guards it.
type siteTraffic struct {
	sums   traffic.Sums                      // of links that have ended
	orphan map[traffic.Ends][2]traffic.Count // of links that have ended, sites not known yet; at most traffic.MaxEnds
}

// ends returns the processes of a link.
func (l *relayedLink) ends() traffic.Ends {
	t := l.asker.ticket
	return traffic.Ends{Job: t.Job, Asker: t.Asker, Target: t.Target}
}

// unknown stands for sites that no broker has reported.
var unknown = traffic.Pair{From: traffic.Unknown, To: traffic.Unknown}

// note counts a link that has ended. s.mu is held.
func (m *siteTraffic) note(l *relayedLink, out, back traffic.Count) {
	if l.sites != (traffic.Pair{}) {
		m.sums.Add(l.sites, out, back)
		return
	}
	if m.orphan == nil {
		m.orphan = map[traffic.Ends][2]traffic.Count{}
	}
	e := l.ends()
	had, known := m.orphan[e]
	if !known && len(m.orphan) >= traffic.MaxEnds {
		m.sums.Add(unknown, out, back)
		return
	}
	m.orphan[e] = [2]traffic.Count{had[0].Plus(out), had[1].Plus(back)}
}

// trafficReport returns what all links moved, and which ends to ask a broker about.
func (s *Server) trafficReport() traffic.Report {
	s.mu.Lock()
	defer s.mu.Unlock() // links end under mu: none is missed or counted twice
	all := s.siteTraffic.sums.Clone()
	ask := map[traffic.Ends]struct{}{}
	for l := range s.links {
		if l.throttle == nil {
			continue // not joined yet
		}
		pair := l.sites
		if pair == (traffic.Pair{}) {
			pair = unknown
			ask[l.ends()] = struct{}{}
		}
		out, back := traffic.Of(l.meter.Stats(), l.throttle, true)
		all.Add(pair, out, back)
	}
	for e := range s.siteTraffic.orphan {
		ask[e] = struct{}{}
	}
	asked := slices.Collect(maps.Keys(ask))
	return traffic.Report{Life: s.life, Counts: all.Counts(), Ask: asked[:min(len(asked), traffic.MaxEnds)]}
}

// trafficAnswer processes the broker's answer: the sites of the ends.
func (s *Server) trafficAnswer(asked []traffic.Ends, sites []*controlpb.SitePair) error {
	if len(sites) != len(asked) {
		return fmt.Errorf("%w: %d links were asked about, and %d answers came", wire.ErrMalformed, len(asked), len(sites))
	}
	of := map[traffic.Ends]traffic.Pair{}
	for i, e := range asked {
		p := traffic.Pair{From: overlay.SiteID(sites[i].GetAsker()), To: overlay.SiteID(sites[i].GetTarget())}
		for _, site := range []overlay.SiteID{p.From, p.To} {
			if err := overlay.CheckName("site", string(site)); err != nil && site != "" {
				return fmt.Errorf("%w: %w", wire.ErrMalformed, err)
			}
		}
		if p.From != "" && p.To != "" {
			of[e] = p
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.links {
		if p, known := of[l.ends()]; known && l.sites == (traffic.Pair{}) {
			l.sites = p
		}
	}
	for _, e := range asked {
		counts, waits := s.siteTraffic.orphan[e]
		if !waits {
			continue
		}
		p, known := of[e]
		if !known {
			p = unknown // its processes are gone, and no broker will know
		}
		s.siteTraffic.sums.Add(p, counts[0], counts[1])
		delete(s.siteTraffic.orphan, e)
	}
	return nil
}

// reportTraffic reports to the broker what was relayed here. A broker of an older version does not
// support that.
func (o *offerer) reportTraffic(ctx context.Context, session *control.Session, report traffic.Report) error {
	if len(report.Counts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, offerBound)
	defer cancel()
	resp, err := controlpb.NewTrafficClient(session.Conn()).Report(ctx, report.ToPB())
	if err = control.FromStatus(err); err == nil {
		err = o.server.trafficAnswer(report.Ask, resp.GetSites())
	}
	if errors.Is(err, wire.ErrVersion) {
		return nil
	}
	return err
}
