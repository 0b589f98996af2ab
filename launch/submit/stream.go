package submit

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/job/marks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
)

// stdStream is the standard output or standard error of a process, or of all replicas of a rank.
//
// A process that comes in place of a lost replica begins in the middle of what its rank writes. What it writes before it has
// its place is dropped, as the others have written that. The state is that of another replica, which has marked in its output where it
// was then; with that mark the offset of the newcomer's next byte is known, and from then on it is a replica like the others.
type stdStream struct {
	name string

	mu        sync.Mutex // held while writing, so that bytes are printed in order; guards the fields below
	to        io.Writer
	merge     *merger // nil: of one process
	secret    string  // of the marks in the output; empty: there are none
	processes map[allocate.Process]*writer
	waiting   []*writer           // those that have loaded a state whose mark is not here yet
	saved     map[marks.ID]uint64 // the offsets at which states were saved
}

// A writer is one of the processes whose output a stream is.
type writer struct {
	process, seat allocate.Process
	reader        *marks.Reader // nil: no marks are in its output
	merged        int           // its number in the merger, -1 before its offset is known
	loaded        marks.ID      // the state for which it waits, unless merged
	queued        []byte        // what it wrote while it waited
	ended, well   bool          // while it waited
}

// maxQueued bounds what a process may write before the mark of the state that it has loaded arrives.
const maxQueued = 16 << 20

var errMarkMissing = errors.New("the process whose state it has loaded has not said where it was")

// write takes what a process wrote, and prints what is to be printed. It returns how replicas diverge.
func (s *stdStream) write(p, seat allocate.Process, data []byte) (diverged []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.merge == nil {
		_, err := s.to.Write(data)
		return nil, err
	}
	w := s.of(p, seat)
	if w.reader == nil {
		return s.pass(w, data)
	}
	var errs []error
	w.reader.Read(data, func(part []byte) {
		how, err := s.pass(w, part)
		diverged, errs = append(diverged, how...), append(errs, err)
	}, func(m marks.Mark) {
		how, err := s.mark(w, m)
		diverged, errs = append(diverged, how...), append(errs, err)
	})
	return diverged, errors.Join(errs...)
}

// of returns the writer of a process. mu is held.
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

// pass takes what the program of a process wrote. mu is held.
func (s *stdStream) pass(w *writer, data []byte) ([]string, error) {
	if w.merged < 0 {
		if w.loaded == (marks.ID{}) {
			return nil, nil
		}
		if len(w.queued)+len(data) > maxQueued {
			return nil, errMarkMissing
		}
		w.queued = append(w.queued, data...)
		return nil, nil
	}
	out, how := s.merge.write(w.merged, data)
	var diverged []string
	if how != nil {
		diverged = []string{how.describe(w.seat.Rank, s.name)}
	}
	if len(out) == 0 {
		return diverged, nil
	}
	_, err := s.to.Write(out)
	return diverged, err
}

// mark takes a mark in the output of a process. mu is held.
func (s *stdStream) mark(w *writer, m marks.Mark) (diverged []string, err error) {
	switch {
	case m.Kind == marks.Loaded && w.merged < 0:
		w.loaded = m.ID
		s.waiting = append(s.waiting, w)
	case m.Kind == marks.Saved && w.merged >= 0:
		s.saved[m.ID] = s.merge.replicas[w.merged].offset
	}
	return s.settle()
}

// settle gives those that wait their offsets, as far as these are known. Where all have died that could say it, the
// output goes on where it ends. mu is held.
func (s *stdStream) settle() (diverged []string, err error) {
	for i := 0; i < len(s.waiting); i++ {
		w := s.waiting[i]
		at, known := s.saved[w.loaded]
		if !known && !s.merge.haveEnded() {
			continue
		}
		if !known {
			at = s.merge.printed
			diverged = append(diverged, fmt.Sprintf("rank %d: what its lost replicas wrote last to %s may be missing: process %d goes on with it, and where they were did not arrive", w.seat.Rank, s.name, w.process.Rank))
		}
		s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
		how, writeErr := s.join(w, at)
		return append(diverged, how...), writeErr
	}
	return diverged, nil
}

// join begins to merge what a process writes, from an offset on, and looks who is next. mu is held.
func (s *stdStream) join(w *writer, at uint64) (diverged []string, err error) {
	w.merged = s.merge.join(w.seat.Copy, at)
	queued := w.queued
	w.queued = nil
	if diverged, err = s.pass(w, queued); w.ended {
		if how := s.merge.end(w.merged, !w.well); how != nil {
			diverged = append(diverged, how.describe(w.seat.Rank, s.name))
		}
	}
	how, nextErr := s.settle()
	return append(diverged, how...), errors.Join(err, nextErr)
}

// end takes that a process will write no more: because it exited with status 0, or because it died.
func (s *stdStream) end(p, seat allocate.Process, well bool) (diverged []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.of(p, seat)
	if w.reader != nil {
		diverged, err = s.pass(w, w.reader.End())
	}
	if w.merged < 0 {
		w.ended, w.well = true, well
		return diverged, err
	}
	if how := s.merge.end(w.merged, !well); how != nil {
		diverged = append(diverged, how.describe(seat.Rank, s.name))
	}
	how, settleErr := s.settle()
	return append(diverged, how...), errors.Join(err, settleErr)
}
