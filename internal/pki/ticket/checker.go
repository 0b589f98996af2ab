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
	// Skew is how wrong a broker may be about the proxy's clock, by which tickets
	// expire: a ticket is honoured so long after its expiry.
	Skew = 5 * time.Second

	// MaxLife is the furthest expiry that is honoured, Skew not counted. It
	// bounds how long a used ticket must be remembered.
	MaxLife = 10 * time.Minute
)

// Checker decides for one proxy which tickets it honours. Safe for concurrent
// use.
type Checker struct {
	proxy string
	keys  []Key
	max   int

	mu   sync.Mutex // guards used and due
	used map[use]struct{}
	due  expiries // the same uses, soonest to be forgotten first
}

// use is what works once: one end of one link.
type use struct {
	link wire.ID
	end  uint8
}

// NewChecker returns the Checker of the named proxy. It honours tickets under
// any of the keys: the current one and those before it that tickets may still
// be out under. It remembers at most remember used tickets; while its memory
// is full it refuses new ones as overloaded, because a ticket that is forgotten
// early could be used again.
func NewChecker(proxy string, remember int, keys ...Key) *Checker {
	return &Checker{proxy: proxy, keys: slices.Clone(keys), max: remember, used: map[use]struct{}{}}
}

// Check says at time now why t is not honoured. With nil the ticket counts as
// used. The error is an *Error.
func (c *Checker) Check(t *wire.Ticket, now time.Time) error {
	if err := c.claims(t, now); err != nil {
		return err
	}
	return c.use(use{t.Link, t.End}, expiry(t).Add(Skew), now)
}

// claims checks everything but the use. What a forged ticket claims is not
// worth an answer, so the MAC comes first; only the proxy's name comes before,
// because another proxy's ticket is always under another key.
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
		return refuse(Expired, "the ticket expired %v ago: it came late, or %s", (-left).Round(time.Second), overlay.ClocksDiffer("broker", "proxy", left))
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

// Remembered returns how many used tickets are in memory.
func (c *Checker) Remembered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.used)
}

func expiry(t *wire.Ticket) time.Time {
	// More milliseconds than any clock reaches: too far is as good as exact.
	return time.UnixMilli(int64(min(t.Expires, 1<<50)))
}

// expiring is a use and when to forget it.
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
