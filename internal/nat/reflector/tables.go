package reflector

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

// Seen remembers from which addresses this reflector was asked over TCP, so that an address is
// called back only after its holder has completed a handshake from there. It is safe for concurrent
// use.
type Seen struct {
	max  int
	life time.Duration

	mu sync.Mutex // guards at
	at map[netip.Addr]time.Time
}

// NewSeen returns a table of at most max addresses, each remembered for life.
func NewSeen(max int, life time.Duration) *Seen {
	return &Seen{max: max, life: life, at: make(map[netip.Addr]time.Time)}
}

// Note remembers an address. When the table is full, expired addresses are removed first; if there
// are none, the new address is not remembered and Note returns false.
func (s *Seen) Note(a netip.Addr, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.at[a]; !known && len(s.at) >= s.max {
		maps.DeleteFunc(s.at, func(_ netip.Addr, t time.Time) bool { return now.Sub(t) >= s.life })
		if len(s.at) >= s.max {
			return false
		}
	}
	s.at[a] = now
	return true
}

// Has reports whether the address was noted within the table's life.
func (s *Seen) Has(a netip.Addr, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.at[a]
	return ok && now.Sub(t) < s.life
}

// Rates lets each key do burst things at once and then one every interval. It removes a key that
// has been idle for long enough to be at burst again, so it holds only recently active keys. It is
// safe for concurrent use.
type Rates[K comparable] struct {
	burst int
	every time.Duration

	mu   sync.Mutex      // guards full
	full map[K]time.Time // when the key is at burst again
}

// NewRates returns limits of burst, then one every interval.
func NewRates[K comparable](burst int, every time.Duration) *Rates[K] {
	return &Rates[K]{burst: burst, every: every, full: make(map[K]time.Time)}
}

// Take counts one thing of key and returns 0, or returns how long the key must wait before the
// next.
func (r *Rates[K]) Take(key K, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.full) >= 1024 { // far more than are active at a time
		maps.DeleteFunc(r.full, func(_ K, t time.Time) bool { return !t.After(now) })
	}
	full := r.full[key]
	if full.Before(now) {
		full = now
	}
	if wait := full.Add(r.every).Sub(now) - time.Duration(r.burst)*r.every; wait > 0 {
		return wait
	}
	r.full[key] = full.Add(r.every)
	return 0
}
