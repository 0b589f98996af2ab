package audit

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit"
)

// Refusals can be caused without an identity, so a flood of them could displace everything else in
// the log. In each window the first few of each rule are written, and one record stands for the
// others.
const (
	sampleWindow = 10 * time.Second
	sampleFirst  = 50
	sampleRules  = 64 // distinguished rules; further ones count as one
)

// sampler decides which refusals are written. It has no clock.
type sampler struct {
	since time.Time
	rules limit.Bounded[string, sampledRule]
}

type sampledRule struct {
	written int
	left    uint64 // not written
	last    Record
}

// take reports whether to write the record.
func (s *sampler) take(r *Record) bool {
	if r.Event != Refusal {
		return true
	}
	if s.rules.Len() == 0 {
		s.rules, s.since = limit.Bounded[string, sampledRule]{Max: sampleRules, Other: "(others)"}, r.Time
	}
	of := s.rules.At(r.Rule)
	if of.written < sampleFirst {
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
	if s.rules.Len() == 0 || !end && now.Sub(s.since) < sampleWindow {
		return nil
	}
	var out []Record
	for rule, of := range s.rules.All() {
		if of.left == 0 {
			continue
		}
		out = append(out, Record{
			Event: Refusal, Time: now.UTC().Truncate(time.Microsecond), Daemon: of.last.Daemon, Rule: rule, Count: of.left, Peer: of.last.Peer,
			Reason: fmt.Sprintf("%d more within %v, not written one by one; the last: %s", of.left, now.Sub(s.since).Round(time.Second), of.last.Reason),
		})
	}
	s.rules.Clear()
	return out
}
