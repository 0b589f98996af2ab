package shm

import "sync/atomic"

// A ring's control also has the copy slots of its sender: private memory that the receiver may read
// at any time, and that the two copy together, a piece at a time. The receiver takes pieces from
// the front, the sender from the back, until they meet, so each copies as much as it has time for.
//
//	free --Expose--> exposed --Accept--> copying --Free--> free
//	                '------Revoke--> free
//
// The two exchange the address, the size and the destination of the memory by other means.

// CopySlots is the number of copy slots of a ring: a window of 64 messages and the next one. What finds none free is copied
// through the ring, which takes several times as long.
const CopySlots = 120

// A copySlot is one copy slot of a ring, in the mapping.
type copySlot struct {
	word   atomic.Uint64 // phase:2 back:31 front:31: untaken pieces are from front to before back
	helped atomic.Uint64 // pieces that the sender has copied
	_      [line - 16]byte
}

const (
	slotFree = iota
	slotExposed
	slotCopying

	pieceBits = 31
	pieceMask = 1<<pieceBits - 1
)

func slotWord(phase, front, back uint64) uint64 {
	return phase<<(2*pieceBits) | back<<pieceBits | front
}

func slotState(word uint64) (phase, front, back uint64) {
	return word >> (2 * pieceBits), word & pieceMask, word >> pieceBits & pieceMask
}

// MaxExposed bounds the bytes of an exposed buffer.
const MaxExposed = pieceMask * smallestPiece

const (
	smallestPiece = 32 << 10
	largestPiece  = 128 << 10 // what Memory copies in one system call
)

// Piece returns the length of the pieces of a buffer of n bytes; the last may be shorter. A message that is not large has two,
// one for each process: a system call costs as much as some KiB of it.
func Piece(n int) int {
	return min(max((n/2+page-1)/page*page, smallestPiece), largestPiece)
}

func pieces(n int) uint64 { return uint64((n + Piece(n) - 1) / Piece(n)) }

// Expose takes a slot for a buffer of n bytes, at most MaxExposed, and returns its number, or false
// if none is free.
func (s *Sender) Expose(n int) (i int, ok bool) {
	for range CopySlots {
		i := s.nextSlot
		s.nextSlot = (s.nextSlot + 1) % CopySlots
		if l := &s.ring.slots[i]; !s.exposed[i] {
			s.exposed[i] = true
			l.helped.Store(0)
			raceRelease()
			l.word.Store(slotWord(slotExposed, 0, pieces(n)))
			return i, true
		}
	}
	return 0, false
}

// Revoke takes slot i back, or returns false if the receiver has accepted it: its buffer must then
// stay until the receiver reports that it is done. In either case the caller must still call Free.
func (s *Sender) Revoke(i int) bool {
	l := &s.ring.slots[i]
	word := l.word.Load()
	phase, _, _ := slotState(word)
	return phase == slotExposed && l.word.CompareAndSwap(word, slotWord(slotFree, 0, 0))
}

// Free ends slot i, after the receiver has reported that it is done, or does not want it.
func (s *Sender) Free(i int) {
	s.ring.slots[i].word.Store(slotWord(slotFree, 0, 0))
	s.exposed[i] = false
}

// Help takes a piece of slot i for the sender to copy, and returns its number.
func (s *Sender) Help(i int) (piece int, ok bool) { return s.ring.slots[i].claim(false) }

// Helped tells the receiver that a piece returned by Help has been copied.
func (s *Sender) Helped(i int) {
	raceRelease()
	s.ring.slots[i].helped.Add(1)
}

// Accept takes slot i of the peer, or returns false if it was revoked.
func (r *Receiver) Accept(i int) bool {
	l := &r.ring.slots[i]
	word := l.word.Load()
	phase, front, back := slotState(word)
	ok := phase == slotExposed && l.word.CompareAndSwap(word, slotWord(slotCopying, front, back))
	raceAcquire()
	return ok
}

// Claim takes a piece of slot i for the receiver to copy, and returns its number, which a broken
// peer may have made up.
func (r *Receiver) Claim(i int) (piece int, ok bool) { return r.ring.slots[i].claim(true) }

// Close leaves no piece of slot i to take for either side.
func (r *Receiver) Close(i int) { r.ring.slots[i].word.Store(slotWord(slotCopying, 0, 0)) }

// Settled reports whether all pieces of slot i, of n bytes, are copied; own is the number that the
// receiver took and copied. Call it when Claim has none left.
func (r *Receiver) Settled(i, n int, own int) bool {
	done := r.ring.slots[i].helped.Load()+uint64(own) >= pieces(n)
	raceAcquire()
	return done
}

func (l *copySlot) claim(first bool) (piece int, ok bool) {
	for {
		word := l.word.Load()
		phase, front, back := slotState(word)
		if phase != slotCopying || front >= back {
			return 0, false
		}
		next := slotWord(phase, front, back-1)
		if piece = int(back - 1); first {
			piece, next = int(front), slotWord(phase, front+1, back)
		}
		if l.word.CompareAndSwap(word, next) {
			return piece, true
		}
	}
}
