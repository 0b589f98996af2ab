package limit

import (
	"container/list"
	"sync"
)

// Places are held briefly by parties that have not authenticated yet. Safe for concurrent use.
//
// A key that reaches its limit is refused. When the total is reached, the key with the most places
// loses its oldest to the newcomer, unless the newcomer's own key has as many: then that one is
// refused. So places are distributed evenly among the keys, and a key that has none is never
// refused.
type Places[K comparable] struct {
	mu     sync.Mutex // guards the fields below and every Place; never held while evict runs
	bounds Bounds
	held   map[K]*list.List // of *Place[K], the oldest first; never empty
	total  int
	serial uint64
	stats  Stats // the refusals
}

// Place is one of Places. Leave it once.
type Place[K comparable] struct {
	of     *Places[K]
	key    K
	serial uint64 // increases with each new place
	evict  func(error)
	at     *list.Element // nil once left or taken away
}

// NewPlaces returns Places without holders.
func NewPlaces[K comparable](b Bounds) *Places[K] {
	return &Places[K]{bounds: b, held: make(map[K]*list.List)}
}

// Enter takes a place for key, or fails with an *Exceeded. If the place is taken away again before
// Leave, evict is called with an *Exceeded that has the reason, once and from another goroutine's
// Enter; it must not block.
func (p *Places[K]) Enter(key K, evict func(error)) (*Place[K], error) {
	place, victim, err := p.enter(key, evict)
	if victim != nil {
		why := p.bounds.overTotal()
		why.Evicted, why.Of = true, p.bounds.overKey(victim.key).Of
		victim.evict(why)
	}
	return place, err
}

func (p *Places[K]) enter(key K, evict func(error)) (place, victim *Place[K], err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.count(key)
	if b := p.bounds; b.PerKey > 0 && own >= b.PerKey {
		p.stats.KeyRefused++
		return nil, nil, b.overKey(key)
	}
	if b := p.bounds; b.Total > 0 && p.total >= b.Total {
		victim = p.heaviest()
		if own >= p.count(victim.key) {
			p.stats.Refused++
			return nil, nil, b.overTotal()
		}
		p.stats.Evicted++
		p.drop(victim)
	}
	if p.held[key] == nil {
		p.held[key] = list.New()
	}
	p.serial++
	place = &Place[K]{of: p, key: key, serial: p.serial, evict: evict}
	place.at = p.held[key].PushBack(place)
	p.total++
	return place, victim, nil
}

func (p *Places[K]) count(key K) int {
	if held := p.held[key]; held != nil {
		return held.Len()
	}
	return 0
}

// heaviest returns the oldest place of the key with the most places; among equal keys, the oldest.
// The caller must hold mu, and there must be a place. It scans every key; there are no more keys
// than the total.
func (p *Places[K]) heaviest() (victim *Place[K]) {
	most := 0
	for _, held := range p.held {
		oldest := held.Front().Value.(*Place[K])
		if n := held.Len(); n > most || n == most && oldest.serial < victim.serial {
			most, victim = n, oldest
		}
	}
	return victim
}

func (p *Places[K]) drop(place *Place[K]) {
	held := p.held[place.key]
	held.Remove(place.at)
	place.at = nil
	if held.Len() == 0 {
		delete(p.held, place.key)
	}
	p.total--
}

// Leave releases the place, and reports whether it was still held: if not, it was taken away, and
// evict was or is being called.
func (p *Place[K]) Leave() bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.at == nil {
		return false
	}
	p.of.drop(p)
	return true
}

// SetMax changes the limits for later calls of Enter.
func (p *Places[K]) SetMax(total, perKey int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bounds.Total, p.bounds.PerKey = total, perKey
}

// Stats returns the use of the limits. It scans every key.
func (p *Places[K]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Used, s.Max, s.PerKey = p.total, p.bounds.Total, p.bounds.PerKey
	for _, held := range p.held {
		s.Most = max(s.Most, held.Len())
	}
	return s
}
