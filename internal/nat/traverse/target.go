package traverse

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// again is for how long a repeated segment counts as a duplicate. A later one was retransmitted by
// a kernel whose timer expired, because an earlier segment was lost.
const again = 900 * time.Millisecond

// A conversation is the target's part in one connection: which segments to send after which was
// seen. It is a state machine without clock and socket.
//
//	start:    [opener outward]  SYN to the local kernel
//	          kernel's SYN/ACK leaves  ->  answered; [echo and the SYN/ACK outward]
//	          client's SYN/ACK arrives ->  [finish to the local kernel]
//	          client's SYN arrives     ->  [the SYN/ACK outward, again]
//
// in brackets what only TravAck (opener) and TravEcho (all others) do.
type conversation struct {
	level Level
	syn   Segment // as injected: from the client's outside address to the local listener

	answered bool    // the kernel has answered
	synack   Segment // the latest such answer

	// When each was last sent.
	echoed, finished, repeated time.Time
}

// newConversation checks what is to be injected.
func newConversation(level Level, syn Segment, source, target netip.AddrPort) (*conversation, error) {
	src, dst := source.Addr().Unmap(), target.Addr().Unmap()
	switch {
	case level < Trav || level > TravEcho:
		return nil, fmt.Errorf("unknown %v", level)
	case !syn.hasFlags(flagSYN):
		return nil, fmt.Errorf("%w: the carried segment has flags %#02x and is no bare SYN", overlay.ErrForbidden, syn.Flags)
	case sameVersion(src, dst) != nil:
		return nil, sameVersion(src, dst)
	case sameVersion(syn.Src.Addr(), src) != nil:
		return nil, fmt.Errorf("%w: the carried segment is from %v, and to be from %v", overlay.ErrForbidden, syn.Src, source)
	case !src.IsGlobalUnicast() || source.Port() == 0:
		return nil, fmt.Errorf("%w: the source %v is not an address of another host", overlay.ErrForbidden, source)
	case !dst.IsGlobalUnicast() || target.Port() == 0 || src == dst:
		return nil, fmt.Errorf("%w: the target %v is not a listener for other hosts", overlay.ErrForbidden, target)
	}
	syn = syn.Rewrite(netip.AddrPortFrom(src, source.Port()), netip.AddrPortFrom(dst, target.Port()))
	if level == TravEcho {
		syn.Flags &^= flagECE | flagCWR // a simultaneous open negotiates no ECN at the client
	}
	return &conversation{level: level, syn: syn}, nil
}

// sameVersion returns why no segment goes from one address to another, or nil.
func sameVersion(src, dst netip.Addr) error {
	if src.IsValid() && dst.IsValid() && src.Is4() == dst.Is4() {
		return nil
	}
	return fmt.Errorf("%w: %v and %v are not of the same version of IP", overlay.ErrUnreachable, src, dst)
}

// start returns the first segments to send.
func (c *conversation) start() []Segment {
	if c.level == TravAck {
		return []Segment{opener(c.syn), c.syn}
	}
	return []Segment{c.syn}
}

// step processes a segment of the connection that left (outgoing) or reached this host, and returns
// what to send.
func (c *conversation) step(now time.Time, s Segment, outgoing bool) []Segment {
	due := func(last *time.Time) bool {
		if c.level != TravEcho || now.Sub(*last) < again {
			return false
		}
		*last = now
		return true
	}
	switch {
	case outgoing && s.hasFlags(flagSYN|flagACK) && s.Ack == c.syn.Seq+1:
		if !c.answered || s.Seq != c.synack.Seq { // another listener may answer now
			c.echoed = time.Time{}
		}
		c.answered, c.synack = true, s
		if due(&c.echoed) {
			return []Segment{echo(s), s} // the copy is for the asker, see Watch.seen
		}
	case outgoing || !c.answered || s.Seq != c.syn.Seq:
	case s.hasFlags(flagSYN|flagACK) && s.Ack == c.synack.Seq+1:
		if due(&c.finished) {
			return []Segment{finish(s)}
		}
	case s.hasFlags(flagSYN):
		if due(&c.repeated) {
			return []Segment{c.synack}
		}
	}
	return nil
}
