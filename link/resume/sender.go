package resume

import "fmt"

// Sender is the sending half of a stream: it decides what to write on which carrier. It is not safe
// for concurrent use.
type Sender struct {
	q      segments // the bytes in flight: from is acked, to is sent
	end    uint64   // bytes pushed
	fin    bool     // the stream ends at end
	window uint64
	edge   uint64 // advertised by the peer, which accepts what is below, even beyond the window
	lost   uint64 // bytes in lost segments of q
	resent uint64 // bytes that were sent again

	carriers []carrier // oldest first; never more than MaxCarriers, and never reallocated
	usable   int       // how many of them are given data
	clock    uint64    // the used count of the last carrier given data, before that data: the current virtual time

	granule uint64
	entries int // new bytes open a segment only while there are fewer
}

// NewSender returns the sender of an empty stream without carriers. The window is how many bytes
// may be unacknowledged unless Allow says more, from 1 to MaxWindow, and no larger than the window
// of the peer's Receiver; NewSender panics on one out of this range.
func NewSender(window int) *Sender {
	s := &Sender{window: checkWindow(window), carriers: make([]carrier, 0, MaxCarriers)}
	s.setGranule(Granule)
	return s
}

func (s *Sender) setGranule(g uint64) {
	s.granule, s.entries = g, entriesFor(s.window, g)
}

// Room returns how many bytes Push accepts now. After Fin it is 0.
func (s *Sender) Room() int {
	if s.fin {
		return 0
	}
	return int(min(s.q.from+s.Window(), MaxOffset) - s.end)
}

// Window returns how many bytes may be unacknowledged now: the initial window, or more by Allow.
func (s *Sender) Window() uint64 {
	return max(s.window, s.edge-min(s.edge, s.q.from))
}

// Allow records the edge that the peer advertises. One below an earlier one changes nothing, and
// neither does one more than MaxWindow ahead.
func (s *Sender) Allow(edge uint64) {
	if s.edge = max(s.edge, min(edge, s.q.from+MaxWindow)); s.Window() > s.window {
		s.entries = max(s.entries, entriesFor(s.Window(), s.granule))
	}
}

// Push adds bytes at the stream's end, n or as many as there is Room for, and returns how many. The
// caller keeps them until Ack frees them.
func (s *Sender) Push(n int) int {
	n = max(min(n, s.Room()), 0)
	s.end += uint64(n)
	return n
}

// Fin ends the stream after what was pushed. Calling it again changes nothing.
func (s *Sender) Fin() { s.fin = true }

// Ack records the peer's acknowledgement of everything below off, and returns the offset below
// which the caller need not keep bytes any more. One below an earlier one is normal, since carriers
// overtake each other, and changes nothing. One beyond what was sent is an ErrProtocol.
func (s *Sender) Ack(off uint64) (free uint64, err error) {
	if off > s.q.to {
		return s.free(), fmt.Errorf("resume: acknowledgement of %d, but only %d was sent: %w", off, s.q.to, ErrProtocol)
	}
	for s.q.from < off {
		owner, n := s.q.trim(off)
		if owner == None {
			s.lost -= n
		} else {
			c := s.find(owner)
			c.inFlight -= n
			c.acked += n
		}
	}
	return s.free(), nil
}

func (s *Sender) free() uint64 { return min(s.q.from, s.end) }

// limit returns the offset after everything there is to send.
func (s *Sender) limit() uint64 {
	if s.fin {
		return s.end + 1
	}
	return s.end
}

// Sendable reports whether there is something to write: lost or new bytes or the fin, for any
// carrier that is given data.
func (s *Sender) Sendable() bool { return s.lost > 0 || s.q.to < s.limit() }

// Finished reports whether the peer has acknowledged everything and the fin.
func (s *Sender) Finished() bool { return s.fin && s.q.from > s.end }

// End returns how many bytes were pushed: the offset of the next one.
func (s *Sender) End() uint64 { return s.end }

// Acked returns the highest acknowledgement. The fin counts as one byte.
func (s *Sender) Acked() uint64 { return s.q.from }

// First returns the carrier of the first byte that is not acknowledged; None if there is no such
// byte, or it waits to be sent again.
func (s *Sender) First() Carrier {
	if s.q.len() == 0 {
		return None
	}
	return s.q.list[s.q.head].owner
}

// Sent returns the offset after everything that was sent at least once. The fin counts as one byte.
func (s *Sender) Sent() uint64 { return s.q.to }

// Lost returns how many bytes wait to be sent again. The fin counts as one.
func (s *Sender) Lost() uint64 { return s.lost }

// Resent returns how many bytes were sent again so far. The fin counts as one.
func (s *Sender) Resent() uint64 { return s.resent }
