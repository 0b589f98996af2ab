package protocol

import (
	"fmt"
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
	// FirstCredit is how many bytes may be sent eagerly before the first Credit of the peer.
	FirstCredit = 64 << 10

	// MaxExtraCredit is what all peers of a process may have beyond their first amounts, in bytes,
	// whether they use it or not.
	MaxExtraCredit = 256 << 20

	// creditGain is how many times what arrives in a round trip the credit is: once for
	// what is under way, and once for credit that is on its way back, and growth.
	creditGain = 2

	// On a short path credit is returned a shortStep-th of the whole at a time. On a long one,
	// where a stream would wait for it, it is a longStep-th, and MinStep bytes if that is more.
	shortStep = 4
	longStep  = 64
	MinStep   = 16 << 10

	// creditIdle is for how long what is beyond the first amount must have been of no use
	// before it is not returned any more.
	creditIdle = 10 * time.Second
)

// A grant is the credit that a peer has here. Of total, the peer has some, some is on its way
// in either direction, held is used by unexpected messages, and owed waits to be returned.
type grant struct {
	first, max int // bounds of total

	total int
	held  int // see chargeCredit
	owed  int
	step  int // bytes owed at which an envelope returns them

	arrived    int       // bytes, MessageCost included, since the last measurement,
	measuredAt time.Time // which was then
	needed     time.Time // when more than the first amount was of use last
}

// newGrant returns the grant of a peer that knows of FirstCredit only.
func newGrant(first, most int) grant {
	return grant{first: first, max: max(first, most), total: first, owed: first - FirstCredit}
}

// resize grants more, of extra bytes at most, or less, depending on what arrived lately over a path
// with that round-trip time. It returns how much more. A receiver that is behind does not grant more.
func (g *grant) resize(now time.Time, rtt time.Duration, extra int) (added int) {
	if passed := now.Sub(g.measuredAt); passed > 0 && passed >= rtt {
		want := int(creditGain * float64(g.arrived) * (float64(rtt) / float64(passed)))
		g.arrived, g.measuredAt = 0, now
		if want > g.first {
			g.needed = now
		}
		switch {
		case want > g.total && g.held <= g.total/4:
			added = min(min(want, g.max)-g.total, extra)
		case now.Sub(g.needed) >= creditIdle:
			added = -min(g.owed, g.total-g.first)
		}
		g.total += added
		g.owed += added
	}
	if g.step = g.total / shortStep; rtt > longRTT {
		g.step = max(g.total/longStep, min(g.step, MinStep))
	}
	return added
}

// reclaim reduces the grant of a peer that sends nothing any more to what its unexpected messages use, and
// returns by how much.
func (g *grant) reclaim() (less int) {
	less = g.total - max(g.first, g.held)
	g.total -= less
	return less
}

// chargeCredit notes that the peer uses n bytes of its credit here, until refundCredit.
func (p *Peer) chargeCredit(n int) error {
	g := &p.grant
	if g.held+n > g.total {
		return fmt.Errorf("%w: the peer sent %d bytes eagerly beside %d that no receive has taken yet, counting %d for each message; it was granted %d in all",
			wire.ErrMalformed, n, g.held, MessageCost, g.total)
	}
	g.held += n
	return nil
}
