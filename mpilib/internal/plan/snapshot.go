package plan

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/place"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A snapshot is what all ranks of a communicator know of their locations and of the paths between
// them, and so the basis for choosing algorithms. It is immutable.
type snapshot struct {
	places []overlay.NodeID // by rank; nil: all are at one site
	paths  map[sitePair]pathRecord
	orders Orders
	hint   string // algorithms that the communicator's hint forces
}

// sitePair is the path from one site to another.
type sitePair struct{ from, to overlay.SiteID }

// pathRecord is the links' measurement of it; 0 is unknown.
type pathRecord struct {
	RTT  float64 // seconds
	Rate float64 // bytes a second
}

// sites returns the sites of the ranks, in the order of their lowest ranks, and the site number of
// each rank.
func (o *snapshot) sites() (names []overlay.SiteID, of []int) {
	of = place.Dense(place.BySite(o.places))
	for r, k := range of {
		if k == len(names) {
			names = append(names, o.places[r].Site)
		}
	}
	return names, of
}

// spansSites reports whether ranks are at several sites.
func (o *snapshot) spansSites() bool {
	return slices.ContainsFunc(o.places, func(p overlay.NodeID) bool { return p.Site != o.places[0].Site })
}

// subset returns the snapshot for a subset of a communicator's processes.
func (o *snapshot) subset(whole, some *group.Group) *snapshot {
	of := *o
	of.hint = ""
	if o.places == nil {
		return &of
	}
	of.places = make([]overlay.NodeID, some.Size())
	for r, world := range some.All() {
		of.places[r] = o.places[whole.Rank(world)]
	}
	return &of
}

func (o *snapshot) layout() collectives.Layout {
	if o.places == nil {
		return nil
	}
	return collectives.Layout{place.BySite(o.places), place.ByNode(o.places)}
}

// model is the default model, with the known values.
func (o *snapshot) model() *collectives.Model {
	m := collectives.DefaultModel()
	m.Learned = o.orders.Learned
	if len(o.paths) == 0 {
		return m
	}
	names, _ := o.sites()
	for _, from := range names {
		row := slices.Repeat([]schedule.Path{m.InterSite}, len(names))
		for k, to := range names {
			o.correct(&row[k], sitePair{from, to})
		}
		m.Between = append(m.Between, row)
	}
	return m
}

// correct replaces assumed properties of a path by measured ones. If one end has no measurement,
// the other may have one.
func (o *snapshot) correct(p *schedule.Path, w sitePair) {
	there, back := o.paths[w], o.paths[sitePair{w.to, w.from}]
	if rtt := minKnown(there.RTT, back.RTT); rtt > 0 {
		p.Latency = time.Duration(rtt / 2 * float64(time.Second))
	}
	switch {
	case there.Rate > 0:
		p.Rate = there.Rate
	case back.Rate > 0:
		p.Rate = back.Rate
	}
}

// minKnown returns the smaller of two values of which 0 is unknown.
func minKnown(a, b float64) float64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// planner returns this rank's for a communicator.
func (o *snapshot) planner(c Comm) (*collectives.Planner, error) {
	p, err := collectives.NewPlanner(c.Rank(), c.Size(), o.layout())
	if err != nil {
		return nil, err
	}
	if p.Apart() {
		p.SetModel(o.model())
	}
	for _, list := range []string{o.orders.Forced, o.hint} {
		if err := p.ForceAll(list); err != nil {
			return nil, err
		}
	}
	if out := c.Config().Explain; out != nil && c.Rank() == 0 {
		p.OnChoice(func(collective operation.Operation, s collectives.Shape, choices []collectives.Choice) {
			io.WriteString(out, explained(c.Name(), collective, s, choices)) // its failure cannot be reported
		})
	}
	return p, nil
}

// forcesSharedMemory reports whether a collective is forced to an algorithm that needs it.
func (o *snapshot) forcesSharedMemory() bool {
	forced := map[operation.Operation]string{}
	for _, list := range []string{o.orders.Forced, o.hint} {
		names, _ := collectives.ParseForced(list) // an error is the planner's to report
		maps.Copy(forced, names)
	}
	for collective, name := range forced {
		if a, err := collectives.Find(collective, name); err == nil && a.Needs.Has(collectives.SharedMemory) {
			return true
		}
	}
	return false
}

// explained says in a line what was chosen.
func explained(comm string, collective operation.Operation, s collectives.Shape, choices []collectives.Choice) string {
	text := fmt.Sprintf("isthmus coll: %s: %s of %d bytes, root %d: %s", comm, collective, s.Bytes, s.Root, choice(choices[0]))
	if len(choices) > 1 {
		text += "; next best " + choice(choices[1])
	}
	return text + "\n"
}

func choice(c collectives.Choice) string {
	if c.Predicted == 0 { // forced, or the ranks are together
		return c.Algorithm.Name
	}
	return fmt.Sprintf("%s, %v predicted", c.Algorithm.Name, c.Predicted.Round(time.Microsecond))
}

// measured returns the measurements of this process's links for the paths from its site, by site.
func measured(c Comm, o *snapshot) map[sitePair]pathRecord {
	known := map[sitePair]pathRecord{}
	mine := o.places[c.Rank()].Site
	for _, p := range c.PathMeasurements() {
		w := sitePair{mine, o.places[p.To].Site}
		if w.from != w.to {
			known[w] = known[w].with(pathRecord{RTT: p.RTT, Rate: p.Rate})
		}
	}
	return known
}

// with returns the better value of each property.
func (r pathRecord) with(s pathRecord) pathRecord {
	return pathRecord{RTT: minKnown(r.RTT, s.RTT), Rate: max(r.Rate, s.Rate)}
}

// withHint returns a snapshot with another hint.
func (o *snapshot) withHint(list string) *snapshot {
	of := *o
	of.hint = list
	return &of
}

// withPaths returns a snapshot with other paths.
func (o *snapshot) withPaths(paths map[sitePair]pathRecord) *snapshot {
	of := *o
	of.paths = paths
	return &of
}
