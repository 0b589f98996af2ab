package limit

import "sync"

// Counter counts how many each key holds. Safe for concurrent use.
type Counter[K comparable] struct {
	mu     sync.Mutex // guards the fields below
	bounds Bounds
	held   map[K]int // never 0
	total  int
	stats  Stats // the refusals
}

// NewCounter returns a Counter that holds nothing.
func NewCounter[K comparable](b Bounds) *Counter[K] {
	return &Counter[K]{bounds: b, held: make(map[K]int)}
}

// Take counts n more for key, or counts nothing and fails with an *Exceeded. n is at least 0.
func (c *Counter[K]) Take(key K, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch b := c.bounds; {
	case b.PerKey > 0 && n > b.PerKey-c.held[key]:
		c.stats.KeyRefused++
		return b.overKey(key)
	case b.Total > 0 && n > b.Total-c.total:
		c.stats.Refused++
		return b.overTotal()
	}
	c.add(key, n)
	return nil
}

// Give releases n of those that key holds. It panics when key holds fewer.
func (c *Counter[K]) Give(key K, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[key] < n {
		panic("limit: more given back than was taken")
	}
	c.add(key, -n)
}

func (c *Counter[K]) add(key K, n int) {
	c.total += n
	if c.held[key] += n; c.held[key] == 0 {
		delete(c.held, key)
	}
}

// Held returns how many key holds.
func (c *Counter[K]) Held(key K) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[key]
}

// Heaviest returns the key that holds the most, if any holds something. It scans every key.
func (c *Counter[K]) Heaviest() (key K, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := 0
	for k, n := range c.held {
		if n > most {
			key, most = k, n
		}
	}
	return key, most > 0
}

// SetMax changes the limits for later calls of Take.
func (c *Counter[K]) SetMax(total, perKey int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bounds.Total, c.bounds.PerKey = total, perKey
}

// Stats returns the use of the limits. It scans every key.
func (c *Counter[K]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Used, s.Max, s.PerKey = c.total, c.bounds.Total, c.bounds.PerKey
	for _, n := range c.held {
		s.Most = max(s.Most, n)
	}
	return s
}
