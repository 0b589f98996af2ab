package ticket

import (
	"container/heap"
	"crypto/subtle"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// Skew is the maximum error of a broker's estimate of the proxy's clock, which decides the
	// expiry of tickets: a ticket is accepted this long after its expiry.
	Skew = 5 * time.Second

	// MaxLife is the latest accepted expiry, not counting Skew. It bounds how long a used ticket
	// must be remembered.
	MaxLife = 10 * time.Minute
)

// Checker decides which tickets one proxy accepts. Safe for concurrent use.
type Checker struct {
	proxy string
	keys  []Key
	max   int

	mu   sync.Mutex // guards used and due
	used map[use]struct{}
	due  expiries // the same uses, the earliest expiry first
}

// use is what works once: one end of one link.
type use struct {
	link wire.ID
	end  uint8
}

// NewChecker returns the Checker of the named proxy. It accepts tickets under any of the keys: the
// current one and earlier ones under which valid tickets may still exist. It remembers at most
// remember used tickets; while its memory is full it refuses new ones as overloaded, because a
// ticket that is forgotten early could be used again.
func NewChecker(proxy string, remember int, keys ...Key) *Checker {
	return &Checker{proxy: proxy, keys: slices.Clone(keys), max: remember, used: map[use]struct{}{}}
}

// Check returns why t is not accepted at time now. If it returns nil, the ticket counts as used.
// The error is an *Error.
func (c *Checker) Check(t *wire.Ticket, now time.Time) error {
	if err := c.claims(t, now); err != nil {
		return err
	}
	return c.use(use{t.Link, t.End}, expiry(t).Add(Skew), now)
}

// claims checks everything except the use. The claims of a forged ticket deserve no answer, so the
// MAC is checked first; only the proxy's name is checked before, because another proxy's ticket
// always has another key.
func (c *Checker) claims(t *wire.Ticket, now time.Time) error {
	if t.Proxy != c.proxy {
		return refuse(Foreign, "the ticket is for proxy %.64s, this is %s", t.Proxy, c.proxy)
	}
	if !c.signed(t) {
		return refuse(Forged, "the ticket is forged or issued under another key")
	}
	left := expiry(t).Sub(now)
	switch {
	case left < -Skew:
		return refuse(Expired, "the ticket expired %v ago: it was delayed, or %s", (-left).Round(time.Second), overlay.ClocksDiffer("broker", "proxy", left))
	case left > MaxLife+Skew:
		return refuse(TooLong, "the ticket expires in %v, at most %v are allowed: %s",
			left.Round(time.Second), MaxLife, overlay.ClocksDiffer("broker", "proxy", left-MaxLife))
	}
	return nil
}

func (c *Checker) signed(t *wire.Ticket) bool {
	ok := 0
	for _, key := range c.keys {
		sum := mac(key, t)
		ok |= subtle.ConstantTimeCompare(sum[:], t.MAC[:])
	}
	return ok == 1
}

// use marks u as used until the given time.
func (c *Checker) use(u use, until, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.due) > 0 && c.due[0].until.Before(now) {
		delete(c.used, heap.Pop(&c.due).(expiring).use)
	}
	if _, again := c.used[u]; again {
		return refuse(Used, "the ticket was used before")
	}
	if len(c.used) >= c.max {
		return refuse(Full, "the memory of used tickets is full (%d); the oldest is forgotten in %v",
			c.max, c.due[0].until.Sub(now).Round(time.Second))
	}
	c.used[u] = struct{}{}
	heap.Push(&c.due, expiring{u, until})
	return nil
}

// Remembered returns the number of used tickets in memory.
func (c *Checker) Remembered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.used)
}

func expiry(t *wire.Ticket) time.Time {
	// More milliseconds than any clock reaches, so the exact value does not matter.
	return time.UnixMilli(int64(min(t.Expires, 1<<50)))
}

// expiring is a use and the time to forget it.
type expiring struct {
	use
	until time.Time
}

// expiries is a heap.Interface.
type expiries []expiring

func (h expiries) Len() int           { return len(h) }
func (h expiries) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h expiries) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *expiries) Push(x any)        { *h = append(*h, x.(expiring)) }
func (h *expiries) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
