package replica

import "fmt"

// This file compares what this process sent with what others of its rank did: an acknowledgement has the digest
// of the messages of the process that served the replica that acknowledges.

// claim compares an acknowledgement's digest with that of the messages of this process, as far as it has sent
// them. It is called before they are counted as acknowledged.
func (p *Process) claim(o *outgoing, rank, replica int, a AckEntry) {
	next := o.acked[replica] + 1
	w := claim{replica: p.peers[rank].sender[replica], next: next, last: next + uint64(a.Count) - 1, want: a.Digest}
	first := o.sent - uint64(len(o.sends)) + 1 // number of sends[0]
	for ; w.next <= min(w.last, o.sent); w.next++ {
		s := o.sends[w.next-first]
		if w.next == next {
			w.first = place{s.Call, s.Line}
		}
		w.have = mix(w.have, s.Digest)
		if w.next == w.last {
			w.compare(p, place{s.Call, s.Line})
		}
	}
	if w.next <= w.last {
		o.claims = append(o.claims, w)
	}
}

// settleClaims compares the claims about s, which is being sent.
func (o *outgoing) settleClaims(p *Process, s *Send) {
	remaining := o.claims[:0]
	for _, w := range o.claims {
		if w.next == s.nth {
			if w.first.call == 0 {
				w.first = place{s.Call, s.Line}
			}
			w.have = mix(w.have, s.Digest)
			w.next++
		}
		if w.next > w.last {
			w.compare(p, place{s.Call, s.Line})
			continue
		}
		remaining = append(remaining, w)
	}
	o.claims = remaining
}

// compare reports a difference, in calls up to last.
func (w claim) compare(p *Process, last place) {
	if w.have != w.want && w.want != 0 {
		p.diverge(w.replica, Divergence{
			First: w.first.call, Last: last.call, Lines: [2]string{w.first.line, last.line}, What: "messages of different content",
		})
	}
}

// checkSurplus reports messages that others of this rank have sent, once this process sends nothing more.
func (o *outgoing) checkSurplus(p *Process, d *destination) {
	if p.rounds.mayBeBehind(p) {
		return
	}
	for c, n := range o.acked {
		if n > o.sent {
			p.diverge(d.sender[c], Divergence{What: fmt.Sprintf("the other sent more messages to rank %d", d.rank)})
			return
		}
	}
}
