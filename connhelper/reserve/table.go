// Package reserve keeps the relays that were assigned in advance to links that have other paths, and
// says when to request another. It neither requests nor dials one, and has no clock: the time is an
// argument. Its state is in a Table, which has a lock.
package reserve

import (
	"container/list"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Relay is one end of a relay that the broker has assigned to a link that has other paths. Both
// helpers keep theirs, and dial it when their process reports that its link has no path left: that
// needs no session with frontal or broker, which may have died with the paths. It works once, and
// only if both ends dial it.
type Relay[P comparable] struct {
	Link   wire.ID
	Relay  *controlpb.Assignment // nil: none was available
	Life   overlay.Generation    // of the peer
	Peer   overlay.NodeID
	Via    overlay.Via
	Reason string

	expires time.Time
	due     time.Time // when to request another

	// Guarded by the table's mu, as expires and due once it is in the table:
	p     P
	rank  uint32
	added uint64 // sequence number, smaller is older
	place *list.Element
}

// When a helper requests a reserve, and how long it keeps it.
const (
	renewBefore       = 3 * time.Minute  // a reserve is replaced this long before it expires, and up to renewSpread later
	renewSpread       = time.Minute      // so that those of many links are not requested at once
	retryAfter        = 15 * time.Second // after a request failed
	refusedRetryAfter = 5 * time.Minute  // the same, where it will fail again: policies, or older daemons
)

// maxRelays bounds the relays of a Table, maxRelaysEach those of a process; at the bound the oldest is
// dropped.
const (
	maxRelays     = 16384
	maxRelaysEach = 2048
)

// Table holds the relays of all processes of a helper, and records of failed requests. A process is
// whatever P is to its user. The zero Table is empty.
type Table[P comparable] struct {
	mu    sync.Mutex                 // guards the fields below
	of    map[P]map[uint32]*Relay[P] // by rank of the peer
	order list.List                  // of *Relay, the oldest first
	added uint64                     // sequence number of the latest

	Got, Used atomic.Uint64 // relays that were kept, at either end; relays that were dialled
}

// Wants reports whether to request a reserve for a link of p to a generation of rank. After
// returning true, it returns false for a while.
func (r *Table[P]) Wants(p P, rank uint32, life overlay.Generation, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[p][rank]
	if one == nil || one.Life != life {
		r.put(p, rank, &Relay[P]{Life: life, due: now.Add(retryAfter)})
		return true
	}
	if now.Before(one.due) {
		return false
	}
	one.due = now.Add(retryAfter)
	return true
}

// Failed records that no reserve was available.
func (r *Table[P]) Failed(p P, rank uint32, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.of[p][rank]; one != nil && lasting(err) {
		one.due = now.Add(refusedRetryAfter)
	}
}

// lasting reports whether another request would soon be refused again.
func lasting(err error) bool {
	for _, class := range []error{wire.ErrVersion, overlay.ErrForbidden, overlay.ErrNoPath, overlay.ErrNoRelay} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// Keep stores a reserve in place of the previous one.
func (r *Table[P]) Keep(p P, rank uint32, one *Relay[P]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Got.Add(1)
	r.put(p, rank, one)
}

// put stores a reserve. mu is held.
func (r *Table[P]) put(p P, rank uint32, one *Relay[P]) {
	r.drop(r.of[p][rank])
	if all := r.of[p]; len(all) >= maxRelaysEach {
		oldest := one
		one.added = r.added + 1
		for _, o := range all {
			if o.added < oldest.added {
				oldest = o
			}
		}
		r.drop(oldest)
	}
	if r.order.Len() >= maxRelays {
		r.drop(r.order.Front().Value.(*Relay[P]))
	}
	if r.of == nil {
		r.of = map[P]map[uint32]*Relay[P]{}
	}
	if r.of[p] == nil {
		r.of[p] = map[uint32]*Relay[P]{}
	}
	r.added++
	one.p, one.rank, one.added, one.place = p, rank, r.added, r.order.PushBack(one)
	r.of[p][rank] = one
}

// drop removes a reserve; nil is none. mu is held.
func (r *Table[P]) drop(one *Relay[P]) {
	if one == nil {
		return
	}
	r.order.Remove(one.place)
	if delete(r.of[one.p], one.rank); len(r.of[one.p]) == 0 {
		delete(r.of, one.p)
	}
}

// Take removes and returns the reserve for a link of p to rank, or returns nil.
func (r *Table[P]) Take(p P, rank uint32, now time.Time) *Relay[P] {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[p][rank]
	if one == nil || one.Relay == nil {
		return nil
	}
	r.drop(one)
	if !now.Before(one.expires) {
		return nil
	}
	r.Used.Add(1)
	return one
}

// Forget drops the reserves of a process that has left.
func (r *Table[P]) Forget(p P) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.of[p] {
		r.drop(one)
	}
}

// Held returns the number of usable reserves.
func (r *Table[P]) Held(now time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range r.of {
		for _, one := range all {
			if one.Relay != nil && now.Before(one.expires) {
				n++
			}
		}
	}
	return n
}

// Len returns for how many links something is remembered, of use or not.
func (r *Table[P]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order.Len()
}

// Expiring sets how long a reserve is valid, as the broker says, and when to request another.
func (one *Relay[P]) Expiring(lifeMS uint32, now time.Time) *Relay[P] {
	life := min(time.Duration(lifeMS)*time.Millisecond, ticket.MaxLife)
	one.expires = now.Add(life)
	one.due = now.Add(max(life-renewBefore, life/2) + rand.N(renewSpread))
	return one
}

// RenewedByPeer delays another request until shortly before the relay expires, because the other end,
// which requested this one, is to renew it. Call it after Expiring.
func (one *Relay[P]) RenewedByPeer() { one.due = one.expires.Add(-renewBefore / 3) }
