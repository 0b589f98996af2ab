package faults

import (
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A sample is the carrier that brought the stream to the receiver between two of its reports: the
// one with the most bytes.
type sample struct {
	At        time.Time
	Bytes     uint64 // of the stream until then
	Carrier   int    // -1: none
	Technique overlay.Technique
	State     carrierState

	By          []int // all that carried enough to count
	Closed      []int // all that are closed by then
	Connections int   // number of carriers that the receiver has got
}

// carries is how many bytes a carrier must carry between two reports to count: a block of the
// stream, which is more than a keepalive or a handshake with certificates.
const carries = blockLen

// sampleOf compares a report with the one before.
func sampleOf(before, r report) sample {
	s := sample{At: r.At, Bytes: r.Bytes, Carrier: -1, Connections: len(r.Carriers)}
	most := uint64(carries - 1)
	for i, c := range r.Carriers {
		had := uint64(0)
		if i < len(before.Carriers) {
			had = before.Carriers[i].In
		}
		n := c.In - had
		if n >= carries {
			s.By = append(s.By, c.Number)
		}
		if n > most {
			most = n
			s.Carrier, s.Technique, s.State = c.Number, c.Technique, c
		}
		if c.Closed {
			s.Closed = append(s.Closed, c.Number)
		}
	}
	return s
}

// A timeline is the receiver's reports, in order.
type timeline struct {
	samples []sample
	gaps    []gap
}

// latest returns the last sample at or before t with a carrier.
func (l *timeline) latest(t time.Time) (sample, bool) {
	for i := len(l.samples) - 1; i >= 0; i-- {
		if s := l.samples[i]; s.Carrier >= 0 && !s.At.After(t) {
			return s, true
		}
	}
	return sample{}, false
}

// resumed returns the first sample whose bytes arrived after the longest gap that began between
// from and to, or right after from if there was none.
func (l *timeline) resumed(from, to time.Time) (sample, bool) {
	if g, ok := l.stall(from, to); ok {
		from = g.to()
	}
	for _, s := range l.samples {
		if s.Carrier >= 0 && s.At.After(from) {
			return s, true
		}
	}
	return sample{}, false
}

// stall returns the longest gap that ended after from and began before to.
func (l *timeline) stall(from, to time.Time) (longest gap, ok bool) {
	for _, g := range l.gaps {
		if g.to().After(from) && g.From.Before(to) && g.Length > longest.Length {
			longest, ok = g, true
		}
	}
	return longest, ok
}

// pauseBound is the maximum pause that is not a break: processes also wait on a busy machine.
const pauseBound = 500 * time.Millisecond

// same reports whether a stream over one technique counts as one over another: the target of a
// reversed dial reports it as direct.
func same(technique, as overlay.Technique) bool {
	return technique == as || as == overlay.Reversed && technique == overlay.Direct
}

// steady returns since when, after from, the stream has used the technique without a break until
// the last sample; false if it has not.
func (l *timeline) steady(from time.Time, by overlay.Technique) (since time.Time, ok bool) {
	since = from
	var last time.Time // when it used the technique
	for _, s := range l.samples {
		switch {
		case s.At.Before(from):
		case s.Carrier >= 0 && same(s.Technique, by):
			last = s.At
		case s.Carrier >= 0 || s.At.Sub(last) > pauseBound:
			since, last = s.At, time.Time{}
		}
	}
	return since, !last.IsZero()
}

// moves returns the samples in which the stream used another carrier than before.
func (l *timeline) moves() (all []sample) {
	last := -1
	for _, s := range l.samples {
		if s.Carrier < 0 {
			continue
		}
		if last >= 0 && s.Carrier != last {
			all = append(all, s)
		}
		last = s.Carrier
	}
	return all
}

// used counts the carriers that the stream used.
func (l *timeline) used() int {
	seen := map[int]bool{}
	for _, s := range l.samples {
		for _, n := range s.By {
			seen[n] = true
		}
	}
	return len(seen)
}

// recent is how long a carrier counts as one of the stream's after it carried something: those of a
// striped stream take turns, and one that the link leaves stays open longer, idle, before it is
// closed.
const recent = time.Second

// by returns the carriers that the stream has used recently, as of t.
func (l *timeline) by(t time.Time) []int {
	var all []int
	for _, s := range l.samples {
		if !s.At.After(t) && s.At.After(t.Add(-recent)) {
			all = append(all, s.By...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// broken returns the carriers in some that were closed after t while the stream used them.
func (l *timeline) broken(some []int, t time.Time) (all []int) {
	for _, n := range some {
		for _, s := range l.samples {
			if slices.Contains(s.Closed, n) { // from here on
				if s.At.After(t) && slices.Contains(l.by(s.At), n) {
					all = append(all, n)
				}
				break
			}
		}
	}
	return all
}
