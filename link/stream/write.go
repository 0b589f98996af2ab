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
		s.takeBack(start, math.MaxUint64)
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
		s.takeBack(start, math.MaxUint64)
	}
	return n, s.out.end, err
}

// Reclaim returns to the caller what was lent from from up to next, which is to, or less where it is to be called again: what
// the peer may still need of it is copied, a page at a time. It refuses while a carrier is writing some of it; the user's
// Writable follows.
func (s *Stream) Reclaim(from, to uint64) (next uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing(from, to) {
		s.wrote.reclaims = true
		for _, c := range s.carriers {
			if c.pending { // Flush has left it
				c.wake()
			}
		}
		return from, false
	}
	if acked := s.send.Acked(); !s.over {
		to = min(to, max(from, acked)+pageSize)
		s.out.copyUnacked(from, to, acked)
	}
	return to, true
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
	if isReleased(s, mark) {
		return true
	}
	s.wrote.wanted = max(s.wrote.wanted, mark)
	s.wakeCarriers()
	return false
}

func isReleased(s *Stream, mark uint64) bool {
	return (s.over || s.send.Acked() >= mark) && !s.writing(0, mark)
}

// release makes a Read return if what was to be released is. The goroutine of by, if there is one, sees
// that itself.
func (s *Stream) release(by *Carrier) {
	if s.wrote.wanted == 0 || !isReleased(s, s.wrote.wanted) {
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
		s.flush(s.wrote.urgency(lent, atOnce))
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

// A User is told what happens to a stream. It is called without the stream's lock, by the goroutine that has written or
// read, and may call the stream.
type User interface {
	// Writable is called once Append, which has refused something, would take it, or Reclaim may not refuse any more.
	Writable()
}

// SetUser sets the stream's user.
func (s *Stream) SetUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote.user = u
}

// How says what Append does with the bytes that it is given.
type How uint8

const (
	Copy  How = iota // copies them
	Lend             // refers to them, if they are many: they must not change until they are released, see Released
	Fresh            // copies them, and refuses while anything before them is not with the kernel
	hows
)

// maxUnsent is how many bytes may wait for the kernel before Append refuses more: what waits above the stream can still be
// withdrawn, and overtaken. Several carriers may hold a piece each, and with BoundUnsent it is one piece in all.
const maxUnsent = 1 << 20

// Append adds a copy of head, and body, to the stream, and leaves it to Flush or Push, or to whoever writes next, to write
// them. It never blocks: it takes all or nothing. It refuses where there is no room for all of it, so much waits for the
// kernel, or another write is in the middle of what it adds; the user's Writable follows. What is lent is released with
// mark, which is 0 if nothing was.
func (s *Stream) Append(how How, head, body []byte) (mark uint64, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(head) + len(body)
	switch {
	case s.closing || s.over:
		return 0, false, s.ended("write")
	case !takes(s, how, n):
		s.wrote.refused[how], s.wrote.hasRefused = n, true
		return 0, false, nil
	}
	s.send.Push(n)
	s.out.add(head)
	switch {
	case len(body) < minZeroCopy:
		s.out.add(body)
		s.wrote.small = true
		return 0, true, nil
	case how == Lend:
		s.out.addUncopied(body)
		mark = s.out.end
	default:
		s.out.add(body)
	}
	s.wrote.large = true
	return mark, true, nil
}

// takes reports whether Append takes n bytes.
func takes(s *Stream, how How, n int) bool {
	most := mostUnsent(s)
	if how == Fresh {
		most = 1
	}
	return !s.wrote.pushing && s.roomNow() >= n && unsentBytes(s) < most
}

func mostUnsent(s *Stream) int {
	if s.windows.unsent > 0 {
		return piece
	}
	return max(maxUnsent, len(s.carriers)*piece)
}

// unsentBytes returns how many bytes the kernel has not taken, here or in a carrier's write.
func unsentBytes(s *Stream) int {
	n := s.send.End() - min(s.send.Sent(), s.send.End()) + s.send.Lost()
	for _, c := range s.carriers {
		n += c.to - c.from
	}
	return int(n)
}

// tellWritable calls the user's Writable if Append has refused what it would take now, or Reclaim has refused something. mu is
// held, and released meanwhile.
func (s *Stream) tellWritable() {
	tell := s.wrote.reclaims
	if s.wrote.hasRefused && !s.closing && !s.over {
		for how, n := range s.wrote.refused {
			tell = tell || n > 0 && takes(s, How(how), n)
		}
	}
	if u := s.wrote.user; tell && u != nil {
		s.wrote.refused, s.wrote.hasRefused, s.wrote.reclaims = [hows]int{}, false, false
		s.mu.Unlock()
		u.Writable()
		s.mu.Lock()
	}
}

// Flush writes what was appended, as far as it need not block; the carrier's goroutine does if there may be more by then. It
// reports whether it has left something: what the socket does not take, or what may be written together with more that
// follows at once. Then Push, the next Flush, or the next tick of the watch has it written. With rest it leaves nothing: the
// carrier's goroutine writes that, as it does where several carriers are in use.
func (s *Stream) Flush(rest bool) (left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := onlyCarrier(s)
	if c != nil && c.writing { // who writes looks for more before it stops, or says that there is
		return false
	}
	follows := s.wrote.follows()
	switch {
	case !s.wrote.large && follows:
		s.flush(later)
	case follows && !rest && c != nil && !s.wrote.small && unsentBytes(s) < mostUnsent(s):
		return true
	default:
		s.flush(withoutWaiting)
	}
	if s.wrote.large {
		s.wrote.wroteLarge()
	}
	s.wrote.large, s.wrote.small = false, false
	if c == nil || !c.pending {
		return false
	}
	if rest {
		c.wake()
	}
	return !rest
}

// Push is Flush for a caller that waits until the kernel has what was appended: it writes once, however long the kernel
// takes for that, and reports whether there is more for it to write.
func (s *Stream) Push() (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote.large, s.wrote.small = false, false
	c := onlyCarrier(s)
	if c == nil || c.writing {
		s.flush(withoutWaiting)
		return false
	}
	return c.writeOnce() && !c.dead && (c.pending || s.send.Sendable())
}

// urgency says which goroutine writes.
type urgency uint8

const (
	atOnce         urgency = iota // the caller, if only one carrier is in use and it is free
	withoutWaiting                // the caller, as far as it need not block
	later                         // the carrier's goroutine, which may find more by then
)

// onlyCarrier returns the carrier that callers write themselves: the only one in use. Where several are, their goroutines write.
func onlyCarrier(s *Stream) *Carrier {
	if s.send.Shared() {
		return nil
	}
	for _, c := range s.carriers {
		if s.send.Uses(c.id) {
			return c
		}
	}
	return nil
}

// flush writes what there is to write; where the caller does not write, the carriers' goroutines
// do.
func (s *Stream) flush(u urgency) {
	switch c := onlyCarrier(s); {
	case c == nil:
		s.shareOut()
	case c.writing: // the current writer looks for more before it stops
	case u == later:
		c.wake()
	case u == withoutWaiting:
		c.offer(true)
	default:
		c.write()
	}
}

// takeBack copies the zero-copy bytes that the stream still holds from from up to to, once no carrier is
// writing them.
func (s *Stream) takeBack(from, to uint64) {
	for s.writing(from, to) {
		s.wakeAll() // Flush may have left it
		s.writable.Wait()
	}
	if !s.over {
		s.out.copyUnacked(from, to, s.send.Acked())
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
	user       User
	refused    [hows]int // how many bytes Append has refused since the user's Writable was called; 0: none
	hasRefused bool
	reclaims   bool // Reclaim has refused something since then
	large      bool // what was appended is not to wait for more of it, but for more that is large
	small      bool // nor for that: the peer may have to answer a small message

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

// wroteLarge notes that a write has ended which took long.
func (b *burst) wroteLarge() { b.last = time.Since(epoch) }

// urgency returns how urgent a write is that would be u by itself: one of several small writes in close succession can
// wait for the next.
func (b *burst) urgency(large bool, u urgency) urgency {
	if !large && b.follows() {
		return later
	}
	return u
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
