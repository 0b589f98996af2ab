package stream

import (
	"math"
	"time"
)

// Write implements net.Conn. It returns when the system has p, or p is copied.
func (s *Stream) Write(p []byte) (int, error) {
	one := [1][]byte{p}
	n, err := s.WriteBuffers(one[:])
	return int(n), err
}

// WriteBuffers writes several buffers as one, in as few system calls as possible. It changes
// neither bufs nor what they hold, and keeps neither: what the peer has not acknowledged by the
// time it returns is copied.
func (s *Stream) WriteBuffers(bufs [][]byte) (n int64, err error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	start := s.out.end
	n, lent, err := s.push(bufs)
	if lent {
		s.takeBack(start)
	}
	return n, err
}

// Lend is WriteBuffers without a copy of large buffers: the caller must not change them until the
// peer's process has taken everything before mark, or the stream is over; see Released, Await and
// Reclaim. After an error, the n bytes that were written have been copied.
func (s *Stream) Lend(bufs [][]byte) (n int64, mark uint64, err error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	start := s.out.end
	n, lent, err := s.push(bufs)
	if err != nil && lent {
		s.takeBack(start)
	}
	return n, s.out.end, err
}

// Reclaim returns all lent buffers to the caller: what the peer may still need is copied. It waits
// for a system call that reads them, and for a write that is under way.
func (s *Stream) Reclaim() {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeBack(0)
}

// Await waits until the peer's process has taken everything before mark. It returns an error when
// the write deadline passes or the stream is over.
func (s *Stream) Await(mark uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.send.Acked() < mark || s.writing(0, mark) {
		switch {
		case s.over && !s.writing(0, mark):
			return s.ended("write")
		case s.writeBy.passed:
			return s.deadlineError("write")
		}
		s.wakeCarriers()
		s.writable.Wait()
	}
	return nil
}

// Released reports whether nothing refers any more to what was lent before mark: the peer's process has
// taken it, or the stream is over. If not, a Read returns 0 bytes without an error when that is so.
func (s *Stream) Released(mark uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released(mark) {
		return true
	}
	s.wrote.wanted = max(s.wrote.wanted, mark)
	s.wakeCarriers()
	return false
}

func (s *Stream) released(mark uint64) bool {
	return (s.over || s.send.Acked() >= mark) && !s.writing(0, mark)
}

// release makes a Read return if what was to be released is. The goroutine of by, if there is one, sees
// that itself.
func (s *Stream) release(by *Carrier) {
	if s.wrote.wanted == 0 || !s.released(s.wrote.wanted) {
		return
	}
	s.wrote.wanted, s.wrote.returns = 0, true
	s.readable.Broadcast()
	for _, c := range s.carriers {
		if c != by && c.byRead {
			c.interrupt()
		}
	}
}

// urged records when the peer was last asked to acknowledge soon.
type urged struct {
	at uint64   // the acknowledgement at that time
	on *Carrier // the carrier it was asked on
}

// wakeCarriers asks the peer to acknowledge soon, unless it was asked since its last
// acknowledgement, and ensures that the answer is read.
func (s *Stream) wakeCarriers() {
	if now := (urged{s.send.Acked(), s.lead}); s.lead != nil && now != s.urged {
		s.urged = now
		s.lead.queueSignal(sayUrge)
	}
	s.readOn()
}

// push adds bytes and writes them, as far as a carrier takes them.
func (s *Stream) push(bufs [][]byte) (n int64, lent bool, err error) {
	n, lent, err = s.add(bufs)
	if err == nil && n > 0 {
		s.flush(s.how(lent))
	}
	return n, lent, err
}

// add adds bytes, and waits for room where there is none.
func (s *Stream) add(bufs [][]byte) (n int64, lent bool, err error) {
	s.wrote.pushing = true
	defer func() { s.wrote.pushing = false }()
	for _, b := range bufs {
		for len(b) > 0 {
			room, err := s.room()
			if err != nil {
				return n, lent, err
			}
			part := b[:min(len(b), room)]
			s.send.Push(len(part))
			if len(part) >= minZeroCopy {
				s.out.addUncopied(part)
				lent = true
			} else {
				s.out.add(part)
			}
			n += int64(len(part))
			b = b[len(part):]
		}
	}
	return n, lent, nil
}

// room waits until something may be written.
func (s *Stream) room() (int, error) {
	for {
		if s.closing || s.over {
			return 0, s.ended("write")
		}
		if s.writeBy.passed {
			return 0, s.deadlineError("write")
		}
		if room := s.roomNow(); room > 0 {
			return room, nil
		}
		s.flush(atOnce)
		if s.roomNow() == 0 && !s.over {
			s.wakeCarriers()
			s.writable.Wait()
		}
	}
}

