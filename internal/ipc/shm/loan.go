package shm

import "sync/atomic"

// A ring's control also has the loans of its sender: private memory that the receiver may
// read without asking, and that the two copy together, a piece at a time. The receiver
// takes pieces from the front, the lender from the back, until they meet, so each does
// what it has time for.
//
//	free --Lend--> lent --Borrow--> borrowed --Free--> free
//	                '-----Revoke--> free
//
// Where the memory is, how large, and where it goes the two tell each other otherwise.

// Loans is how many loans a ring has.
const Loans = 56

// A loan is one of a ring, in the mapping.
type loan struct {
	word   atomic.Uint64 // phase:2 back:31 front:31: pieces that nobody has taken are from front to before back
	helped atomic.Uint64 // pieces that the lender has copied
	_      [line - 16]byte
}

const (
	freeLoan = iota
	lentLoan
	borrowedLoan

	pieceBits = 31
	pieceMask = 1<<pieceBits - 1
)

func loanWord(phase, front, back uint64) uint64 {
	return phase<<(2*pieceBits) | back<<pieceBits | front
}

func loanOf(word uint64) (phase, front, back uint64) {
	return word >> (2 * pieceBits), word & pieceMask, word >> pieceBits & pieceMask
}

// MaxLent is how many bytes a loan can have.
const MaxLent = pieceMask * smallestPiece

const (
	smallestPiece = 32 << 10
	largestPiece  = 128 << 10
)

// Piece returns how long the pieces of a loan of n bytes are; the last may be shorter.
func Piece(n int) int {
	switch {
	case n <= 128<<10:
		return smallestPiece
	case n <= 1<<20:
		return 2 * smallestPiece
	}
	return largestPiece
}

func pieces(n int) uint64 { return uint64((n + Piece(n) - 1) / Piece(n)) }

// Lend makes a loan of n bytes, at most MaxLent, and returns its number, or false if
// the ring has no more.
func (s *Sender) Lend(n int) (i int, ok bool) {
	for range Loans {
		i := s.loan
		s.loan = (s.loan + 1) % Loans
		if l := &s.ring.loans[i]; !s.lent[i] {
			s.lent[i] = true
			l.helped.Store(0)
			raceRelease()
			l.word.Store(loanWord(lentLoan, 0, pieces(n)))
			return i, true
		}
	}
	return 0, false
}

// Revoke takes loan i back, or reports that the receiver has borrowed it: its memory then
// has to stay until the receiver says that it is done. In either case Free is still to be called.
func (s *Sender) Revoke(i int) bool {
	l := &s.ring.loans[i]
	word := l.word.Load()
	phase, _, _ := loanOf(word)
	return phase == lentLoan && l.word.CompareAndSwap(word, loanWord(freeLoan, 0, 0))
}

// Free ends loan i. The receiver has said that it is done, or wants nothing of it.
func (s *Sender) Free(i int) {
	s.ring.loans[i].word.Store(loanWord(freeLoan, 0, 0))
	s.lent[i] = false
}

// Help takes a piece of loan i for the lender to copy, and returns its number.
func (s *Sender) Help(i int) (piece int, ok bool) { return s.ring.loans[i].claim(false) }

// Helped tells the receiver that a piece which Help returned is copied.
func (s *Sender) Helped(i int) {
	raceRelease()
	s.ring.loans[i].helped.Add(1)
}

// Borrow takes loan i of the peer, or reports that it was revoked.
func (r *Receiver) Borrow(i int) bool {
	l := &r.ring.loans[i]
	word := l.word.Load()
	phase, front, back := loanOf(word)
	ok := phase == lentLoan && l.word.CompareAndSwap(word, loanWord(borrowedLoan, front, back))
	raceAcquire()
	return ok
}

// Claim takes a piece of loan i for the receiver to copy, and returns its number, which
// a broken peer can have made up.
func (r *Receiver) Claim(i int) (piece int, ok bool) { return r.ring.loans[i].claim(true) }

// Close leaves nothing of loan i to be taken by either.
func (r *Receiver) Close(i int) { r.ring.loans[i].word.Store(loanWord(borrowedLoan, 0, 0)) }

// Settled reports whether all pieces of loan i, of n bytes, are copied, given how many the
// receiver took and copied itself. It is for when Claim has none left.
func (r *Receiver) Settled(i, n int, own int) bool {
	done := r.ring.loans[i].helped.Load()+uint64(own) >= pieces(n)
	raceAcquire()
	return done
}

func (l *loan) claim(first bool) (piece int, ok bool) {
	for {
		word := l.word.Load()
		phase, front, back := loanOf(word)
		if phase != borrowedLoan || front >= back {
			return 0, false
		}
		next := loanWord(phase, front, back-1)
		if piece = int(back - 1); first {
			piece, next = int(front), loanWord(phase, front+1, back)
		}
		if l.word.CompareAndSwap(word, next) {
			return piece, true
		}
	}
}
