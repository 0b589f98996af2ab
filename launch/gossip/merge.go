package gossip

import "time"

// merge merges one entry.
func (d *Detector) merge(e *Entry, now time.Time, out *Output) {
	age := max(0, e.Age)
	switch p := d.peers[e.ID]; {
	case e.Incarnation == 0:
	case e.ID == d.self.ID:
		d.mirror(e)
	case p == nil:
		d.addUnlisted(e, age, now, out)
	case e.Incarnation < p.Incarnation:
	case e.Incarnation > p.Incarnation:
		d.restarted(p, e, age, now, out)
	case p.state == left:
	case e.Left:
		d.leave(p, e, now, out)
	case e.Heartbeat > p.Heartbeat:
		d.beat(p, e, age, now, out)
	}
}

// mirror handles an entry about this host. If it claims more than this host has reached, it comes
// from a start with a higher incarnation, which this host must exceed.
func (d *Detector) mirror(e *Entry) {
	if e.Incarnation > d.self.Incarnation || e.Incarnation == d.self.Incarnation && (e.Heartbeat > d.self.Heartbeat || e.Left) {
		d.self.Incarnation = e.Incarnation + 1
	}
}

// addUnlisted adds a host that no registry listed.
func (d *Detector) addUnlisted(e *Entry, age time.Duration, now time.Time, out *Output) {
	if e.Left || age >= d.cfg.suspectAfter(len(d.ring)+1) {
		return // news of a host that is gone
	}
	p := d.admit(e.ID, now)
	if p == nil {
		d.stats.Refused++
		return
	}
	p.Entry, p.fresh = *e, now.Add(-age)
	out.Verdicts = append(out.Verdicts, Verdict{ID: e.ID, Incarnation: e.Incarnation, Kind: Joined, Silent: age})
}

// restarted handles another incarnation of a host. The processes of the previous one are dead,
// whether it was declared failed or not.
func (d *Detector) restarted(p *peer, e *Entry, age time.Duration, now time.Time, out *Output) {
	if age >= d.cfg.suspectAfter(len(d.ring)) && p.state != alive {
		return // news of a host that may be gone as well
	}
	expected := p.Incarnation == 0 && p.state != failed
	if p.Incarnation > 0 && (p.state == alive || p.state == suspected) {
		d.fail(p, now, "it was started anew", out)
	}
	p.Entry, p.fresh, p.state = *e, now.Add(-age), alive
	if e.Left {
		p.state = left
	}
	d.setRing()
	switch {
	case e.Left && expected:
		out.Verdicts = append(out.Verdicts, Verdict{ID: e.ID, Incarnation: e.Incarnation, Kind: Left, Silent: age})
	case !e.Left && !expected:
		out.Verdicts = append(out.Verdicts, Verdict{ID: e.ID, Incarnation: e.Incarnation, Kind: Joined, Silent: age})
	}
}

func (d *Detector) leave(p *peer, e *Entry, now time.Time, out *Output) {
	wasReported := p.state == failed
	p.Entry, p.fresh, p.state = *e, now, left
	d.setRing()
	if !wasReported {
		out.Verdicts = append(out.Verdicts, Verdict{ID: e.ID, Incarnation: e.Incarnation, Kind: Left})
	}
}

// beat handles a newer heartbeat.
func (d *Detector) beat(p *peer, e *Entry, age time.Duration, now time.Time, out *Output) {
	p.Heartbeat = e.Heartbeat
	if at := now.Add(-age); at.After(p.fresh) {
		p.fresh = at
	}
	if p.state == alive || now.Sub(p.fresh) >= d.cfg.suspectAfter(len(d.ring)) {
		return
	}
	if p.state == failed {
		out.Verdicts = append(out.Verdicts, Verdict{ID: p.ID, Incarnation: p.Incarnation, Kind: Returned, Silent: now.Sub(p.fresh)})
	}
	p.state = alive
	d.setRing()
}
