package control

import (
	"cmp"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// How long a session's silence is borne while a call waits for its answer, or
// yamux's keepalive for its own.
const (
	firstDoubt = 500 * time.Millisecond // until the peer is asked whether it is there
	lastDoubt  = 5 * time.Second        // the same, for calls that have been waiting for long
	lastWord   = time.Second            // for anything at all to come back then

	// onTime is how much later than it was set a timer may ring on a machine that is
	// not busy.
	onTime = 100 * time.Millisecond

	// longWord is lastWord over a Mending connection, whose other end answers only
	// when it gets to run: no kernel does for it.
	longWord = 5 * time.Second
)

// pulse knows when the peer of a session was heard from, and how many calls
// wait for its answers. Times are since the session began.
//
// A peer is alive when it sends something, or when its kernel acknowledges
// something: one that is too busy to answer is not to be cut off, since making
// a new session would cost it more than the answer. Nor is it blamed for time in
// which this process did not get to run, and could not have heard it.
type pulse struct {
	begun time.Time
	acks  func() uint64 // bytes that the peer's kernel acknowledged; always 0 where that is not known
	read  atomic.Int64  // time of the last byte that came
	wake  chan struct{} // holds a value when it is to be looked sooner than was said

	mu   sync.Mutex    // guards the fields below
	next time.Duration // when it will be looked
	silence
}

// newPulse returns the pulse of a session on conn.
func newPulse(conn net.Conn) *pulse {
	p := &pulse{begun: time.Now(), acks: ackedBy(conn), wake: make(chan struct{}, 1)}
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if _, ok := conn.(interface{ Mends() }); ok {
		p.word = longWord
	}
	return p
}

// Mending is a connection, such as a link's, that notices by itself when a path is
// dead and gets over it, so that a session on it need not be quick to give it up.
type Mending struct{ net.Conn }

// Mends marks any type of connection as such a one.
func (Mending) Mends() {}

// call notes a call, which end ends; end may be called often.
func (p *pulse) call() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Since(p.begun)
	p.begin(now, p.sign())
	if p.next > now+firstDoubt {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls--
	})
}

func (p *pulse) sign() sign { return sign{time.Duration(p.read.Load()), p.acks()} }

// look says what to do now, and when to look again, unless wake says sooner.
func (p *pulse) look() (verdict, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, sg := time.Since(p.begun), p.sign()
	if p.next > 0 {
		p.slept(now, sg, now-p.next)
	}
	v, wait := p.judge(now, sg)
	p.next = now + wait
	return v, wait
}

// pulseConn tells a pulse when something comes.
type pulseConn struct {
	net.Conn
	pulse *pulse
}

func (c pulseConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.pulse.read.Store(int64(time.Since(c.pulse.begun)))
	}
	return n, err
}

// sign is what is known of the peer at some time.
type sign struct {
	read  time.Duration // when something came last
	acked uint64        // bytes that its kernel has acknowledged
}

// verdict is what to do about a silence.
type verdict uint8

const (
	bear verdict = iota
	ask          // whether the peer is there
	part         // it is not
)

// silence is the judgement of a pulse without its clock.
type silence struct {
	calls int           // under way
	since time.Duration // when the first call began since the peer was heard
	heard time.Duration // the last sign of life, as far as anybody looked
	acked uint64        // as at the last look
	asked time.Duration // when the peer was asked; valid while doubt
	doubt bool
	word  time.Duration // for anything to come back when it was asked; 0: lastWord
}

// slept says by how much later than it wanted judge is called now: for so long this
// process did not get to run, and what the peer said meanwhile may still lie unread.
// That time does not count, and the reader has a moment to get to run as well. (A
// process that never runs in time leaves it to yamux to notice that a peer is dead.)
func (s *silence) slept(now time.Duration, sg sign, late time.Duration) {
	if late < onTime {
		return
	}
	s.hear(now, sg) // before asked moves on
	s.heard, s.since = min(s.heard+late, now), min(s.since+late, now)
	if s.doubt {
		s.asked += late + onTime
	}
}

// begin notes that a call begins.
func (s *silence) begin(now time.Duration, sg sign) {
	s.hear(now, sg)
	if s.heard >= s.since {
		s.since = now
	}
	s.calls++
}

// hear takes note of a sign. When an acknowledgement came is not known but
// that it has come by now.
func (s *silence) hear(now time.Duration, sg sign) {
	s.heard = max(s.heard, sg.read)
	if sg.acked != s.acked {
		s.heard, s.acked = now, sg.acked
	}
	if s.doubt && s.heard > s.asked {
		s.doubt = false
	}
}

// judge says what to do now, and after how long to judge again.
func (s *silence) judge(now time.Duration, sg sign) (verdict, time.Duration) {
	s.hear(now, sg)
	word := cmp.Or(s.word, lastWord)
	if s.doubt {
		if left := s.asked + word - now; left > 0 {
			return bear, left
		}
		return part, word
	}
	due := s.heard + keepAlive + firstDoubt // an answer to yamux, if nothing else
	if s.calls > 0 {
		due = min(due, max(s.heard, s.since)+min(max((now-s.since)/2, firstDoubt), lastDoubt))
	}
	if left := due - now; left > 0 {
		return bear, left
	}
	s.doubt, s.asked = true, now
	return ask, word
}
