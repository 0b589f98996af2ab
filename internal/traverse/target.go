package traverse

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// again is how long a duplicate is taken for one. What comes later was sent
// again by a kernel whose timer ran out, because an earlier segment was lost.
const again = 900 * time.Millisecond

// A conversation is the target's part in one connection: which segments to send
// after which was seen. It is a state machine without clock and socket.
//
//	start:    [opener outward]  SYN to the local kernel
//	          kernel's SYN/ACK leaves  ->  answered; [echo outward]
//	          client's SYN/ACK comes   ->  [finish to the local kernel]
//
// in brackets what only TravAck (opener) and TravEcho (echo, finish) do.
type conversation struct {
	level Level
	syn   Segment // as injected: from the client's outside address to the local listener

	answered bool      // the kernel has answered
	isn      uint32    // of that answer
	echoed   time.Time // the latest echo
	finished time.Time // the latest finish
}

// newConversation checks what is to be injected.
func newConversation(level Level, syn Segment, source, target netip.AddrPort) (*conversation, error) {
	src, dst := source.Addr().Unmap(), target.Addr().Unmap()
	switch {
	case level < Trav || level > TravEcho:
		return nil, fmt.Errorf("unknown %v", level)
	case !syn.is(flagSYN):
		return nil, fmt.Errorf("%w: the carried segment has flags %#02x and is no bare SYN", overlay.ErrForbidden, syn.Flags)
	case !src.Is4() || !dst.Is4():
		return nil, fmt.Errorf("%w: from %v to %v", ErrUnsupported, source, target)
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

// start returns the first segments to send.
func (c *conversation) start() []Segment {
	if c.level == TravAck {
		return []Segment{opener(c.syn), c.syn}
	}
	return []Segment{c.syn}
}

// step takes a segment of the connection that left (outgoing) or reached this
// host, and returns what to send.
func (c *conversation) step(now time.Time, s Segment, outgoing bool) []Segment {
	if !s.is(flagSYN | flagACK) {
		return nil
	}
	if outgoing && s.Ack == c.syn.Seq+1 {
		fresh := !c.answered || s.Seq != c.isn // a listener may have been replaced
		c.answered, c.isn = true, s.Seq
		if c.level == TravEcho && (fresh || now.Sub(c.echoed) >= again) {
			c.echoed = now
			return []Segment{echo(s)}
		}
	}
	if !outgoing && c.level == TravEcho && c.answered && s.Seq == c.syn.Seq && s.Ack == c.isn+1 && now.Sub(c.finished) >= again {
		c.finished = now
		return []Segment{finish(s)}
	}
	return nil
}
