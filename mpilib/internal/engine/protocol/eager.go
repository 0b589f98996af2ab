package protocol

import "time"

const (
	// EagerShort is the eager limit on a short path, and how much of a larger message goes
	// eagerly there. Sending it takes about as long as a round trip.
	EagerShort = 64 << 10
	// MaxHead is how much of a large message is sent eagerly to a peer whose receives are
	// posted before the messages: enough to cover the round trip of the CTS, and little
	// enough not to delay other messages.
	MaxHead = 1 << 20
	// A path with a round trip longer than longRTT counts as long; assumedRate is its rate before that
	// was measured, in bytes a second. Both are checked again after pathCheckEvery messages, since links
	// change their paths.
	longRTT        = time.Millisecond
	assumedRate    = 125e6
	pathCheckEvery = 64
)

// eagerLimit is the eager limit of a path with that round trip and rate in bytes a second (0: not
// measured): twice the bandwidth-delay product, so that the CTS arrives before the path runs
// empty, and at most half of the credit.
func eagerLimit(rtt time.Duration, rate float64, credit int) int {
	if rtt <= longRTT {
		return EagerShort
	}
	if rate == 0 {
		rate = assumedRate
	}
	return max(EagerShort, int(min(2*rate*rtt.Seconds(), float64(credit/2))))
}

// PathDue reports whether SetPath is to be called before EagerSize.
func (p *Peer) PathDue() bool {
	p.eagerQueries++
	return (p.eagerQueries-1)%pathCheckEvery == 0
}

// SetPath sets the round-trip time and the rate, in bytes per second, of the path to the peer.
func (p *Peer) SetPath(rtt time.Duration, rate float64) {
	p.eagerSize = eagerLimit(rtt, rate, p.maxCredit)
}

// EagerSize returns the largest message to send eagerly over that path, in bytes.
func (p *Peer) EagerSize() int { return p.eagerSize }

// HeadSize returns how many bytes of a rendezvous message to send eagerly where the eager limit is
// less: 0 unless the peer's receives are posted in time.
func (p *Peer) HeadSize() int { return p.head }
