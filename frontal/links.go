package frontal

import (
	"fmt"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

// link says what a carried connection is, for the log.
type link struct {
	kind     string // carry, inbound or reversed
	job      overlay.JobID
	ranks    []uint32 // that are known, the asker's first
	node     string   // of this site
	peer     string   // the other node, as it says
	id       string   // of the link, where it is known
	from, to string   // addresses
}

// links are the connections that are being carried, and counts of all.
type links struct {
	max     int
	live    map[*carrier.Meter]struct{}
	total   uint64
	refused uint64 // data connections that were turned away
	bytes   uint64 // of those that are over
}

func newLinks(max int) links {
	return links{max: max, live: make(map[*carrier.Meter]struct{})}
}

// LinkCounters say what the frontal carries and has carried.
type LinkCounters struct {
	Live    int    `json:"live"`
	Total   uint64 `json:"total"`   // all that were joined
	Refused uint64 `json:"refused"` // data connections that were turned away
	Bytes   uint64 `json:"bytes"`   // in both directions, live links included
}

func (l *links) counters() LinkCounters {
	c := LinkCounters{Live: len(l.live), Total: l.total, Refused: l.refused, Bytes: l.bytes}
	for m := range l.live {
		c.Bytes += m.Stats().Total()
	}
	return c
}

// join carries between a node of the site and the outside until both have
// ended, closes both and leaves one line in the log.
func (f *Frontal) join(l link, inside, outside *net.TCPConn) {
	meter := new(carrier.Meter)
	f.mu.Lock()
	full := len(f.links.live) >= f.links.max
	if !full {
		f.links.live[meter] = struct{}{}
		f.links.total++
	} else {
		f.links.refused++
	}
	f.mu.Unlock()
	if full {
		err := fmt.Errorf("%w: %d links are carried already (limits.links)", overlay.ErrOverloaded, f.links.max)
		f.logLink(l, "not carried", err)
		outside.Close()
		f.refuse(inside, err)
		return
	}
	for _, c := range []*net.TCPConn{inside, outside} {
		if err := carrier.Tune(c, tuning); err != nil {
			f.log.Debug("socket not tuned", "error", err)
		}
	}
	start := time.Now()
	stats, err := carrier.Join(f.ctx, inside, outside, carrier.Options{Meter: meter})
	f.mu.Lock()
	delete(f.links.live, meter)
	f.links.bytes += stats.Total()
	f.mu.Unlock()
	f.logLink(l, "carried", err, "bytes_out", stats.AToB, "bytes_in", stats.BToA, "duration", time.Since(start).Round(time.Millisecond).String())
}

// logLink leaves the audit line of one link.
func (f *Frontal) logLink(l link, what string, err error, more ...any) {
	cause := "ended"
	if err != nil {
		cause = err.Error()
	}
	f.log.Info(what, append([]any{"kind", l.kind, "job", l.job, "ranks", l.ranks, "node", l.node, "peer", l.peer,
		"link", l.id, "from", l.from, "to", l.to, "cause", cause}, more...)...)
}
