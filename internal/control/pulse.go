package control

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// How long a session's silence is borne while a call waits for its answer, or
// yamux's keepalive for its own.
const (
	firstDoubt = 500 * time.Millisecond // until the peer is asked whether it is there
	lastDoubt  = 2 * time.Second        // the same, for calls that have been waiting for long
	lastWord   = time.Second            // for the peer's kernel to acknowledge that, or anything to come back

	// answerTime is the time in which a peer whose kernel has what it was asked must
	// answer. A goroutine that needs no lock answers, so that only a process which does
	// not run for so long misses it: one that is stopped, or whose machine hangs.
	answerTime = 2500 * time.Millisecond

	// onTime is how much later than it was set a timer may ring on a machine that is
	// not busy.
	onTime = 100 * time.Millisecond

	// longWord is lastWord over a Mending connection, whose other end's kernel does
	// not tell what it has.
	longWord = 5 * time.Second
)

// AskBrokerIdle is DialConfig.AskIdle of a session with a broker. Those who have sessions
// with two brokers tell both everything, and so notice soon when either does not run.
const AskBrokerIdle = time.Second

// pulse knows when the peer of a session was heard from, and how many calls
// wait for its answers. Times are since the session began.
//
// A peer is alive when it sends something. That its kernel acknowledges something is
// not enough: the kernel does so for a process that is stopped. It only shows that the
// path is not dead, on which a question behind much data may be under way for long.
// One that is too busy for calls still answers the question (yamux's ping), since
// making a new session would cost it more than the answer. Nor is it blamed for time in
// which this process did not get to run, and could not have heard it.
type pulse struct {
	begun  time.Time
	sent   func() (acked, total uint64) // bytes that the peer's kernel acknowledged, and that this one was given; 0 where that is not known
	read   atomic.Int64                 // time of the last byte that came
	pinged atomic.Uint64                // total just after the latest ping since the peer was to be asked; 0 before
	wake   chan struct{}                // holds a value when it is to be looked sooner than was said

	mu   sync.Mutex    // guards the fields below
	next time.Duration // when it will be looked
	silence
}

// newPulse returns the pulse of a session on conn, whose peer is asked after idle without
// a call too; 0 leaves that to yamux's keepalive.
func newPulse(conn net.Conn, idle time.Duration) *pulse {
	p := &pulse{begun: time.Now(), sent: sentOn(conn), wake: make(chan struct{}, 1)}
	p.idle = idle
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

func (p *pulse) sign() sign {
	acked, _ := p.sent()
	pinged := p.pinged.Load()
	return sign{time.Duration(p.read.Load()), acked, pinged > 0 && acked >= pinged}
}

// SilentError says that a session was ended because its peer answered nothing any more.
type SilentError struct {
	For   time.Duration // since the peer was heard, or had something to answer
	Alive bool          // its kernel still acknowledged what it was sent
}

// Error implements error.
func (e *SilentError) Error() string {
	silent := e.For.Round(100 * time.Millisecond)
	if e.Alive {
		return fmt.Sprintf("nothing came from there for %v, though its kernel has acknowledged a ping: the process is stopped, or does not get to run", silent)
	}
	return fmt.Sprintf("nothing came from there for %v, not even an answer to a ping", silent)
}

// silent is the error of a session that is ended now.
func (p *pulse) silent() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.heard
	if p.calls > 0 {
		from = max(p.heard, p.since)
	}
	return &SilentError{time.Since(p.begun) - from, p.reached}
}

// look says what to do now, and when to look again, unless wake says sooner.
func (p *pulse) look() (verdict, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, sg := time.Since(p.begun), p.sign()
	if p.next > 0 {
		p.slept(now, sg, now-p.next)
	}
	v, wait := p.judge(now, sg)
	if v == ask {
		p.pinged.Store(0)
	}
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

// Write notes where in what is sent yamux's pings are. It belongs to the session's
// sender, which writes a header by itself unless it is of data.
func (c pulseConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if isPing(b) && err == nil {
		_, total := c.pulse.sent()
		c.pulse.pinged.Store(total)
	}
	return n, err
}

// sign is what is known of the peer at some time.
type sign struct {
	read    time.Duration // when something came last
	acked   uint64        // bytes that its kernel has acknowledged
	reached bool          // the latest ping is among them
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
	heard time.Duration // when something came last, as far as anybody looked
	acked uint64        // as at the last look
	word  time.Duration // for anything to come back when it was asked; 0: lastWord
	idle  time.Duration // until the peer is asked without a call; 0: after an answer to yamux was due

	// Valid while doubt.
	doubt   bool
	asked   time.Duration // when the peer was asked, or what it was asked was last seen to get on
	reached bool          // its kernel has what it was asked
}

// slept says by how much later than it wanted judge is called now: for so long this
// process did not get to run, and what the peer said meanwhile may still lie unread.
// That time does not count, and the reader has a moment to get to run as well. (A
// process that never runs in time leaves it to yamux to notice that a peer is dead.)
func (s *silence) slept(now time.Duration, sg sign, late time.Duration) {
	if late < onTime {
		return
	}
	s.noteSign(now, sg) // before asked moves on
	s.heard, s.since = min(s.heard+late, now), min(s.since+late, now)
	if s.doubt {
		s.asked += late + onTime
	}
}

// begin notes that a call begins.
func (s *silence) begin(now time.Duration, sg sign) {
	s.noteSign(now, sg)
	if s.heard >= s.since {
		s.since = now
	}
	s.calls++
}

// noteSign takes note of a sign. When an acknowledgement came is not known but
// that it has come by now.
func (s *silence) noteSign(now time.Duration, sg sign) {
	s.heard = max(s.heard, sg.read)
	switch {
	case !s.doubt:
	case s.heard > s.asked:
		s.doubt = false
	case sg.reached:
		s.reached = true
	case sg.acked != s.acked: // what was asked is behind other data, which gets on
		s.asked = now
	}
	s.acked = sg.acked
}

// judge says what to do now, and after how long to judge again.
func (s *silence) judge(now time.Duration, sg sign) (verdict, time.Duration) {
	s.noteSign(now, sg)
	word := cmp.Or(s.word, lastWord)
	if s.doubt {
		if s.reached {
			word = answerTime
		}
		if left := s.asked + word - now; left > 0 {
			return bear, left
		}
		return part, word
	}
	due := s.heard + cmp.Or(s.idle, keepAlive+firstDoubt) // in which yamux had an answer, if nothing else
	if s.calls > 0 {
		due = min(due, max(s.heard, s.since)+min(max((now-s.since)/2, firstDoubt), lastDoubt))
	}
	if left := due - now; left > 0 {
		return bear, left
	}
	s.doubt, s.asked, s.reached = true, now, false
	return ask, word
}
