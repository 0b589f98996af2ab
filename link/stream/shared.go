package stream

import (
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/link/resume"
)

// This file implements streams that use several carriers at once.
//
// Each carrier is written by its own goroutine, and takes a piece whenever the kernel has taken the
// previous one: so each carries what it can, however unequal they are. Where several are free the
// weights decide which is next.
//
// What arrives on several carriers is read by a goroutine each, and Read takes it from the inbox:
// whichever socket a Read waited on, the next byte might arrive on another.

// piece bounds a frame where several carriers take turns, in bytes: what a carrier takes at a time,
// and so what the others may have to wait for.
const piece = 64 << 10

// frame returns what a free carrier writes next, if anything. When it is the turn of another
// carrier, that one is woken.
func (s *Stream) frame(c *Carrier) (resume.Frame, bool) {
	if !s.send.Shared() {
		return s.send.Next(c.id, c.frame)
	}
	if first := s.nextWriter(c); first != c {
		if first != nil {
			first.wake()
		}
		return resume.Frame{}, false
	}
	f, ok := s.send.Next(c.id, piece)
	s.shareOut()
	return f, ok
}

// nextWriter returns the carrier whose turn it is to write, among those that no goroutine is writing
// and the one given, or nil.
func (s *Stream) nextWriter(asks *Carrier) *Carrier {
	var ids [resume.MaxCarriers]resume.Carrier
	var free [resume.MaxCarriers]*Carrier
	n := 0
	for _, c := range s.carriers {
		if (!c.writing || c == asks) && !c.dead {
			ids[n], free[n] = c.id, c
			n++
		}
	}
	id, ok := s.send.Pick(ids[:n])
	for i := range n {
		if ok && ids[i] == id {
			return free[i]
		}
	}
	return nil
}

// shareOut wakes the carrier whose turn it is. When that has taken its piece, it wakes the next.
// Callers of Write do not write themselves, because one could block on a slow carrier while others
// are idle.
func (s *Stream) shareOut() {
	if c := s.nextWriter(nil); c != nil {
		c.wake()
	}
}

// unsent is how many bytes the kernel accepts for a carrier that shares with others, beyond what
// the path has room for now. What waits there is late when others are faster, and cannot be moved
// to them.
const unsent = 128 << 10

// reshare is called after a carrier's weight has changed, or a carrier has died.
func (s *Stream) reshare() {
	for _, c := range s.carriers {
		brief := s.send.Shared() && s.send.Uses(c.id)
		if brief == c.brief {
			continue
		}
		c.brief = brief
		c.boundUnsent()
	}
}

// SocketOf returns the TCP socket under a connection, or nil.
func SocketOf(c net.Conn) *net.TCPConn {
	for {
		switch v := c.(type) {
		case *net.TCPConn:
			return v
		case interface{ NetConn() net.Conn }:
			c = v.NetConn()
		default:
			return nil
		}
	}
}

// lately is for how many ticks a carrier counts as one on which data arrives.
const lately = 4

// spreads is called when data arrived on a carrier other than the lead so far, and reports whether
// it arrives on both. Then the stream is spread, until notice clears that.
func (s *Stream) spreads(lead *Carrier) bool {
	if !s.spread && (lead == nil || !s.serves(lead)) {
		return false
	}
	if !s.spread {
		s.spread = true
		for _, c := range s.carriers {
			if c.byRead {
				c.interrupt()
			}
			c.readOn()
		}
	}
	return true
}

// serves reports whether data arrives on a carrier.
func (s *Stream) serves(c *Carrier) bool {
	return c.served > 0 && s.ticks.Load()-c.served < lately
}

// load measures how busy a stream is.
type load struct {
	held     bool // at the last tick bytes waited for a carrier, possibly in its socket
	peerHeld bool // the peer reports the same for its side
	ticks    Load
	acked    uint64    // at the last tick
	at       time.Time // time of the last tick
	head     head      // where the acknowledgement stands
}

// Load holds counters since the stream began.
type Load struct {
	Sent     uint64 // bytes that the peer has acknowledged
	Received uint64 // bytes that arrived, in order
	Ticks    uint64 // calls of Watch
	Held     uint64 // those that found bytes, here or at the peer, waiting for a carrier to take them
	Short    uint64 // those of Held that a slowly reading process does not explain

	// What the carriers took while there was more to take, between two consecutive ticks that found
	// bytes waiting here: the quotient is their throughput.
	HeldBytes uint64
	HeldFor   time.Duration
}

// Load returns how busy the stream was.
func (s *Stream) Load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.load.ticks
	l.Sent, l.Received = s.send.Acked(), s.recv.Next()
	return l
}

// notice is this file's part of Watch.
func (s *Stream) notice() {
	underWay := s.send.End() - min(s.send.Acked(), s.send.End())
	wasHeld := s.load.held
	s.load.held = s.send.Sendable() || underWay > s.send.Window()/4*3 // sockets may accept a whole window
	serving := 0
	short := s.send.Sendable()
	for _, c := range s.carriers {
		s.load.held = s.load.held || c.from < c.to
		short = short || c.from < c.to
		if s.serves(c) {
			serving++
		}
	}
	s.load.measure(wasHeld, s.send.Acked(), time.Now())
	s.load.ticks.Ticks++
	if s.load.held || s.load.peerHeld && serving > 0 {
		s.load.ticks.Held++
	}
	if short || s.load.peerHeld && serving > 0 && s.waiting() == 0 {
		s.load.ticks.Short++
	}
	if s.spread && serving < 2 {
		s.spread = false
	}
}

// measure records at a tick what the peer has acknowledged.
func (l *load) measure(wasHeld bool, acked uint64, now time.Time) {
	if wasHeld && l.held && acked > l.acked {
		l.ticks.HeldBytes += acked - l.acked
		l.ticks.HeldFor += now.Sub(l.at)
	}
	l.acked, l.at = acked, now
}
