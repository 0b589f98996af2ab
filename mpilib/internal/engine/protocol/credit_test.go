package protocol

import (
	"fmt"
	"testing"
	"time"
)

// longPath is a stream of bytes from a sender that uses all of its credit to a receiver, in
// virtual time.
type longPath struct {
	rtt       time.Duration
	rate      int // of the path, bytes in a millisecond
	consumes  int // of the receiver, likewise
	grant     grant
	extra     int
	credit    int
	now       time.Time
	data      []inTransit
	credits   []inTransit
	arrived   int
	returns   int // that the receiver said
	greatest  int // of those that did not grow it
	wasBroken error
}

type inTransit struct {
	at time.Time
	n  int
}

func newLongPath(rtt time.Duration, mbit, consumes int, first, most, extra int) *longPath {
	p := &longPath{rtt: rtt, rate: mbit * 125, consumes: consumes, grant: newGrant(first, most), extra: extra, credit: FirstCredit, now: time.Unix(1e9, 0)}
	p.resize()
	p.giveCredit()
	p.returns, p.greatest = 0, 0
	return p
}

func (p *longPath) resize() int {
	more := p.grant.resize(p.now, p.rtt, p.extra)
	p.extra -= more
	return more
}

func (p *longPath) giveCredit() {
	p.credits = append(p.credits, inTransit{p.now.Add(p.rtt / 2), p.grant.owed})
	p.grant.owed = 0
	p.returns++
}

// here takes out what has arrived.
func here(q *[]inTransit, now time.Time) (n int) {
	for len(*q) > 0 && !(*q)[0].at.After(now) {
		n += (*q)[0].n
		*q = (*q)[1:]
	}
	return n
}

func sum(q []inTransit) (n int) {
	for _, t := range q {
		n += t.n
	}
	return n
}

// run goes on for d with a sender that sends at most so much in a millisecond, and returns which
// part of the path was used.
func (p *longPath) run(d time.Duration, sends int) float64 {
	g, before := &p.grant, p.arrived
	for range d / time.Millisecond {
		p.now = p.now.Add(time.Millisecond)
		p.credit += here(&p.credits, p.now)
		n := min(p.credit, p.rate, sends)
		p.credit -= n
		p.data = append(p.data, inTransit{p.now.Add(p.rtt / 2), n})
		n = here(&p.data, p.now)
		p.arrived += n
		g.held += n
		g.arrived += n
		n = min(g.held, p.consumes)
		g.held -= n
		if g.owed += n; g.owed >= g.step {
			owed := g.owed
			if p.resize() == 0 {
				p.greatest = max(p.greatest, owed)
			}
			p.giveCredit()
		}
		if all := p.credit + sum(p.data) + g.held + g.owed + sum(p.credits); all != g.total || g.total > g.max || g.total < g.first {
			p.wasBroken = fmt.Errorf("of a credit of %d bytes, %d to %d, there are %d", g.total, g.first, g.max, all)
		}
	}
	return float64(p.arrived-before) / float64(p.rate) / float64(d/time.Millisecond)
}

const fast = 1 << 30 // more than any path brings in a millisecond

