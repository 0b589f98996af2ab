package stream

import (
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/link/resume"
)

// This file is about streams that use several carriers at once.
//
// Each is written by its own goroutine, and takes a piece whenever the kernel
// has taken the one before: so each carries what it can, be they as unequal
// as may be. Where several are free the weights say whose turn it is.
//
// What comes in on several carriers is read by a goroutine each, and Read takes
// it from the inbox: whichever of the sockets a Read waited at, the next byte
// might come on another.

// piece bounds a frame where several carriers take turns, in bytes: what a
// carrier takes at a time, and so what the others may have to wait for.
const piece = 64 << 10

// frame returns what a carrier that is free is to write next, if anything. When
// it is another's turn, that one is woken.
func (s *Stream) frame(c *Carrier) (resume.Frame, bool) {
	if !s.send.Shared() {
		return s.send.Next(c.id, c.frame)
	}
	if first := s.turnOf(c); first != c {
		if first != nil {
			first.wake()
		}
		return resume.Frame{}, false
	}
	f, ok := s.send.Next(c.id, piece)
	s.shareOut()
	return f, ok
}

// turnOf returns whose turn it is to write, of the carriers that nobody writes and
// one that asks, or nil: nobody's.
func (s *Stream) turnOf(asks *Carrier) *Carrier {
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

// shareOut wakes the carrier whose turn it is. When that has taken its piece, it
// wakes the next. Callers of Write write none themselves, lest they wait for a slow
// carrier while others are idle.
func (s *Stream) shareOut() {
	if c := s.turnOf(nil); c != nil {
		c.wake()
	}
}

// unsent is how many bytes the kernel takes for a carrier that shares with others,
// beyond what the path has room for now. What waits there is late when others are
// faster, and cannot be given to them.
const unsent = 128 << 10

// reshare is told that a carrier was given another weight, or has died.
func (s *Stream) reshare() {
	for _, c := range s.carriers {
		brief := s.send.Shared() && s.send.Uses(c.id)
		if brief == c.brief {
			continue
		}
		c.brief = brief
		most := 0
		if brief {
			most = unsent
		}
		boundUnsent(c.conn, most)
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

// lately is how many ticks a carrier counts as one on which data comes.
const lately = 4

// spreads is told that data came on another carrier than the lead so far, and
// reports whether it comes on both. Then the stream is spread, until notice
// finds otherwise.
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

// serves reports whether data comes on a carrier.
func (s *Stream) serves(c *Carrier) bool {
	return c.served > 0 && s.ticks.Load()-c.served < lately
}

// load is how busy a stream is.
type load struct {
	held     bool // at the last tick bytes waited for a carrier, be it in its socket
	peerHeld bool // the peer says so of its own
	ticks    Load
	acked    uint64    // at the last tick
	at       time.Time // when that was
}

// Load counts since the stream began.
type Load struct {
	Sent     uint64 // bytes that the peer has acknowledged
	Received uint64 // bytes that came in, in order
	Ticks    uint64 // calls of Watch
	Held     uint64 // how many of them found bytes, here or at the peer, that waited for a carrier to take them
	Short    uint64 // how many of those cannot be put down to a process that is slow to read

	// What the carriers took while there was more for them to take, between two
	// ticks in a row that found bytes waiting here: their quotient is what they carry.
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

// notice is what Watch does for this file.
func (s *Stream) notice() {
	underWay := s.send.End() - min(s.send.Acked(), s.send.End())
	wasHeld := s.load.held
	s.load.held = s.send.Sendable() || underWay > s.send.Window()/4*3 // a socket may take all of a window
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

// measure notes what the peer has acknowledged by now, at a tick.
func (l *load) measure(wasHeld bool, acked uint64, now time.Time) {
	if wasHeld && l.held && acked > l.acked {
		l.ticks.HeldBytes += acked - l.acked
		l.ticks.HeldFor += now.Sub(l.at)
	}
	l.acked, l.at = acked, now
}
