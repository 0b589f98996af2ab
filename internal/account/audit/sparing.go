package audit

import (
	"fmt"
	"time"
)

// Refusals need no identity to cause, so that a flood of them could push
// everything else out of the log. In each window the first few of each rule
// are written, and one record stands for the others.
const (
	spareWindow = 10 * time.Second
	spareFirst  = 50
	spareRules  = 64 // that are told apart; further ones count as one
)

// sparing decides which refusals are written. It knows no clock.
type sparing struct {
	since time.Time
	rules map[string]*spared
}

type spared struct {
	written int
	left    uint64 // not written
	last    Record
}

// take reports whether the record is to be written.
func (s *sparing) take(r *Record) bool {
	if r.Event != Refusal {
		return true
	}
	if s.rules == nil {
		s.rules, s.since = map[string]*spared{}, r.Time
	}
	key := r.Rule
	if s.rules[key] == nil && len(s.rules) >= spareRules {
		key = "(others)"
	}
	of := s.rules[key]
	if of == nil {
		of = new(spared)
		s.rules[key] = of
	}
	if of.written < spareFirst {
		of.written++
		return true
	}
	of.left++
	of.last = *r
	return false
}

// over returns the records that stand for those that were left out, when the
// window is over by now or whenever it is the end, and begins anew.
func (s *sparing) over(now time.Time, end bool) []Record {
	if s.rules == nil || !end && now.Sub(s.since) < spareWindow {
		return nil
	}
	var out []Record
	for rule, of := range s.rules {
		if of.left == 0 {
			continue
		}
		out = append(out, Record{
			Event: Refusal, Time: now.UTC().Truncate(time.Microsecond), Daemon: of.last.Daemon, Rule: rule, Count: of.left, Peer: of.last.Peer,
			Reason: fmt.Sprintf("%d more within %v, not written one by one; the last: %s", of.left, now.Sub(s.since).Round(time.Second), of.last.Reason),
		})
	}
	s.rules = nil
	return out
}
