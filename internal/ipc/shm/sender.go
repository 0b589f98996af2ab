package shm

import (
	"encoding/binary"
	"fmt"
)

// A Sender is the sending end of a ring. It is not safe for concurrent use.
type Sender struct {
	ring ring
	err  error

	sent uint64 // records
	done uint64 // records that the receiver had finished with at the last check

	// Of the data: where the next payload goes, if it fits there, and how many bytes were taken and
	// freed since the beginning. Bytes skipped at the end, for lack of a contiguous piece, count as
	// taken by the record after them.
	next        int
	taken, free uint64
	takenBy     [cellCount]uint64 // value of taken after the record in each cell

	nextSlot int             // the next to be used, if it is free
	exposed  [CopySlots]bool // slots in use
}

// TrySend sends a record of the head and of all of payload, concatenated, if there is room; it
// copies them. Otherwise it does nothing and returns false, as it does once [Sender.Err] is not
// nil. More than MaxRecord bytes of payload are an error of the caller, and panic. It neither
// blocks nor allocates. After one or several sends, the caller must call [Sender.PeerSleeps].
func (s *Sender) TrySend(head *[HeadSize]byte, payload ...[]byte) bool {
	n := 0
	for _, p := range payload {
		n += len(p)
	}
	if n > MaxRecord {
		panic(fmt.Sprintf("shm: a record of %d bytes, more than %d", n, MaxRecord))
	}
	if s.err != nil || s.sent-s.done == cellCount && !s.checkRoom(n) {
		return false
	}
	c := &s.ring.cells[s.sent%cellCount]
	to := c.body[:]
	if n > inline {
		at, ok := s.place(n)
		if !ok {
			return false
		}
		binary.NativeEndian.PutUint64(c.body[:], uint64(at))
		to = s.ring.data[at : at+n]
	}
	for _, p := range payload {
		to = to[copy(to, p):]
	}
	c.head = *head
	s.takenBy[s.sent%cellCount] = s.taken
	raceRelease()
	c.word.Store(uint64(stamp(s.sent))<<32 | uint64(n)) // publishes all of the above
	s.sent++
	return true
}

// place allocates n bytes of the data.
func (s *Sender) place(n int) (at int, ok bool) {
	n = roundUp(n)
	if s.next+n > hot {
		s.learn()
	}
	if s.taken == s.free {
		s.next = 0 // nothing is in use; memory used recently is in the cache
	}
	at, skip, ok := s.fit(n)
	if !ok {
		if !s.learn() {
			return 0, false
		}
		if at, skip, ok = s.fit(n); !ok {
			return 0, false
		}
	}
	s.next = at + n
	s.taken += uint64(skip + n)
	return at, true
}

// hot is how much of the data a sender uses before it checks whether it can start over.
const hot = 64 << 10

// fit finds n contiguous bytes: where, and after skipping how many.
func (s *Sender) fit(n int) (at, skip int, ok bool) {
	at = s.next
	if at+n > len(s.ring.data) {
		at, skip = 0, len(s.ring.data)-at
	}
	return at, skip, s.taken+uint64(skip+n)-s.free <= uint64(len(s.ring.data))
}

// checkRoom reads the receiver's progress and reports whether there is room for a record of n bytes
// now.
func (s *Sender) checkRoom(n int) bool {
	if !s.learn() || s.sent-s.done == cellCount {
		return false
	}
	if n <= inline {
		return true
	}
	if s.taken == s.free {
		return true
	}
	_, _, ok := s.fit(roundUp(n))
	return ok
}

// learn reads the receiver's progress. It returns false when the ring is corrupt.
func (s *Sender) learn() bool {
	if s.err != nil {
		return false
	}
	done := s.ring.done.Load()
	if done == s.done {
		return true
	}
	if done-s.done > s.sent-s.done { // behind its earlier value, or ahead of what was sent
		s.err = fmt.Errorf("shm: the peer is through with %d records of %d, after %d: %w", done, s.sent, s.done, ErrCorrupt)
		return false
	}
	s.done, s.free = done, s.takenBy[(done-1)%cellCount]
	return true
}

// PeerSleeps reports whether the caller must wake the receiver: it is true once per sleep. Call it
// after sending.
func (s *Sender) PeerSleeps() bool { return claim(&s.ring.recvSleeps) }

// Sleep announces that the caller will not try again before it is woken, and returns true, unless
// there is room for a record of n bytes of payload now, or the ring is corrupt: then it announces
// nothing. A sender that wakes by itself need not revoke the announcement; it may then be woken
// unnecessarily.
func (s *Sender) Sleep(n int) bool {
	s.ring.sendSleeps.Store(1)
	if s.checkRoom(n) || s.err != nil { // after the store: see the package's documentation
		s.ring.sendSleeps.Store(0)
		return false
	}
	return true
}

// From tells the peer on which processor this process runs: a hint for its waits.
func (s *Sender) From(cpu int) {
	if at := uint32(cpu + 1); s.ring.sendsFrom.Load() != at {
		s.ring.sendsFrom.Store(at)
	}
}

// Err returns why the ring can no longer be sent on, or nil.
func (s *Sender) Err() error { return s.err }

func roundUp(n int) int { return (n + line - 1) &^ (line - 1) }
