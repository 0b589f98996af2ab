package faults

import (
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A sample says by which carrier the stream came to the receiver between two of
// its reports: the one with the most bytes.
type sample struct {
	At        time.Time
	Bytes     uint64 // of the stream until then
	Carrier   int    // -1: by none
	Technique overlay.Technique
	State     carrierState

	By          []int // all that brought enough to count
	Closed      []int // all that are closed by then
	Connections int   // carriers that the receiver ever got
}

// carries is how many bytes a carrier must bring between two reports to count: a
// block of the stream, and so more than it takes to ask whether somebody is there
// or to shake hands with certificates.
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

// A timeline is what the receiver reported, in order.
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

// resumed returns the first sample whose bytes came behind the longest gap that
// began between from and to, or right after from if there was none.
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

// pauseBound is how long nothing may come without being a break: processes wait
// for a busy machine too.
const pauseBound = 500 * time.Millisecond

// same reports whether a stream that comes by a technique does as it did by another: the
// target that dials of its own accord calls direct what the asker calls reversed.
func same(technique, as overlay.Technique) bool {
	return technique == as || as == overlay.Reversed && technique == overlay.Direct
}

// steady returns since when, after from, the stream has come by the technique
// without a break until the last sample; false if it does not.
func (l *timeline) steady(from time.Time, by overlay.Technique) (since time.Time, ok bool) {
	since = from
	var last time.Time // when it came by the technique
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

// moves returns the samples in which the stream came by another carrier than
// before.
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

// used counts the carriers that the stream came by.
func (l *timeline) used() int {
	seen := map[int]bool{}
	for _, s := range l.samples {
		for _, n := range s.By {
			seen[n] = true
		}
	}
	return len(seen)
}

// recent is how long a carrier counts as one of the stream's after it brought
// something: those of a striped stream take turns, and one that the link leaves stays
// for longer, quiet, before it is closed.
const recent = time.Second

// by returns the carriers that the stream came by of late, as of t.
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

// broken returns those of some carriers that were closed after t while the stream came
// by them.
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
