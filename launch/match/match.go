package match

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

// DefaultEffort is the default bound on the steps of a search: one to a few seconds, for some
// hundred hosts.
const DefaultEffort = 100_000

// ErrGaveUp means that a search used all its steps and found neither a match nor a proof that there
// is none.
var ErrGaveUp = errors.New("gave up")

// Match is where the processes of a job go.
type Match struct {
	Groups []Placed `json:"groups"` // in the order of the profile
	Steps  int      `json:"steps"`  // of the search
}

// Placed is a group and its hosts. Its ranks are consecutive.
type Placed struct {
	Name  string  `json:"name"`
	First int     `json:"first"` // rank in the job's world
	Count int     `json:"count"`
	Hosts []Share `json:"hosts"` // by site and name
}

// Share is the part of a group on one host: ranks First to First+Count-1. A host can have shares of
// several groups.
type Share struct {
	Node  overlay.NodeID `json:"node"`
	First int            `json:"first"`
	Count int            `json:"count"`
}

// Find matches a profile, which must pass Check, with an offer, in at most effort steps; 0 is
// DefaultEffort. If nothing fits, the error is an *Infeasible; if the steps did not suffice to
// tell, it is ErrGaveUp.
func Find(p *profile.Profile, o *Offer, effort int) (*Match, error) {
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	if effort <= 0 {
		effort = DefaultEffort
	}
	o = o.surveyed()
	m, v := attempt(p, o, effort)
	switch v {
	case found:
		return m, nil
	case gaveUp:
		return nil, fmt.Errorf("match: %w after %d steps without a match or a proof that there is none; "+
			"allow more steps, or ask for less: fewer groups that may span sites, or the same cores and memory for all", ErrGaveUp, effort)
	}
	return nil, explain(p, o, effort)
}

// Seek is Find for whoever has another offer to try: it does not look for what prevents a match, and returns nil if it finds none.
func Seek(p *profile.Profile, o *Offer, effort int) *Match {
	if p.Check() != nil {
		return nil
	}
	m, _ := attempt(p, o.surveyed(), cmp.Or(max(effort, 0), DefaultEffort))
	return m
}

// attempt searches a surveyed offer.
func attempt(p *profile.Profile, o *Offer, effort int) (*Match, verdict) {
	pr := newProblem(p, o, effort)
	counts, v := pr.solve()
	if v != found {
		return nil, v
	}
	return placed(p, o, counts, pr.steps), v
}

func placed(p *profile.Profile, o *Offer, counts [][]int, steps int) *Match {
	m := &Match{Steps: steps}
	rank := 0
	for g := range p.Groups {
		group := Placed{Name: p.Groups[g].Name, First: rank, Count: p.Groups[g].Processes}
		for h, n := range counts[g] {
			if n > 0 {
				group.Hosts = append(group.Hosts, Share{Node: o.hosts[h].Node, Count: n})
			}
		}
		slices.SortFunc(group.Hosts, func(a, b Share) int {
			return cmp.Or(cmp.Compare(a.Node.Site, b.Node.Site), cmp.Compare(a.Node.Name, b.Node.Name))
		})
		for i := range group.Hosts {
			group.Hosts[i].First = rank
			rank += group.Hosts[i].Count
		}
		m.Groups = append(m.Groups, group)
	}
	return m
}
