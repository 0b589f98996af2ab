package submit

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/overlay"
)

// siteTrial is how many hosts of a site are asked before one of them has answered. If none of them does,
// the site's others are not asked: whoever lists hosts that do not exist keeps nobody waiting.
const siteTrial = 8

var errSiteSilent = fmt.Errorf("not asked: of its site's hosts the first %d do not answer", siteTrial)

// turns decides which host is asked next: sites take turns. It belongs to its caller.
type turns struct {
	sites map[overlay.SiteID]*siteTurn
	order []*siteTurn
}

// siteTurn is the hosts of a site, by their indexes.
type siteTurn struct {
	waiting  []int
	under    int // that are being asked
	failed   int
	answered bool // one has
}

func newTurns(hosts []Host, asks func(Host) bool) *turns {
	t := &turns{sites: map[overlay.SiteID]*siteTurn{}}
	for i, h := range hosts {
		if !asks(h) {
			continue
		}
		s := t.sites[h.Node.Site]
		if s == nil {
			s = &siteTurn{}
			t.sites[h.Node.Site], t.order = s, append(t.order, s)
		}
		s.waiting = append(s.waiting, i)
	}
	return t
}

// next returns the host to ask now: of the site of which the fewest are being asked.
func (t *turns) next() (i int, found bool) {
	var site *siteTurn
	for _, s := range t.order {
		if len(s.waiting) > 0 && (s.answered || s.under+s.failed < siteTrial) && (site == nil || s.under < site.under) {
			site = s
		}
	}
	if site == nil {
		return 0, false
	}
	i, site.waiting = site.waiting[0], site.waiting[1:]
	site.under++
	return i, true
}

// done records the answer of a host, and returns the hosts of its site that are not to be asked any more.
func (t *turns) done(site overlay.SiteID, err error) (dropped []int) {
	s := t.sites[site]
	s.under--
	if err == nil {
		s.answered = true
		return nil
	}
	if s.failed++; s.failed >= siteTrial && !s.answered {
		dropped, s.waiting = s.waiting, nil
	}
	return dropped
}

// left returns the hosts that were not asked.
func (t *turns) left() (all []int) {
	for _, s := range t.order {
		all = append(all, s.waiting...)
	}
	return all
}

// askHosts calls ask for the hosts for which asks is true, several at a time, and returns their errors.
// When ctx ends, it asks no more. It calls answered, one call at a time, for each host without an error.
func askHosts(ctx context.Context, hosts []Host, asks func(Host) bool, ask func(ctx context.Context, i int) error, answered func(i int)) []error {
	type answer struct {
		i   int
		err error
	}
	errs, answers, under := make([]error, len(hosts)), make(chan answer), 0
	t := newTurns(hosts, asks)
	for {
		for under < probesAtOne && ctx.Err() == nil {
			i, found := t.next()
			if !found {
				break
			}
			under++
			go func() { answers <- answer{i, ask(ctx, i)} }() // the loop below receives the answer
		}
		if under == 0 {
			break
		}
		a := <-answers
		under--
		if errs[a.i] = a.err; a.err == nil {
			answered(a.i)
		}
		for _, i := range t.done(hosts[a.i].Node.Site, a.err) {
			errs[i] = errSiteSilent
		}
	}
	for _, i := range t.left() {
		errs[i] = errNotAsked
	}
	return errs
}

var errNotAsked = errors.New("not asked: others took too long")