// roomNow returns how many bytes may be added: up to the window's end, and no further than there
// are slots for pages above those that are still being written.
func (s *Stream) roomNow() int { return min(s.send.Room(), s.out.pages.room(s.out.end)) }

// Append adds a copy of head and body to the stream, and leaves it to Flush, or to whoever writes next, to
// write it. It never blocks: it returns false, and has added nothing, where there is no room for all of it
// now, or another write is in the middle of what it adds.
func (s *Stream) Append(head, body []byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(head) + len(body)
	switch {
	case s.closing || s.over:
		return false, s.ended("write")
	case s.wrote.pushing || s.roomNow() < n:
		return false, nil
	}
	s.send.Push(n)
	s.out.add(head)
	s.out.add(body)
	return true, nil
}

// Flush writes what was appended, as far as it need not block. The carrier's goroutine writes what the
// socket does not take at once, or all of it if there may be more by then.
func (s *Stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wrote.follows() {
		s.flush(later)
	} else {
		s.flush(withoutWaiting)
	}
}

// Post is an Append of p and a Flush.
func (s *Stream) Post(p []byte) (bool, error) {
	ok, err := s.Append(p, nil)
	if ok {
		s.Flush()
	}
	return ok, err
}

// urgency says which goroutine writes.
type urgency uint8

const (
	atOnce         urgency = iota // the caller, if only one carrier is in use and it is free
	withoutWaiting                // the caller, as far as it need not block
	later                         // the carrier's goroutine, which may find more by then
)

// how returns how urgent a write is: one of several small writes in close succession can wait for
// the next.
func (s *Stream) how(lent bool) urgency {
	if !lent && s.wrote.follows() {
		return later
	}
	return atOnce
}

// flush writes what there is to write; where the caller does not write, the carriers' goroutines
// do.
func (s *Stream) flush(u urgency) {
	var only *Carrier
	for _, c := range s.carriers {
		if !s.send.Uses(c.id) {
			continue
		}
		if only != nil {
			s.shareOut()
			return
		}
		only = c
	}
	switch {
	case only == nil || only.writing: // the current writer looks for more before it stops
	case u == later:
		only.wake()
	case u == withoutWaiting:
		only.offer()
	default:
		only.write()
	}
}

// takeBack copies the zero-copy bytes that the stream still holds starting at from, once no carrier is
// writing them.
func (s *Stream) takeBack(from uint64) {
	for s.writing(from, math.MaxUint64) {
		s.writable.Wait()
	}
	if !s.over {
		s.out.copyUnacked(from, s.send.Acked())
	}
}

// writing reports whether a carrier, possibly a dead one, is writing bytes from from up to to: the
// system may still be reading them.
func (s *Stream) writing(from, to uint64) bool {
	return writing(s.carriers, from, to) || writing(s.dying, from, to)
}

func writing(carriers []*Carrier, from, to uint64) bool {
	for _, c := range carriers {
		if c.from < c.to && c.to > from && c.from < to {
			return true
		}
	}
	return false
}

// acknowledged frees acknowledged bytes, except those that are being written.
func (s *Stream) acknowledged() {
	free := min(s.send.Acked(), s.send.End())
	for _, all := range [...][]*Carrier{s.carriers, s.dying} {
		for _, c := range all {
			if c.from < c.to {
				free = min(free, c.from)
			}
		}
	}
	s.out.free(free)
}

// written is what the calls that write have left behind.
type written struct {
	burst
	pushing bool   // one, which holds writeMu, is in the middle of what it adds
	wanted  uint64 // a Read is to return when this is released (see Released); 0: none is
	returns bool   // it is: the next Read returns at once
}

// A burst detects writes in such close succession that gathering them pays: each within the time of
// a few system calls after the previous one, and none of them an answer to something that was read.
type burst struct {
	last time.Duration
	read bool
}

const closely = 20 * time.Microsecond

var epoch = time.Now()

// follows records a write, and reports whether it continues a burst.
func (b *burst) follows() bool {
	if b.read { // most are answers: avoid reading the clock
		b.read, b.last = false, 0
		return false
	}
	now := time.Since(epoch)
	does := now-b.last < closely
	b.last = now
	return does
}

// CloseWrite ends this end's stream: the peer reads what was written, then io.EOF.
func (s *Stream) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.closing {
		return s.ended("close")
	}
	s.send.Fin()
	s.flush(atOnce)
	return nil
}
