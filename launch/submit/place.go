package submit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/match"
	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

// TooFew is the error of a job for which there is no room now. There may be some later.
type TooFew struct {
	Have, Need int      // ranks
	Waiting    []string // hosts or sites to wait for; none: any
	Err        error    // what is missing, in full
}

func (e *TooFew) Error() string { return e.Err.Error() }
func (e *TooFew) Unwrap() error { return e.Err }

// refusals describes the hosts to wait for.
func (e *TooFew) refusals() string {
	if len(e.Waiting) == 0 {
		return "more hosts"
	}
	return someOf(e.Waiting)
}

// someOf names a few of them, and counts the others.
func someOf(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// fixed is a Strategy with a given placement: this many ranks on each of these hosts, in this
// order.
type fixed struct {
	name   string
	shares []HostShare
}

func (f fixed) Name() string { return f.name }

// Place implements allocate.Strategy.
func (f fixed) Place(d allocate.Demand) ([]allocate.Share, error) {
	var all []allocate.Share
	short := &TooFew{Need: d.Processes}
	var why []string
	for _, want := range f.shares {
		i := slices.IndexFunc(d.Hosts, func(h allocate.Host) bool { return h.Node == want.Node })
		takes := 0
		if i >= 0 {
			takes = d.Capacity[i]
		}
		if takes < want.Ranks {
			short.Have += takes
			short.Waiting = append(short.Waiting, want.Node.String())
			why = append(why, fmt.Sprintf("%s takes %d of %d processes", want.Node, takes, want.Ranks))
			continue
		}
		short.Have += want.Ranks
		all = append(all, allocate.Share{Host: i, Processes: want.Ranks})
	}
	if why != nil {
		short.Err = fmt.Errorf("%s", strings.Join(why, ", "))
		return nil, short
	}
	return all, nil
}

// Settled implements allocate.Strategy: only the named hosts matter.
func (f fixed) Settled(d allocate.Demand) bool {
	_, err := f.Place(d)
	return err == nil
}

// placement is how a job will be placed.
type placement struct {
	job      allocate.Job
	strategy allocate.Strategy
	hosts    []Host  // the candidates, in the order in which to book them
	between  network // the measurements for it; nil: none were needed

	// ranks, if not nil, lists the processes of a host, in place of the plan's, which has as many:
	// a profile numbers ranks by group.
	ranks map[overlay.NodeID][]allocate.Process

	independent bool // replicas do not act as one

	waited time.Duration // for how long the job has waited for room

	stale string // why other sites' hosts may be missing; empty: none is

	number int // of the only process, if it replaces another one
}

// replicas returns how many processes act as one for a rank.
func (p *placement) replicas(rank int) int {
	if p.independent || rank == 0 && p.job.Home != (overlay.NodeID{}) {
		return 1
	}
	return p.job.Copies
}

// place places a job on the available hosts, nearest first. The error is a *TooFew if more hosts
// could help.
func place(j *Job, hosts []Host, between network) (*placement, error) {
	p := &placement{job: j.Place, between: between, independent: j.Independent}
	for _, h := range hosts {
		if h.Jobs > 0 && h.Processes > 0 && h.State != stateAway && (!h.silent || len(j.Hosts) > 0) {
			p.hosts = append(p.hosts, h)
		}
	}
	var err error
	switch {
	case len(p.hosts) == 0 && len(j.Hosts) == 0:
		err = &TooFew{Need: j.Place.Processes(), Err: errors.New("no host that is up, and answers, takes jobs")}
	case j.Place.Graph != nil && (j.Profile != nil || ranksOf(j.Hosts) > 0):
		err = errors.New("a job with a graph is placed by a strategy, not by a profile or a list of hosts with their ranks")
	case j.Profile != nil:
		err = p.match(j.Profile, between)
	case len(j.Hosts) > 0:
		err = p.named(j, hosts)
	}
	if err == nil && p.strategy == nil {
		p.strategy, err = allocate.ByName(j.strategy(), between)
	}
	if err != nil {
		return nil, err
	}
	if nearest := slices.IndexFunc(p.hosts, func(h Host) bool { return h.Fault == nil }); j.PinRank0 && nearest >= 0 {
		p.job.Home = p.hosts[nearest].Node
	}
	return p, nil
}

// named restricts the candidates to those that the user named.
func (p *placement) named(j *Job, all []Host) error {
	total := ranksOf(j.Hosts)
	if total > 0 {
		p.strategy = fixed{"hosts", j.Hosts}
	}
	var chosen []Host
	short := &TooFew{Need: j.Place.Processes()}
	var why []string
	for _, want := range j.Hosts {
		is := func(h Host) bool { return h.Node == want.Node }
		if i := slices.IndexFunc(p.hosts, is); i >= 0 {
			chosen = append(chosen, p.hosts[i])
			short.Have += want.Ranks
			continue
		}
		short.Waiting = append(short.Waiting, want.Node.String())
		if slices.ContainsFunc(all, is) {
			why = append(why, fmt.Sprintf("%s accepts no jobs, or its helper is not connected (isthmus hosts shows which)", want.Node))
		} else {
			why = append(why, fmt.Sprintf("%s is not a host of the grid now (isthmus hosts lists them)", want.Node))
		}
	}
	if why != nil {
		short.Err = fmt.Errorf("%s", strings.Join(why, ", "))
		return short
	}
	if total == 0 { // nearest first, as before
		chosen = slices.DeleteFunc(p.hosts, func(h Host) bool {
			return !slices.ContainsFunc(j.Hosts, func(w HostShare) bool { return w.Node == h.Node })
		})
	}
	p.hosts = chosen
	return nil
}

// match places the groups of a profile on the offers of hosts, each set of replicas on hosts of its own.
func (p *placement) match(asked *profile.Profile, between network) error {
	p.ranks = map[overlay.NodeID][]allocate.Process{}
	var shares []HostShare
	for c := range p.job.Copies {
		found, err := p.matchSet(asked, between)
		if err != nil {
			if c > 0 {
				err = fmt.Errorf("replicas %d, on other hosts than replicas 0 to %d: %w", c, c-1, err)
			}
			return &TooFew{Need: asked.Processes() * p.job.Copies, Err: err}
		}
		first := len(shares)
		for _, g := range found.Groups {
			for _, s := range g.Hosts {
				if p.ranks[s.Node] == nil {
					shares = append(shares, HostShare{Node: s.Node})
				}
				for rank := s.First; rank < s.First+s.Count; rank++ {
					p.ranks[s.Node] = append(p.ranks[s.Node], allocate.Process{Rank: rank, Copy: c})
				}
			}
		}
		for i := range shares[first:] {
			shares[first+i].Ranks = len(p.ranks[shares[first+i].Node])
		}
	}
	p.strategy = fixed{"profile", shares}
	p.hosts = slices.DeleteFunc(p.hosts, func(h Host) bool { return p.ranks[h.Node] == nil })
	return nil
}

// matchSet finds hosts for the groups of a profile among those that have no processes yet. With replicas it looks at sites that
// have none first: at each by itself, and then at all of them.
func (p *placement) matchSet(asked *profile.Profile, between network) (*match.Match, error) {
	used := map[overlay.SiteID]bool{}
	for node := range p.ranks {
		used[node.Site] = true
	}
	var free, apart []Host
	var sites []overlay.SiteID
	for _, h := range p.hosts {
		if h.Fault != nil || p.ranks[h.Node] != nil || len(free) == match.MaxHosts {
			continue
		}
		if free = append(free, h); used[h.Node.Site] {
			continue
		}
		if apart = append(apart, h); !slices.Contains(sites, h.Node.Site) && len(sites) < maxSites {
			sites = append(sites, h.Node.Site)
		}
	}
	var tries [][]Host
	if p.job.Copies > 1 {
		for _, site := range sites {
			tries = append(tries, slices.DeleteFunc(slices.Clone(apart), func(h Host) bool { return h.Node.Site != site }))
		}
		tries = append(tries, apart)
	}
	for _, hosts := range tries {
		offer, err := p.offer(hosts, between)
		if err != nil {
			return nil, err
		}
		if m := match.Seek(asked, offer, match.DefaultEffort); m != nil {
			return m, nil
		}
	}
	offer, err := p.offer(free, between)
	if err != nil {
		return nil, err
	}
	return match.Find(asked, offer, match.DefaultEffort)
}

// offer returns what some of the hosts offer.
func (p *placement) offer(hosts []Host, between network) (*match.Offer, error) {
	var offered []match.Host
	for _, h := range hosts {
		offered = append(offered, matchable(h.Host))
	}
	offer, err := match.NewOffer(offered)
	if err == nil {
		between.fillOffer(offer)
		linkUp(offer, p.hosts)
	}
	return offer, err
}

// matchable returns a host in the form used to match profiles.
func matchable(h allocate.Host) match.Host {
	m := match.Host{Node: h.Node, Processes: h.Processes, Cores: h.CPU / 1000, Memory: profile.Bytes(h.Memory)}
	if h.CPU == 0 { // not limited, so the number of processes is the limit
		m.Cores = h.Processes * maxCores
	}
	if h.Memory == 0 {
		m.Memory = 1 << 62
	}
	return m
}

// maxCores is how many cores one process may ask for on a host that does not limit them.
const maxCores = 1024

// linkUp enters the measured round trips from here into the offer. They are attributed to the
// nearest host's site as well.
func linkUp(offer *match.Offer, hosts []Host) {
	if len(hosts) == 0 || hosts[0].Latency == allocate.UnknownLatency {
		return
	}
	here := hosts[0].Node // the nearest host is this node, or as near
	for _, h := range hosts[1:] {
		if h.Latency != allocate.UnknownLatency {
			offer.Hosts(here, h.Node, match.Link{RTT: h.Latency})
		}
	}
}

// processes returns the processes of each host of a plan.
func (p *placement) processes(plan *allocate.Plan) []Placed {
	var all []Placed
	for _, h := range plan.Used() {
		run := h.Processes
		if p.ranks != nil {
			run = p.ranks[h.Node]
		}
		if p.number > 0 {
			run = []allocate.Process{{Rank: p.number}}
		}
		all = append(all, Placed{h.Node, run})
	}
	return all
}

// nodesOfRanks returns for each rank the node of its replica 0 in a plan.
func (p *placement) nodesOfRanks(plan *allocate.Plan) []overlay.NodeID {
	nodes := make([]overlay.NodeID, p.job.Ranks)
	for _, h := range p.processes(plan) {
		for _, q := range h.Processes {
			if q.Copy == 0 {
				nodes[q.Rank] = h.Node
			}
		}
	}
	return nodes
}

// plan places the job on the hosts' offers, without booking.
func (p *placement) plan() (*allocate.Plan, error) {
	hosts := make([]allocate.Host, 0, len(p.hosts))
	for _, h := range p.hosts {
		if h.Fault == nil {
			hosts = append(hosts, h.Host)
		}
	}
	plan, err := allocate.Allocate(p.job, hosts, p.strategy)
	if err != nil {
		return nil, err
	}
	if p.job.Graph != nil {
		cost := plan.GraphCost(p.between)
		plan.Graph = &cost
	}
	if p.between != nil {
		var sites []overlay.SiteID
		for _, h := range plan.Used() {
			sites = append(sites, h.Node.Site)
		}
		plan.Paths = p.between.paths(sites)
	}
	if p.ranks != nil {
		for i := range plan.Hosts {
			if len(plan.Hosts[i].Processes) > 0 {
				plan.Hosts[i].Processes = p.ranks[plan.Hosts[i].Node]
			}
		}
	}
	return plan, nil
}
