package replica

import "slices"

// This file is the end of a process whose program is over.

// ended holds which processes have come to their end.
type ended struct {
	doneSent bool   // Done was sent to the other replicas of this rank
	done     []bool // replicas of this rank that have sent Done
	left     []bool // processes that have ended: they count as failed, but are not reported as such
}

// Drain asks for all acknowledgements, since the program sends nothing more. A process must not end
// before Drained: the others may need what it sent. Nor before Ended: while another replica of its rank has
// something to send, that may be asked for what this one leads or served.
func (p *Process) Drain() {
	p.draining = true
	p.askForAcks()
	checkAllSurplus(p)
}

func checkAllSurplus(p *Process) {
	for i := range p.peers {
		d := &p.peers[i].destination
		for k, o := range d.outgoing {
			o.checkSurplus(p, d, k)
		}
	}
}

// Drained reports whether all that was sent is acknowledged by all, and all that was decided is committed.
func (p *Process) Drained() bool {
	for i := range p.peers {
		if d := &p.peers[i].destination; len(d.order) > d.stale {
			return false
		}
	}
	return p.log.committed == p.log.length()
}

// Ended reports whether all live replicas of this rank have drained, so that none of them needs another any more, and
// whether nothing is here that only one that may be dead has sent: else it must be known first whether it is.
// It has effects: what is here is acknowledged, and Done is sent to the others, once.
func (p *Process) Ended() bool {
	if !p.isSeated() {
		p.rounds.over = true
		return true
	}
	if !p.Drained() {
		return false
	}
	acknowledgeAll(p)
	if !p.ended.doneSent {
		p.ended.doneSent = true
		p.eachReplica(func(_, q int) { p.sendControl(q, Message{Kind: Done}) })
	}
	all := !hasSurplus(p)
	p.eachReplica(func(c, _ int) { all = all && p.ended.done[c] })
	p.rounds.over = p.rounds.over || all
	return all
}

// acknowledgeAll sends all acknowledgements that are due. A replica of the source that has not sent those messages yet
// compares its own with them, and once this process has left nobody else may know what arrived.
func acknowledgeAll(p *Process) {
	for rank := range p.peers {
		p.acknowledge(rank, -1)
	}
}

// within reports whether a replica of this rank has left: then all of them have drained.
func (e *ended) within(p *Process) bool {
	for c := range p.cfg.Replicas {
		if e.left[p.cfg.Layout.Process(p.rank, c)] {
			return true
		}
	}
	return false
}

// Leave reports that processes have ended in order: nothing goes to them any more, and nothing comes.
func (p *Process) Leave(processes ...int) {
	for _, q := range processes {
		p.ended.left[q] = true
		if rank := p.cfg.Rank(q); !p.failed[q] && rank != Unseated && rank != p.rank {
			p.peers[rank].source.replicaLeft(p.cfg.Replica(q)) // which recordFailures compares
		}
	}
	p.recordFailures(processes, false)
}

// replicaLeft notes that a replica has left. All that it sent is acknowledged, so all that is acknowledged from now on is
// more than that.
func (s *source) replicaLeft(replica int) {
	s.left = replica
	if len(s.acks) > 0 && s.surplus == nil {
		s.surplus = &key{s.acks[0].Context, s.acks[0].Tag}
	}
}

// hasSurplus reports whether a process sent more than a replica of its rank which has left, and is not known to be dead.
func hasSurplus(p *Process) bool {
	return slices.ContainsFunc(p.peers, func(q peer) bool { return q.surplus != nil && q.server >= 0 && !p.failed[q.server] })
}

// compareWithLeft reports messages that a dead process of a rank sent here, and that a replica of the rank which has left did
// not send. Whichever of both is known first: nobody else finds that out. Of one that lives it is no news that it is ahead.
func compareWithLeft(p *Process, rank int) {
	s := &p.peers[rank].source
	if s.surplus == nil || s.server < 0 || !p.failed[s.server] || p.ended.left[s.server] {
		return
	}
	p.emit(Effect{Kind: Diverge, Divergence: Divergence{
		Rank: rank, Replicas: [2]int{s.left, p.cfg.Replica(s.server)}, Messages: &Messages{Context: s.surplus.context, To: p.rank, Tag: s.surplus.tag}, What: "the other sent more",
	}})
	s.surplus = nil
}
