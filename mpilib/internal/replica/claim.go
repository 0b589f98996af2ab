package replica

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
			w.first = placeOf(s)
		}
		w.have = mix(w.have, s.Digest)
		if w.next == w.last {
			w.compare(p, s)
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
				w.first = placeOf(s)
			}
			w.have = mix(w.have, s.Digest)
			w.next++
		}
		if w.next > w.last {
			w.compare(p, s)
			continue
		}
		remaining = append(remaining, w)
	}
	o.claims = remaining
}

// compare reports a difference, in calls up to that of last.
func (w claim) compare(p *Process, last *Send) {
	if w.have != w.want && w.want != 0 {
		p.diverge(w.replica, Divergence{
			First: w.first.call, Last: last.Call, Names: [2]string{w.first.name, last.Name}, Lines: [2]string{w.first.line, last.Line},
			Messages: &Messages{last.Context, last.To, last.Tag, last.InOrder}, What: "messages of different content",
		})
	}
}

// checkSurplus reports messages that others of this rank have sent, once this process sends nothing more.
func (o *outgoing) checkSurplus(p *Process, d *destination, k key) {
	if p.rounds.mayBeBehind(p) {
		return
	}
	for c, n := range o.acked {
		if n > o.sent {
			p.diverge(d.sender[c], Divergence{Messages: &Messages{Context: k.context, To: d.rank, Tag: k.tag}, What: "the other sent more"})
			return
		}
	}
}
