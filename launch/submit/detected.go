package submit

// This file decides about hosts that the failure detectors of the job's other hosts have taken for dead. For the
// processes at these its processes have failed, and stay so also where this driver reaches the host, or it is back.

import (
	"errors"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// detectTime is how long the driver waits for what other hosts say, from the first report on: where a path between hosts
// is cut, each takes the other for dead.
const detectTime = time.Second

// detected is which hosts of a job have taken which others for dead.
type detected struct {
	by  map[overlay.NodeID]map[overlay.NodeID]bool // by the one that is taken for dead: who has done so
	due time.Time                                  // when to decide; zero: there is nothing new

	silent map[overlay.NodeID]time.Time // since when this driver does not reach nodes
}

// report adds that a host has taken others for dead.
func (v *detected) report(by overlay.NodeID, dead []overlay.NodeID, now time.Time) {
	for _, node := range dead {
		if node == by || v.by[node][by] {
			continue
		}
		if v.by == nil {
			v.by = map[overlay.NodeID]map[overlay.NodeID]bool{}
		}
		if v.by[node] == nil {
			v.by[node] = map[overlay.NodeID]bool{}
		}
		v.by[node][by] = true
		if v.due.IsZero() {
			v.due = now.Add(detectTime)
		}
	}
}

// decide returns which of the living hosts are to be given up so that none is left that another one of those left has taken for
// dead. Those go first that most have taken for dead, so the larger part of a job stays where a cut divides it; of two, the
// later one in live.
func (v *detected) decide(live []overlay.NodeID) (dead []overlay.NodeID) {
	reports := map[overlay.NodeID]int{} // of those left, by those left
	for _, node := range live {
		for _, by := range live {
			if v.by[node][by] {
				reports[node]++
			}
		}
	}
	for {
		worst, most := overlay.NodeID{}, 1
		for _, node := range live {
			if reports[node] >= most {
				worst, most = node, reports[node]
			}
		}
		if reports[worst] == 0 {
			return dead
		}
		dead = append(dead, worst)
		delete(reports, worst)
		for node := range reports {
			if v.by[node][worst] {
				reports[node]--
			}
		}
	}
}

// errTakenForDead is why a host is given up that this driver may reach.
var errTakenForDead = errors.New("other hosts of the job have taken the node for dead")

// takenForDead handles that a node has taken others for dead.
func (d *driver) takenForDead(by overlay.NodeID, m *nodepb.TakenForDead, now time.Time) {
	var nodes []overlay.NodeID
	for _, name := range m.Nodes {
		if node, err := overlay.ParseNodeID(name); err == nil {
			nodes = append(nodes, node)
		}
	}
	if d.replacement != nil {
		d.replacement.tell(event{replacement: d.replacement, dead: &report{by, nodes}})
		return
	}
	if d.job.Replace > 0 {
		d.detected.report(by, nodes, now)
	}
}

// giveUpDetected gives up the hosts that others have taken for dead, when it is time to decide.
func (d *driver) giveUpDetected(now time.Time) {
	if d.detected.due.IsZero() || now.Before(d.detected.due) {
		return
	}
	if d.sub.Phase() != reserve.Launched {
		d.detected.due = now.Add(detectTime)
		return
	}
	d.detected.due = time.Time{}
	for _, node := range d.detected.decide(d.liveHosts()) {
		if i := slices.IndexFunc(d.replaced.all, func(r *replacement) bool { return r.at != nil && r.at.Node == node }); i >= 0 {
			d.replaced.all[i].stop(errTakenForDead)
			continue
		}
		d.giveUp(node, errTakenForDead)
	}
}

// giveUp takes the processes of a node for lost, and has the node end what it runs.
func (d *driver) giveUp(node overlay.NodeID, why error) {
	delete(d.detected.silent, node)
	c := d.talks[node]
	d.conversationEnded(c, why)
	c.sendMessage(&nodepb.ToNode{Say: &nodepb.ToNode_Cancel{Cancel: &nodepb.Cancel{Key: c.key[:]}}})
}

// liveHosts returns the hosts with processes of the job that have not ended.
func (d *driver) liveHosts() (live []overlay.NodeID) {
	for _, p := range d.places {
		if d.over[p.Node] == nil {
			live = append(live, p.Node)
		}
	}
	for _, r := range d.replaced.all {
		if r.at != nil && !d.outcome.ended[allocate.Process{Rank: r.number}] {
			live = append(live, r.at.Node)
		}
	}
	return live
}
