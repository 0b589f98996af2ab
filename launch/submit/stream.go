package submit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/marks"
	"github.com/isthmus-grid/isthmus/internal/job/merge"
	"github.com/isthmus-grid/isthmus/launch/allocate"
)

// stdStream is the standard output or standard error of a process, or the standard output of all replicas of a rank.
//
// A process that comes in place of a lost replica begins in the middle of what its rank writes. What it writes before it has
// its place is dropped, as the others have written that. The state is that of another replica, which has marked in its output where it
// was then; with that mark the offset of the newcomer's next byte is known, and from then on it is a replica like the others. All
// others mark where it has its place: what they wrote from there on is not printed before the newcomer has written it, too.
type stdStream struct {
	mu sync.Mutex // held while writing, so that bytes are printed in order; guards the fields below
	to io.Writer

	// Of the replicas of a rank.
	merge     *merge.Merger // nil: of one process
	secret    string        // of the marks in the output; empty: there are none
	processes map[allocate.Process]*writer
	waiting   []*writer         // those that have loaded a state whose mark is not here yet
	saved     map[marks.ID]spot // where states were saved
	joined    map[int][]spot    // where others had newcomers among them, by process number
	expected  map[int]bool      // those of these whose first byte is not known yet
	missing   string            // what may be missing of the output; empty: nothing
	differ    time.Time         // when it was first seen that replicas differ that have not ended; zero: they do not
	reported  bool              // that they differ, or what is missing
}

// A spot is where in the output a writer of the merger was.
type spot struct {
	writer int
	at     uint64
}

// A writer is one of the processes whose output a stream is.
type writer struct {
	process, seat allocate.Process
	reader        *marks.Reader // nil: no marks are in its output
	merged        int           // its number in the merger, -1 before its offset is known
	loaded        marks.ID      // the state for which it waits, unless merged
	queued        []byte        // what it wrote while it waited
	marks         []queuedMark  // of these bytes, in order
	ended         bool          // by itself, while it waited
	died          bool          // otherwise, while it waited
}

// A queuedMark is one in what a process wrote while it waited.
type queuedMark struct {
	marks.Mark
	at int // before the byte of that index
}

// mergeReplicas makes s that of the n replicas of a rank.
func (s *stdStream) mergeReplicas(n int, secret string) {
	s.merge, s.secret = merge.New(n), secret
	s.processes, s.saved, s.joined, s.expected = map[allocate.Process]*writer{}, map[marks.ID]spot{}, map[int][]spot{}, map[int]bool{}
}

// maxQueued bounds what a process may write before the mark of the state that it has loaded arrives.
const maxQueued = 16 << 20

var errMarkMissing = errors.New("the process whose state it has loaded has not said where it was")

// write takes what a process wrote, and prints what is to be printed.
func (s *stdStream) write(p, seat allocate.Process, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.merge == nil {
		_, err := s.to.Write(data)
		return err
	}
	w := s.of(p, seat)
	if w.reader == nil {
		return errors.Join(s.pass(w, data), s.print())
	}
	var errs []error
	w.reader.Read(data, func(part []byte) { errs = append(errs, s.pass(w, part)) }, func(m marks.Mark) { errs = append(errs, s.mark(w, m)) })
	return errors.Join(append(errs, s.print())...)
}

// print prints what is to be printed. mu is held, as in all that follows.
func (s *stdStream) print() error {
	for len(s.expected) == 0 {
		out, err := s.merge.Next()
		if err != nil || len(out) == 0 {
			return err
		}
		if _, err := s.to.Write(out); err != nil {
			return err
		}
	}
	return nil
}

// of returns the writer of a process.
func (s *stdStream) of(p, seat allocate.Process) *writer {
	w := s.processes[p]
	if w == nil {
		w = &writer{process: p, seat: seat, merged: seat.Copy}
		if s.secret != "" {
			w.reader = marks.NewReader(s.secret)
		}
		if p != seat {
			w.merged = -1
		}
		s.processes[p] = w
	}
	return w
}

// pass takes what the program of a process wrote.
func (s *stdStream) pass(w *writer, data []byte) error {
	switch {
	case w.merged >= 0:
		return s.merge.Write(w.merged, data)
	case w.loaded == (marks.ID{}):
	case len(w.queued)+len(data) > maxQueued:
		return errMarkMissing
	default:
		w.queued = append(w.queued, data...)
	}
	return nil
}

// mark takes a mark in the output of a process. One of a process that has died is late: others may go on without what it
// says.
func (s *stdStream) mark(w *writer, m marks.Mark) error {
	switch {
	case m.Kind == marks.Loaded && w.merged < 0 && !w.died:
		w.loaded = m.ID
		s.waiting = append(s.waiting, w)
	case w.merged < 0 && w.loaded != (marks.ID{}): // join takes it
		w.marks = append(w.marks, queuedMark{m, len(w.queued)})
		return nil
	case w.merged < 0 || s.merge.Ended(w.merged):
		return nil
	case m.Kind == marks.Saved:
		s.saved[m.ID] = spot{w.merged, s.merge.Offset(w.merged)}
	case m.Kind == marks.Joined:
		number := m.ID.Number()
		s.joined[number] = append(s.joined[number], spot{w.merged, s.merge.Offset(w.merged)})
		if n := s.processes[allocate.Process{Rank: number}]; n == nil || n.mayJoin() {
			s.expected[number] = true
		}
	}
	return s.settle()
}

