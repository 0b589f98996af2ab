// Package ledger decides which links, of those that no daemon carried and a helper tells
// of, are written into the audit log one by one, and sums up the others. It writes nothing
// itself and knows no clock. It has one lock.
package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds of what one helper has written about links that no daemon carried. It is
// its own word, and must not fill the site's audit log.
const (
	Room      = 16384       // records at once; links above them are summed up
	PerSecond = 16          // ... and how many more a second later
	maxSums   = 64          // sums at a time; further ones become one
	sumFor    = time.Minute // for so long a sum grows before it is written
)

// ledger decides which links of one helper's processes are written one by one. It
// knows no clock.
type ledger struct {
	room   float64   // records that may be written now
	roomAt time.Time // when room was counted

	sums  limit.Bounded[sumKey, sum]
	since time.Time // of the first of them
}

// sumKey is what links have in common that are summed up, so that the log still
// says for whom and with which site. The zero key is for all that are too many.
type sumKey struct {
	who  overlay.Principal
	job  overlay.JobID
	peer overlay.SiteID
}

func (a sumKey) compare(b sumKey) int {
	return cmp.Or(cmp.Compare(a.who.User, b.who.User), cmp.Compare(a.who.Project, b.who.Project), cmp.Compare(a.job, b.job), cmp.Compare(a.peer, b.peer))
}

// sum is the total of some links.
type sum struct{ links, sent, received uint64 }

func newLedger(now time.Time) *ledger {
	return &ledger{room: Room, roomAt: now, sums: limit.Bounded[sumKey, sum]{Max: maxSums}}
}

// refill counts the room anew. A time that goes back gives none, nor when it returns.
func (l *ledger) refill(now time.Time) {
	if passed := now.Sub(l.roomAt); passed > 0 {
		l.room = min(Room, l.room+PerSecond*passed.Seconds())
		l.roomAt = now
	}
}

// take reports whether the end of a link is to be written. If not it is in a sum.
func (l *ledger) take(e *account.LinkEnded, now time.Time) bool {
	l.refill(now)
	if l.room >= 1 {
		l.room--
		return true
	}
	if l.sums.Len() == 0 {
		l.since = now
	}
	key := sumKey{who: e.Principal, job: e.Job}
	if len(e.Nodes) > 1 {
		key.peer = e.Nodes[1].Site
	}
	s := l.sums.At(key)
	s.links++
	s.sent, s.received = addUp(s.sent, e.Traffic.AToB), addUp(s.received, e.Traffic.BToA)
	return false
}

// addUp does not begin anew at 0: who moved much is not to look like who moved
// nothing.
func addUp(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// due returns the sums that are to be written now, or all of them, and begins anew.
func (l *ledger) due(now time.Time, all bool) (keys []sumKey, sums map[sumKey]sum) {
	if l.sums.Len() == 0 || !all && now.Sub(l.since) < sumFor {
		return nil, nil
	}
	sums = maps.Collect(l.sums.All())
	l.sums.Clear()
	return slices.SortedStableFunc(maps.Keys(sums), sumKey.compare), sums
}

// idle reports whether a new ledger would do as well.
func (l *ledger) idle(now time.Time) bool {
	l.refill(now)
	return l.sums.Len() == 0 && l.room >= Room
}

// Ledgers are those of the site's helpers that have lately reported links. A helper
// that goes and comes back has the same one.
type Ledgers struct {
	mu sync.Mutex
	of map[control.Identity]*ledger
}

// New returns those of no helper.
func New() *Ledgers { return &Ledgers{of: map[control.Identity]*ledger{}} }

// Take returns the ends to be written of one call of a helper, and whether it is
// the first in a while of which some are not.
func (ls *Ledgers) Take(id control.Identity, ends []account.LinkEnded, now time.Time) (write []account.LinkEnded, over bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.of[id]
	if l == nil {
		l = newLedger(now)
		ls.of[id] = l
	}
	before := l.sums.Len()
	for i := range ends {
		if l.take(&ends[i], now) {
			write = append(write, ends[i])
		}
	}
	return write, before == 0 && l.sums.Len() > 0
}

// Leave leaves a helper room for so many records, and no more until a time.
func (ls *Ledgers) Leave(id control.Identity, records int, until time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := newLedger(until)
	l.room = float64(records)
	ls.of[id] = l
}

// Due returns the sums that are to be written now, or all.
func (ls *Ledgers) Due(now time.Time, all bool) (write []account.LinkEnded) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for id, l := range ls.of {
		keys, sums := l.due(now, all)
		for _, k := range keys {
			e := account.LinkEnded{
				Principal: k.who, Job: k.job, Nodes: []overlay.NodeID{id.Node()}, Peer: id.String(),
				Count: sums[k].links, Traffic: carrier.Stats{AToB: sums[k].sent, BToA: sums[k].received}, Rule: account.RuleOwnWord,
				Reason: fmt.Sprintf("sum of %d links, which its helper reported too quickly for them to be written one by one", sums[k].links),
			}
			if k.peer != "" {
				e.Nodes = append(e.Nodes, overlay.NodeID{Site: k.peer})
			}
			write = append(write, e)
		}
		if l.idle(now) {
			delete(ls.of, id)
		}
	}
	return write
}
