package control

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/rtt"
)

// How long a session tolerates silence while a call, or yamux's keepalive, waits for an answer. The times that depend on the
// path follow its round trip (package rtt); these are added to them, or are the least.
const (
	firstDoubt = 500 * time.Millisecond // until the peer is pinged, where nothing is known of the path; see silence.first
	lastDoubt  = 2 * time.Second        // the same, for calls that have been waiting for long; at least

	// answerTime is the time in which a peer whose kernel has received the ping must answer, at least. A
	// goroutine that takes no lock answers, so that only a process that does not run for so long
	// fails: one that is stopped, or whose machine hangs.
	answerTime = 2500 * time.Millisecond

	// onTime is the largest delay of a timer that is normal on a machine that is not overloaded.
	onTime = 100 * time.Millisecond

	// longWord is the least time for data to arrive after a ping over a Resilient connection, which does not reveal what
	// the other end's kernel has received.
	longWord = 5 * time.Second
)

// AskBrokerIdle is DialConfig.AskIdle of a session with a broker. A daemon with sessions to two
// brokers sends everything to both, and so soon detects when either of them stops.
const AskBrokerIdle = time.Second

// pulse records when the peer of a session was last heard from, and how many calls wait for its
// answers. Times are since the start of the session.
//
// Only data from the peer shows that it is alive. An acknowledgement by its kernel does not: the
// kernel acknowledges for a process that is stopped, too. It only shows that the path works; a ping
// queued behind much data may take long on it. A peer that is too busy for calls still answers the
// ping (yamux's), since a new session would cost it more than the answer. Time in which this
// process did not run, and could not receive, does not count against the peer.
type pulse struct {
	begun  time.Time
	sent   func() sendState
	read   atomic.Int64  // time of the last byte received
	pinged atomic.Uint64 // total just after the latest ping since the peer was to be pinged; 0 before
	wake   chan struct{} // holds a value when the next check must be earlier than planned

	mu   sync.Mutex    // guards the fields below
	next time.Duration // time of the next check
	silence
}

// sendState is what this host's kernel knows of the data sent on a connection. What is unknown is 0.
type sendState struct {
	acked uint64       // bytes that the peer's kernel has acknowledged
	total uint64       // bytes written, counted from the same start
	path  rtt.Estimate // of acknowledgements

	segments, repeated uint64 // that were sent, and sent again
}

// newPulse returns the pulse of a session on conn. The peer is also pinged after idle without a
// call; 0 leaves that to yamux's keepalive.
func newPulse(conn net.Conn, idle time.Duration) *pulse {
	p := &pulse{begun: time.Now(), sent: sentOn(conn), wake: make(chan struct{}, 1)}
	p.idle = idle
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if _, ok := conn.(interface{ Resilient() }); ok {
		p.word = longWord
	}
	return p
}

// Resilient is a connection, such as a link's, that itself detects and replaces a dead path, so that
// a session on it should not give up quickly.
type Resilient struct{ net.Conn }

// Resilient marks any type of connection as Resilient.
func (Resilient) Resilient() {}

// call records a call; end records its end, and may be called repeatedly.
func (p *pulse) call() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Since(p.begun)
	p.begin(now, p.sign())
	if p.next > now+p.first() {
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
	s, pinged := p.sent(), p.pinged.Load()
	return sign{time.Duration(p.read.Load()), s, pinged > 0 && s.acked >= pinged}
}

// took records the time until a ping was answered.
func (p *pulse) took(trip time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trip = p.trip.Add(trip)
}

// bound returns after how long a call has an answer, unless the peer is busy, or the session has ended.
func (p *pulse) bound() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteSign(time.Since(p.begun), p.sign())
	return p.first() + p.last() + p.answer()
}

// SilentError means that a session was ended because its peer stopped answering.
type SilentError struct {
	For   time.Duration // since the peer was heard, or had something to answer
	Alive bool          // its kernel still acknowledged data
}

// Error implements error.
func (e *SilentError) Error() string {
	silent := e.For.Round(100 * time.Millisecond)
	if e.Alive {
		return fmt.Sprintf("nothing received for %v, although the kernel there has acknowledged a ping: the process is stopped, or is not scheduled", silent)
	}
	return fmt.Sprintf("nothing received for %v, not even an answer to a ping", silent)
}

// silent returns the error of a session that is being ended.
func (p *pulse) silent() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.heard
	if p.calls > 0 {
		from = max(p.heard, p.since)
	}
	return &SilentError{time.Since(p.begun) - from, p.reached}
}

// look returns what to do now, and when to check again, unless wake requires it earlier.
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

