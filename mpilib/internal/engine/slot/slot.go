// Package slot decides which values of slots are sent and kept. A slot holds the newest value that one
// process has put for another. A value that no transport has taken is replaced by the next one; what a
// transport has taken, one value of all slots towards a peer at a time, goes out whole, in pieces:
//
//	Replace --> next --NextPiece--> taken --pieces--> filling --last piece--> newest --Take--> current
//	    '--> replaces next                                              '--> replaces newest
//
// Each arrow swaps buffers, which have the size of the largest value from the first one on: nothing is
// allocated. The package knows no locks, sockets or peers: who calls it guards all of it.
package slot

import (
	"encoding/binary"
	"slices"

	"github.com/isthmus-grid/isthmus/wire"
)

// Header is the length of the number before the program's bytes of a value.
const Header = 8

// Key names a slot among those of two processes, in one direction.
type Key struct{ Context, Tag uint32 }

// Out is the sending end of a slot. The peer may open its end before this process makes this one.
type Out struct {
	Key         Key
	Max         uint64 // the largest value that the peer takes, in bytes; 0: it takes none so far, or any more
	next, taken []byte // the newest value, and the one that is being sent, each behind its number
	waits       bool   // next is to be sent
	listed      bool   // it is in values.due
	Counts      PutCounts
}

// PutCounts counts the values of the sending end of a slot: each is overwritten, sent, still waits, or was
// dropped with the peer.
type PutCounts struct{ Put, Overwritten, Sent uint64 }

// GetCounts counts the values at the receiving end of a slot.
type GetCounts struct {
	Received    uint64 // whole, and newer than the one before
	Overwritten uint64 // of those, replaced before a Get
	Dropped     uint64 // values or pieces that were too long, older than what was there, or not all here
}

// Replace puts spare, a value behind its number, in place of the one that waits, and returns the buffer for the
// next one.
func (s *Out) Replace(spare []byte) []byte {
	s.Counts.Put++
	if s.waits {
		s.Counts.Overwritten++
	}
	s.next, spare = spare, s.next
	s.waits = true
	return spare
}

// ready reports whether a value is to be sent, which the peer takes.
func (s *Out) ready() bool {
	return s.waits && s.Max > 0 && uint64(len(s.next)-Header) <= s.Max
}

// Queue is what a transport sends of a peer's slots, besides messages.
type Queue struct {
	due []*Out // each once, in the order in which their values came
	now *Out   // of whose value pieces have been taken
	at  int    // how many bytes of it
}

// Update lists s as due, or removes it, depending on whether it has a value to send. The slot of now is listed
// when that is sent.
func (v *Queue) Update(s *Out) {
	switch due := s.ready() && v.now != s; {
	case due && !s.listed:
		v.due = append(v.due, s)
	case !due && s.listed:
		v.due = slices.DeleteFunc(v.due, func(o *Out) bool { return o == s })
	}
	s.listed = s.ready() && v.now != s
}

// Pending reports whether a piece can be taken.
func (v *Queue) Pending() bool { return v != nil && (v.now != nil || len(v.due) > 0) }

// Left returns the length of the next piece, of at most n bytes.
func (v *Queue) Left(n int) int {
	switch {
	case v.now != nil:
		return min(n, len(v.now.taken)-v.at)
	case len(v.due) > 0:
		return min(n, len(v.due[0].next))
	}
	return 0
}

// NextPiece returns the next piece, of at most n bytes: of the newest value, as long as no piece was taken of one. It
// stays the next until Taken is called.
func (v *Queue) NextPiece(n int) (env wire.Envelope, b []byte) {
	s := v.now
	if s == nil {
		s = v.due[0]
		v.due = slices.Delete(v.due, 0, 1)
		s.listed = false
		v.now, v.at = s, 0
		s.next, s.taken = s.taken, s.next
		s.waits = false
	} else if v.at == 0 && s.ready() {
		s.next, s.taken = s.taken, s.next
		s.waits = false
		s.Counts.Overwritten++
	}
	b = s.taken[v.at:]
	env = wire.Envelope{Kind: wire.EnvelopeValue, Flags: wire.EnvelopeLast, Context: s.Key.Context, Tag: s.Key.Tag, ID: uint32(v.at)}
	if len(b) > n {
		b, env.Flags = b[:n], 0
	}
	env.Length = uint64(len(b))
	return env, b
}

// Taken notes that a transport has taken the first n bytes of the next piece.
func (v *Queue) Taken(n int) {
	s := v.now
	if v.at += n; v.at == len(s.taken) {
		s.Counts.Sent++
		v.now = nil
		v.Update(s)
	}
}

// In is the receiving end of a slot.
type In struct {
	Key                      Key
	Max                      int
	filling, newest, current []byte // each behind its number; current is owned by who calls Get
	broken                   bool   // a piece of the value in filling was dropped
	fresh                    bool   // newest is not current yet
	Number                   uint64 // of the newest value; 0: there was none
	Counts                   GetCounts
}

// Place returns where the bytes of a piece go, or nil if it is to be dropped.
func (s *In) Place(env wire.Envelope) []byte {
	at, n := int(env.ID), int(env.Length)
	if at == 0 {
		s.filling, s.broken = s.filling[:0], false
	}
	if s.broken || at != len(s.filling) || at+n > Header+s.Max || at == 0 && n < Header {
		s.broken = true
		s.Counts.Dropped++
		return nil
	}
	s.filling = s.filling[:at+n]
	return s.filling[at:]
}

// Filled notes that the last piece of a value is here, and reports whether the value is the newest.
func (s *In) Filled() bool {
	number := binary.BigEndian.Uint64(s.filling)
	if number <= s.Number {
		s.Counts.Dropped++
		return false
	}
	s.Counts.Received++
	if s.fresh {
		s.Counts.Overwritten++
	}
	s.filling, s.newest = s.newest, s.filling
	s.Number, s.fresh = number, true
	return true
}

// Reset makes room for values of up to size bytes. A value that waits, or of which pieces were taken, is dropped.
func (v *Queue) Reset(s *Out, size int) {
	s.next, s.taken = make([]byte, 0, Header+size), make([]byte, 0, Header+size)
	s.waits = false
	v.Update(s)
	if v.now == s {
		v.now = nil // the peer drops what it has of that value
	}
}

// Clear drops all values.
func (v *Queue) Clear() { v.due, v.now = nil, nil }

// NewIn returns the receiving end for values of up to size bytes.
func NewIn(key Key, size int) *In {
	s := &In{Key: key, Max: size}
	for _, b := range []*[]byte{&s.filling, &s.newest, &s.current} {
		*b = make([]byte, 0, Header+size)
	}
	return s
}

// Take makes the newest value the current one, which stays until the next Take, and returns its number and bytes; number 0
// says that there was none.
func (s *In) Take() (number uint64, value []byte) {
	if s.fresh {
		s.newest, s.current = s.current, s.newest
		s.fresh = false
	}
	if s.Number == 0 {
		return 0, nil
	}
	return s.Number, s.current[Header:]
}

// IsFresh reports whether a value has come since the last Take.
func (s *In) IsFresh() bool { return s.fresh }
