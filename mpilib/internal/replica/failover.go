package replica

import (
	"fmt"
	"slices"
)

// Fail reports that processes have failed, or are to be treated so for good. Reporting one
// again does nothing.
func (p *Process) Fail(processes ...int) { p.recordFailures(processes, false) }

// recordFailures takes note of failures; others says that another process reported them.
func (p *Process) recordFailures(processes []int, others bool) {
	var fresh []int
	for _, q := range processes {
		if p.failed[q] {
			continue
		}
		p.failed[q] = true
		fresh = append(fresh, q)
		if q == p.cfg.Process {
			p.expelled = true
			p.emit(Effect{Kind: Expel})
		} else if others {
			p.emit(Effect{Kind: Condemn, Process: q})
		}
	}
	if p.expelled || len(fresh) == 0 {
		return
	}
	if p.isSeated() {
		handleFailures(p, fresh)
	}
	p.rounds.failed(p, fresh)
}

// handleFailures does what follows from failures of other processes that hold seats.
func handleFailures(p *Process, fresh []int) {
	within := false
	for _, q := range fresh {
		switch rank := p.cfg.Rank(q); rank {
		case Unseated:
		case p.rank:
			within = true
		default:
			p.destinationFailed(rank, p.cfg.Replica(q))
			compareWithLeft(p, rank)
		}
	}
	if within {
		p.takeOver()
		p.log.failure(p)
	}
}

// expel sends Failures to a process that is treated as failed, once.
func (p *Process) expel(process int) {
	if p.failed[process] && !p.expelSent[process] && !p.expelled {
		p.expelSent[process] = true
		p.emit(Effect{Kind: SendControl, Process: process, Message: Message{Kind: Failures, Failed: []int{process}}})
	}
}

// failures returns the processes that have failed and not just left, in ascending order.
func failures(p *Process) (all []int) {
	for q, failed := range p.failed {
		if failed && !p.ended.left[q] {
			all = append(all, q)
		}
	}
	return all
}

// destinationFailed forgets what a replica of another rank has not acknowledged.
func (p *Process) destinationFailed(rank, replica int) {
	d := &p.peers[rank].destination
	d.serving[replica], d.unsettled[replica] = silent, 0
	for _, s := range slices.Clone(d.order) { // not in the order of a map, so that effects are reproducible
		if !s.released {
			p.release(d, d.outgoing[streamOf(s.Context, s.Tag)])
		}
	}
	for k, o := range d.outgoing {
		d.forget(p, k, o)
	}
	copyHeld(p)
	if lowest(p.cfg.Replicas, p.alive(rank)) < 0 && !p.lost[rank] {
		p.lost[rank] = true
		p.rounds.lost(p, rank)
	}
}

// takeOver makes this process the server of whoever has lost another replica of its rank as server, and asks
// those for whom it has something.
func (p *Process) takeOver() {
	for rank := range p.peers {
		d := &p.peers[rank].destination
		for c, was := range d.serving {
			to, server := p.cfg.Layout.Process(rank, c), p.serverOf(p.rank, c)
			if server != p.cfg.Process { // which has taken over, or will
				d.sender[c] = p.cfg.Replica(server)
				continue
			}
			if rank == p.rank || was != silent || p.failed[to] {
				continue
			}
			d.serving[c] = takesOver
			if d.unsettled[c] > 0 {
				sendQuery(p, rank, c)
			}
		}
	}
}

// sendQuery asks a replica of another rank what it has.
func sendQuery(p *Process, rank, replica int) {
	p.peers[rank].serving[replica] = queries
	p.sendControl(p.cfg.Layout.Process(rank, replica), Message{Kind: Query, Failed: failures(p)})
}

// query is the question of a process that takes over what it serves this one. From now on nothing of those that it
// reports failed is accepted.
func query(p *Process, from int, failed []int) error {
	rank := p.cfg.Rank(from)
	p.recordFailures(failed, true)
	if p.expelled {
		return nil
	}
	if p.serverOf(rank, p.replica) != from {
		return fmt.Errorf("%w: process %d wants to serve process %d, which process %d does", ErrProtocol, from, p.cfg.Process, p.serverOf(rank, p.replica))
	}
	s := &p.peers[rank].source
	s.server = from
	for _, in := range s.incoming {
		in.sent = 0
	}
	p.acknowledge(rank, from)
	return nil
}

// have is the answer to Query: the process has what it has acknowledged. It is sent the others.
func have(p *Process, from int, acks []AckEntry) error {
	rank, c := p.cfg.Rank(from), p.cfg.Replica(from)
	d := &p.peers[rank].destination
	if d.serving[c] != queries {
		return fmt.Errorf("%w: process %d answers process %d, which did not ask", ErrProtocol, from, p.cfg.Process)
	}
	if err := p.acknowledged(from, acks); err != nil {
		return err
	}
	d.serving[c], d.sender[c] = serves, p.replica
	for _, s := range d.order {
		if o := d.outgoing[streamOf(s.Context, s.Tag)]; !s.released && s.dependsOn <= p.log.committed && p.needs(s, o, c) {
			p.emit(Effect{Kind: Transmit, Process: from, Send: s})
		}
	}
	return nil
}
