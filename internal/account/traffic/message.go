package traffic

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/overlay"
)

// MaxEnds bounds the links that one report asks about.
const MaxEnds = 1000

// maxRule bounds the name of a rule, in bytes.
const maxRule = 200

// Ends are the two processes of a link.
type Ends struct {
	Job           overlay.JobID
	Asker, Target uint32
}

// Report is a daemon's report to the broker.
type Report struct {
	Life   uint64 // identifies this start of the daemon
	Counts map[Pair]Count
	Ask    []Ends // links whose sites are not known, at most MaxEnds
}

// ToPB converts a report to its message.
func (r Report) ToPB() *controlpb.TrafficRequest {
	m := &controlpb.TrafficRequest{Life: r.Life}
	for p, c := range r.Counts {
		m.Pairs = append(m.Pairs, &controlpb.PairTraffic{
			From: string(p.From), To: string(p.To), Bytes: c.Bytes, Links: uint32(c.Links),
			Waits: c.Waits, Rule: c.Rule[:min(len(c.Rule), maxRule)], Rate: uint64(c.Rate),
		})
	}
	for _, e := range r.Ask {
		m.Ends = append(m.Ends, &controlpb.Ends{Job: string(e.Job), Asker: e.Asker, Target: e.Target})
	}
	return m
}

// FromPB validates and converts a report. Names must be those of sites or Unknown, and pairs must
// be distinct.
func FromPB(m *controlpb.TrafficRequest) (Report, error) {
	r := Report{Life: m.GetLife(), Counts: map[Pair]Count{}}
	if n, asked := len(m.GetPairs()), len(m.GetEnds()); n > MaxPairs || asked > MaxEnds {
		return r, fmt.Errorf("counts of %d pairs of sites and questions about %d links, at most %d and %d are taken", n, asked, MaxPairs, MaxEnds)
	}
	for _, c := range m.GetPairs() {
		p := Pair{overlay.SiteID(c.GetFrom()), overlay.SiteID(c.GetTo())}
		for _, site := range []overlay.SiteID{p.From, p.To} {
			if site == Unknown {
				continue
			}
			if err := overlay.CheckName("site", string(site)); err != nil {
				return r, err
			}
		}
		if _, twice := r.Counts[p]; twice {
			return r, fmt.Errorf("two counts from %s to %s", p.From, p.To)
		}
		if n := len(c.GetRule()); n > maxRule {
			return r, fmt.Errorf("a rule's name of %d bytes, at most %d are taken", n, maxRule)
		}
		r.Counts[p] = Count{
			Bytes: c.GetBytes(), Links: int(c.GetLinks()), Waits: c.GetWaits(), Rule: c.GetRule(), Rate: quota.Rate(min(c.GetRate(), 1<<62)),
		}
	}
	for _, e := range m.GetEnds() {
		if err := overlay.CheckJobID(overlay.JobID(e.GetJob())); err != nil {
			return r, err
		}
		r.Ask = append(r.Ask, Ends{overlay.JobID(e.GetJob()), e.GetAsker(), e.GetTarget()})
	}
	return r, nil
}