// pulseConn reports received data to a pulse.
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

// Write records the positions of yamux's pings in the sent data. It belongs to the session's
// sender, which writes a header separately unless it is of data.
func (c pulseConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if isPing(b) && err == nil {
		c.pulse.pinged.Store(c.pulse.sent().total)
	}
	return n, err
}

// sign is the evidence about the peer at some time.
type sign struct {
	read time.Duration // when data last arrived
	sendState
	reached bool // the latest ping is among the bytes acknowledged
}

// verdict is the reaction to a silence.
type verdict uint8

const (
	bear verdict = iota
	ask          // ping the peer
	part         // end the session
)

// silence is the decision logic of a pulse, without its clock.
type silence struct {
	calls int           // in flight
	since time.Duration // when the first call began since the peer was heard
	heard time.Duration // when data last arrived, as of the last check
	acked uint64        // as of the last check
	word  time.Duration // for data to arrive after a ping, at least; 0: as the path requires
	idle  time.Duration // until the peer is pinged without a call; 0: after yamux's answer is overdue

	latest sendState
	trip   rtt.Estimate // of pings: also beyond an HTTP proxy, whose kernel acknowledges

	// Valid while doubt.
	doubt   bool
	asked   time.Duration // when the peer was pinged, or when the ping was last seen to progress
	reached bool          // its kernel has received the ping
}

// slept accounts for judge being called late: for that long this process did not run, and data from
// the peer may still be unread. That time does not count, and the reading goroutine gets some more
// time to run as well. (In a process that never runs in time, yamux detects a dead peer.)
func (s *silence) slept(now time.Duration, sg sign, late time.Duration) {
	if late < onTime {
		return
	}
	s.noteSign(now, sg) // before asked changes
	s.heard, s.since = min(s.heard+late, now), min(s.since+late, now)
	if s.doubt {
		s.asked += late + onTime
	}
}

// begin records the start of a call.
func (s *silence) begin(now time.Duration, sg sign) {
	s.noteSign(now, sg)
	if s.heard >= s.since {
		s.since = now
	}
	s.calls++
}

// noteSign records evidence. The time of an acknowledgement is unknown, except that it is not after
// now.
func (s *silence) noteSign(now time.Duration, sg sign) {
	s.heard, s.latest = max(s.heard, sg.read), sg.sendState
	switch {
	case !s.doubt:
	case s.heard > s.asked:
		s.doubt = false
	case sg.reached:
		s.reached = true
	case sg.acked != s.acked: // the ping is queued behind other data, which progresses
		s.asked = now
	}
	s.acked = sg.acked
}

// judge returns what to do now, and after how long to judge again.
func (s *silence) judge(now time.Duration, sg sign) (verdict, time.Duration) {
	s.noteSign(now, sg)
	word := s.last()
	if s.doubt {
		if s.reached {
			word = s.answer()
		}
		if left := s.asked + word - now; left > 0 {
			return bear, left
		}
		return part, word
	}
	due := s.heard + cmp.Or(s.idle, keepAlive+firstDoubt) // by then yamux has an answer, if nothing else
	if s.calls > 0 {
		due = min(due, max(s.heard, s.since)+min(max((now-s.since)/2, s.first()), max(lastDoubt, 2*s.first())))
	}
	if left := due - now; left > 0 {
		return bear, left
	}
	s.doubt, s.asked, s.reached = true, now, false
	return ask, word
}

// path returns what is known of the path to the peer's kernel or, without one, to the peer.
func (s *silence) path() rtt.Estimate {
	if s.latest.path.IsMeasured() {
		return s.latest.path
	}
	return s.trip
}

// first returns how long a call waits until the peer is pinged: what was lost is then sent again.
func (s *silence) first() time.Duration {
	if p := s.path(); p.IsMeasured() {
		return p.RTO(0)
	}
	return firstDoubt
}

// last returns how long the ping may go unacknowledged or, where the kernel says nothing of acknowledgements,
// unanswered.
func (s *silence) last() time.Duration {
	switch {
	case s.word > 0:
		return max(s.word, s.trip.Answer(1))
	case s.latest.path.IsMeasured():
		return s.latest.path.Silence(s.latest.segments, s.latest.repeated)
	}
	return max(s.trip.Answer(1), s.trip.RTO(2)) // the variation of a path that loses much is large
}

// answer returns how long a peer whose kernel has received the ping may take to answer: what it sends is lost as often.
func (s *silence) answer() time.Duration {
	return max(answerTime, s.last()+time.Second, s.path().Longer(s.trip).Answer(1))
}
