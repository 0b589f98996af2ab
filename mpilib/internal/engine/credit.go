package engine

import (
	"time"

	"github.com/isthmus-grid/isthmus/wire"
)

// This file sizes the credit that a peer has here: how many bytes it may send eagerly. A stream
// of messages gets at most that far in the time in which credit is used and comes back, so on a
// path both long and fast a fixed credit would be what bounds it. The receiver, whose memory
// is at stake, measures what arrives in a round trip and grants more while its program keeps up, as
// TCP's receivers do (dynamic right-sizing). What was granted cannot be taken back: credit shrinks
// by not being returned when it was used.

const (
	// maxExtraCredit is what all peers of a process may have beyond their first amounts, in bytes,
	// whether they use it or not.
	maxExtraCredit = 256 << 20

	// creditGain is how many times what arrives in a round trip the credit is: once for
	// what is under way, and once for credit that is on its way back, and growth.
	creditGain = 2

	// On a short path credit is returned a nearStep-th of the whole at a time. On a long one,
	// where a stream would wait for it, it is a farStep-th, and minStep bytes if that is more.
	shortStep = 4
	longStep  = 64
	minStep   = 16 << 10

	// creditIdle is for how long what is beyond the first amount must have been of no use
	// before it is not returned any more.
	creditIdle = 10 * time.Second
)

// A grant is the credit that a peer has here. Of total, the peer has some, some is on its way
// in either direction, held is used by what is kept here, and owed waits to be returned.
type grant struct {
	first, max int // bounds of total

	total int
	held  int // see limits.go
	owed  int
	step  int // from which on owed is worth an envelope

	came   int       // bytes, messageCost included, since the last measurement,
	at     time.Time // which was then
	needed time.Time // when more than the first amount was of use last
}

// newGrant returns the grant of a peer that knows of firstCredit only.
func newGrant(first, most int) grant {
	return grant{first: first, max: max(first, most), total: first, owed: first - firstCredit}
}

// resize grants more, of extra bytes at most, or less, as what came of late over a path
// with that round trip calls for. It returns how much more. A receiver that is behind does
// not ask for more.
func (g *grant) resize(now time.Time, rtt time.Duration, extra int) (more int) {
	if passed := now.Sub(g.at); passed > 0 && passed >= rtt {
		want := int(creditGain * float64(g.came) * (float64(rtt) / float64(passed)))
		g.came, g.at = 0, now
		if want > g.first {
			g.needed = now
		}
		switch {
		case want > g.total && g.held <= g.total/4:
			more = min(min(want, g.max)-g.total, extra)
		case now.Sub(g.needed) >= creditIdle:
			more = -min(g.owed, g.total-g.first)
		}
		g.total += more
		g.owed += more
	}
	if g.step = g.total / shortStep; rtt > longRTT {
		g.step = max(g.total/longStep, min(g.step, minStep))
	}
	return more
}

// end leaves a peer that sends nothing any more what is kept of it, and returns how much less that is.
func (g *grant) end() (less int) {
	less = g.total - max(g.first, g.held)
	g.total -= less
	return less
}

// resize is the grant's, now. mu is held.
func (p *peer) resize() {
	rtt := time.Duration(0)
	if !p.shm.open {
		_, rtt = p.link.Current()
	}
	p.e.extraCredit -= p.arrivals.grant.resize(time.Now(), rtt, p.e.extraCredit)
}

// owe notes that the peer is to have credit back for n bytes that it sent eagerly, and returns
// all that it is to have when that is worth an envelope. mu is held.
func (p *peer) owe(n int) {
	g := &p.arrivals.grant
	if p.gone || p.failed != nil {
		p.e.extraCredit += g.end()
		return
	}
	if g.owed += n; g.owed >= g.step {
		p.resize()
		p.giveCredit()
	}
}

// countArrival notes that n bytes are here. If the peer was asked for them they use no credit, but
// tell what the path carries all the same. mu is held.
func (p *peer) countArrival(n int, asked bool) {
	g := &p.arrivals.grant
	g.came += n + messageCost
	if asked && g.came >= g.step {
		if p.resize(); g.owed >= g.step {
			p.giveCredit()
		}
	}
}

// giveCredit returns what the peer is owed. mu is held.
func (p *peer) giveCredit() {
	if g := &p.arrivals.grant; g.owed > 0 {
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeCredit, Length: uint64(g.owed)})
		g.owed = 0
	}
}
