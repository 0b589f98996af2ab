package audit

import (
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit"
)

// Refusals can be caused without an identity, and other records by a peer as often as it wants, so a
// flood of them could displace everything else in the log. In each window the first few of each kind
// are written, and one record stands for the others.
const (
	sampleWindow    = 10 * time.Second
	sampleFirst     = 50
	sampleDecisions = 500  // of one site's: a job's ranks may all be refused at once, and each for a reason of its own
	sampleKinds     = 1024 // distinguished kinds; further ones count as one
)

// others is the kind that stands for all that are too many.
const others = "(others)"

// kindOf returns the kind of records that a record is of, and how many of it are written in a window;
// "" for one that is always written.
func kindOf(r *Record) (kind string, first int) {
	switch {
	case r.Event == Refusal:
		return r.Rule, sampleFirst
	case r.Event == Decision && r.Effect != Permitted:
		return "decision " + r.Peer, sampleDecisions
	case r.Event == Session: // of a peer, whatever address it has
		return "session " + r.Peer[:max(strings.LastIndexByte(r.Peer, ' '), 0)], sampleFirst
	}
	return "", 0
}

// sampler decides which records are written. It has no clock.
type sampler struct {
	since time.Time
	kinds limit.Bounded[string, sampled]
}

type sampled struct {
	written int
	left    uint64 // not written
	last    Record
}

// take reports whether to write the record.
func (s *sampler) take(r *Record) bool {
	kind, first := kindOf(r)
	if first == 0 {
		return true
	}
	if s.kinds.Len() == 0 {
		s.kinds, s.since = limit.Bounded[string, sampled]{Max: sampleKinds, Other: others}, r.Time
	}
	of := s.kinds.At(kind)
	if of.written < first {
		of.written++
		return true
	}
	of.left++
	of.last = *r
	return false
}

// collectDue returns the records that stand for those that were left out, if the window is over at
// now or end is set, and starts a new window.
func (s *sampler) collectDue(now time.Time, end bool) []Record {
	if s.kinds.Len() == 0 || !end && now.Sub(s.since) < sampleWindow {
		return nil
	}
	var out []Record
	for kind, of := range s.kinds.All() {
		if of.left == 0 {
			continue
		}
		rule := of.last.Rule
		if kind == others {
			rule = others
		}
		out = append(out, Record{
			Event: of.last.Event, Effect: of.last.Effect, Time: now.UTC().Truncate(time.Microsecond), Daemon: of.last.Daemon, Rule: rule, Count: of.left, Peer: of.last.Peer,
			Reason: fmt.Sprintf("%d more within %v, not written one by one; the last: %s", of.left, now.Sub(s.since).Round(time.Second), of.last.Reason),
		})
	}
	s.kinds.Clear()
	return out
}