// A stream fills a long path as long as its receiver keeps up, and the peer has no more than that
// takes.
func TestCreditFollowsThePath(t *testing.T) {
	const MiB = 1 << 20
	for name, tc := range map[string]struct {
		path        *longPath
		used        float64 // of the path, at least
		below       float64 // and less than
		least, most int     // of the credit in the end
	}{
		"1 Gb/s, 200 ms":               {newLongPath(200*time.Millisecond, 1000, fast, 16*MiB, 64*MiB, 256*MiB), 0.99, 2, 40 * MiB, 56 * MiB},
		"with a fixed credit":          {newLongPath(200*time.Millisecond, 1000, fast, 16*MiB, 16*MiB, 256*MiB), 0.6, 0.7, 16 * MiB, 16 * MiB},
		"500 Mb/s, 400 ms":             {newLongPath(400*time.Millisecond, 500, fast, 16*MiB, 64*MiB, 256*MiB), 0.99, 2, 40 * MiB, 56 * MiB},
		"10 Gb/s, 10 ms":               {newLongPath(10*time.Millisecond, 10000, fast, 16*MiB, 64*MiB, 256*MiB), 0.99, 2, 16 * MiB, 30 * MiB},
		"the first amount is enough":   {newLongPath(20*time.Millisecond, 1000, fast, 16*MiB, 64*MiB, 256*MiB), 0.99, 2, 16 * MiB, 16 * MiB},
		"more than there may be":       {newLongPath(time.Second, 1000, fast, 16*MiB, 64*MiB, 256*MiB), 0.5, 0.6, 64 * MiB, 64 * MiB},
		"others have the extra credit": {newLongPath(200*time.Millisecond, 1000, fast, 16*MiB, 64*MiB, 4*MiB), 0.75, 0.9, 20 * MiB, 20 * MiB},
		"nobody receives":              {newLongPath(200*time.Millisecond, 1000, 0, 16*MiB, 64*MiB, 256*MiB), 0, 0.01, 16 * MiB, 16 * MiB},
		"a slow receiver":              {newLongPath(200*time.Millisecond, 1000, 10_000, 16*MiB, 64*MiB, 256*MiB), 0.07, 0.09, 16 * MiB, 16 * MiB},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.path
			p.run(5*time.Second, fast)
			if used := p.run(5*time.Second, fast); used < tc.used || used >= tc.below {
				t.Errorf("%.3f of the path is used, want %g to %g", used, tc.used, tc.below)
			}
			if total := p.grant.total; total < tc.least || total > tc.most {
				t.Errorf("the credit is %d bytes, want %d to %d", total, tc.least, tc.most)
			}
			if p.wasBroken != nil {
				t.Error(p.wasBroken)
			}
			if limit := p.grant.total/longStep + p.rate; p.greatest > limit {
				t.Errorf("%d bytes came back at once, want %d at most", p.greatest, limit)
			}
		})
	}
}

// What was granted beyond the first amount is not returned once it was of no use for a
// while, and others may have it.
func TestCreditShrinks(t *testing.T) {
	const extra = 256 << 20
	p := newLongPath(200*time.Millisecond, 1000, fast, 16<<20, 64<<20, extra)
	p.run(5*time.Second, fast)
	full := p.grant.total
	for range 20 { // bursts that need it, and pauses
		p.run(time.Second, fast)
		p.run(5*time.Second, 0)
	}
	if p.grant.total < full {
		t.Errorf("with pauses the credit shrank from %d to %d bytes", full, p.grant.total)
	}
	p.run(30*time.Second, 10_000)
	if p.grant.total != 16<<20 || p.extra != extra {
		t.Errorf("a slow sender has %d bytes, and others %d", p.grant.total, p.extra)
	}
	p.run(3*time.Second, fast)
	if p.grant.total < full*9/10 {
		t.Errorf("a fast one has %d bytes again, it had %d", p.grant.total, full)
	}
	p.grant.held = 20 << 20 // of a peer that fails
	p.extra += p.grant.reclaim()
	if p.grant.total != 20<<20 || p.extra != extra-4<<20 {
		t.Errorf("of one that has failed %d bytes are counted, and others have %d", p.grant.total, p.extra)
	}
	p.grant.held = 0
	p.extra += p.grant.reclaim()
	if p.grant.total != 16<<20 || p.extra != extra || p.wasBroken != nil {
		t.Errorf("when they are received %d, %d; %v", p.grant.total, p.extra, p.wasBroken)
	}
}

// On a short path credit comes back in quarters: there is nothing to wait for.
func TestCreditStep(t *testing.T) {
	for _, tc := range []struct {
		total int
		rtt   time.Duration
		want  int
	}{
		{16 << 20, 0, 4 << 20}, {16 << 20, longRTT, 4 << 20}, {16 << 20, longRTT + 1, 256 << 10}, {64 << 20, time.Second, 1 << 20},
		{256 << 10, time.Second, MinStep}, {64 << 10, time.Second, 16 << 10}, {64 << 10, 0, 16 << 10},
	} {
		g := newGrant(tc.total, 0)
		if g.resize(time.Unix(1e9, 0), tc.rtt, MaxExtraCredit); g.step != tc.want || g.total != tc.total {
			t.Errorf("of %d over %v: %d at a time of %d, want %d", tc.total, tc.rtt, g.step, g.total, tc.want)
		}
	}
}
