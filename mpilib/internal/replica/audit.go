package replica

import "github.com/isthmus-grid/isthmus/mpilib/internal/agree"

// This file finds out whether a process that has failed had passed the milestone of a round: nobody has counted how far it
// had come. What it sent from there on may be at some replicas of its destinations. The other replicas of its rank would
// send that again, and since a new layout begins with no counts it would not be found to be there.

// beginAudit is called when all that are left have drained. From now on nothing of the processes that failed is accepted;
// the other replicas of their ranks say how much they have sent.
func (r *rounds) beginAudit(p *Process, failed agree.Set) {
	r.damaged = map[int]bool{}
	var processes []int
	for seat := range failed.Ranks() {
		r.damaged[seat%p.cfg.Ranks] = true
		processes = append(processes, p.cfg.holder(seat))
	}
	p.recordFailures(processes, false)
	if !r.damaged[p.rank] {
		return
	}
	for rank := range p.peers {
		for c := range p.cfg.Replicas {
			if rank != p.rank {
				p.sendControl(p.cfg.Layout.Process(rank, c), Message{Kind: Total, Count: r.target, Used: p.peers[rank].sent})
			}
		}
	}
}

// hasTotals reports whether all ranks that have lost seats have said how much they have sent.
func (r *rounds) hasTotals(p *Process) bool {
	for rank := range r.damaged {
		if rank != p.rank && r.totals[rank].milestone != r.target && lowest(p.cfg.Replicas, p.alive(rank)) >= 0 {
			return false
		}
	}
	return true
}

// isConsistent reports whether nothing is here that a process has sent or decided behind the milestone.
func (r *rounds) isConsistent(p *Process) bool {
	for rank := range r.damaged {
		if rank != p.rank && p.peers[rank].begun() > r.totals[rank].messages {
			return false
		}
	}
	return len(p.log.entries) == 0
}

// begun returns how many messages of a rank have begun to arrive.
func (s *source) begun() uint64 {
	n := s.delivered
	for _, in := range s.incoming {
		n += uint64(len(in.begun))
	}
	return n
}

// mayBeBehind reports whether what others acknowledge may come from a process of this rank that had passed the milestone at
// which this process is, and has failed.
func (r *rounds) mayBeBehind(p *Process) bool {
	atMilestone := r.stage >= draining && r.stage != switching
	return atMilestone && (r.stage != inspecting || r.damaged[p.rank])
}