// mayJoin reports whether a process may still come to be merged.
func (w *writer) mayJoin() bool {
	return w.merged < 0 && !w.died && !(w.ended && w.loaded == (marks.ID{}))
}

// settle gives those that wait their offsets, as far as these are known.
func (s *stdStream) settle() error {
	for i, w := range s.waiting {
		if from, known := s.spotOf(w); known {
			s.waiting = slices.Delete(s.waiting, i, i+1)
			return errors.Join(s.join(w, from), s.settle())
		}
	}
	return nil
}

// spotOf returns where a process begins that waits. It is where its state was saved; if whoever saved it has died before it said so,
// it is where others had the process among them. If all have died that could say it, the output goes on where it ends.
func (s *stdStream) spotOf(w *writer) (from spot, known bool) {
	if from, known := s.saved[w.loaded]; known {
		return from, true
	}
	others := s.joined[w.process.Rank]
	for i := range s.merge.Writers() {
		hasSaid := slices.ContainsFunc(others, func(o spot) bool { return o.writer == i })
		if !s.merge.Ended(i) && !hasSaid && !s.hasLoaded(i, w.loaded) {
			return from, false // it may have saved it, and is to say so
		}
	}
	if len(others) == 0 {
		s.missing = fmt.Sprintf("standard output that the lost replicas wrote last may be missing: process %d goes on, and the mark that says at which byte did not arrive", w.process.Rank)
		return spot{writer: -1}, true
	}
	return slices.MaxFunc(others, func(a, b spot) int { return cmp.Compare(a.at, b.at) }), true
}

// hasLoaded reports whether a writer of the merger has loaded that state: it came with those that wait for it.
func (s *stdStream) hasLoaded(merged int, state marks.ID) bool {
	for _, w := range s.processes {
		if w.merged == merged && w.loaded == state {
			return true
		}
	}
	return false
}

// join begins to merge what a process writes, from an offset on.
func (s *stdStream) join(w *writer, from spot) (err error) {
	delete(s.expected, w.process.Rank)
	if w.merged, err = s.merge.Join(w.seat.Copy, from.writer, from.at); err != nil {
		return err
	}
	queued, passed := w.queued, 0
	for _, m := range w.marks {
		err = errors.Join(err, s.pass(w, queued[passed:m.at]), s.mark(w, m.Mark))
		passed = m.at
	}
	err = errors.Join(err, s.pass(w, queued[passed:]))
	w.queued, w.marks = nil, nil
	if w.ended {
		s.merge.End(w.merged, false)
	}
	return err
}

// end takes that a process will write no more: because its program ended by itself, or because it died. Only the first
// call for a process counts.
func (s *stdStream) end(p, seat allocate.Process, died bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.of(p, seat)
	if w.ended || w.died {
		return nil
	}
	var err error
	if w.reader != nil {
		err = s.pass(w, w.reader.End())
	}
	switch {
	case w.merged >= 0:
		s.merge.End(w.merged, died)
	case died:
		w.died = true
		s.waiting = slices.DeleteFunc(s.waiting, func(other *writer) bool { return other == w })
	default:
		w.ended = true
	}
	if !w.mayJoin() {
		delete(s.expected, p.Rank)
	}
	return errors.Join(err, s.settle(), s.print())
}

// close takes that nothing more is written: who has not ended has died. It prints what remains, and returns what is wrong with what was
// printed, if anything is.
func (s *stdStream) close() (fault string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.merge == nil {
		return "", nil
	}
	defer s.merge.Close()
	for _, w := range s.processes {
		w.died = w.died || w.merged < 0 && !w.ended
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(w *writer) bool { return w.died })
	for i := range s.merge.Writers() {
		s.merge.End(s.merge.Writers()-1-i, true) // the lowest one last: it is printed where none has ended by itself
	}
	err = s.settle()
	clear(s.expected)
	err = errors.Join(err, s.print())
	if d, final := s.merge.Difference(); final && s.missing == "" {
		return explain(d, fmt.Sprintf("what replica %d wrote is printed", d.Printed)), err
	}
	return s.missing, err
}

// fault returns what is wrong with what was printed, or keeps more from being printed for so long that it is no death that is not
// known yet. It returns that once, and does not wait for what is being printed.
func (s *stdStream) fault(now time.Time) string {
	if s.merge == nil || !s.mu.TryLock() {
		return ""
	}
	defer s.mu.Unlock()
	d, final := s.merge.Difference()
	switch {
	case s.reported:
		return ""
	case s.missing != "":
		s.reported = true
		return s.missing
	case d == nil || final: // which close returns
		s.differ = time.Time{}
	case s.differ.IsZero():
		s.differ = now
	case now.Sub(s.differ) > differTime:
		s.reported = true
		return explain(d, "nothing more of the rank is printed until one of them has died, or all have ended")
	}
	return ""
}

// differTime is long enough for the loss of a host to be known.
const differTime = retryTime + 15*time.Second

// explain says for people how the output of a rank's replicas differs.
func explain(d *merge.Difference, consequence string) string {
	return fmt.Sprintf("standard output: %v; %s; likely causes: the clock, random numbers, the order of a map, the name of the host", d, consequence)
}
