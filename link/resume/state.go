package resume

import (
	"fmt"
	"strings"
)

// String returns the whole state in one line, for humans and tests.
func (s *Sender) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "acked %d sent %d end %d", s.q.from, s.q.to, s.end)
	if s.fin {
		b.WriteString(" fin")
	}
	fmt.Fprintf(&b, " window %d", s.Window())
	for i := s.q.head; i < len(s.q.list); i++ {
		if g := s.q.list[i]; g.owner == None {
			fmt.Fprintf(&b, "; [%d,%d) lost", s.q.start(i), g.end)
		} else {
			fmt.Fprintf(&b, "; [%d,%d) on %d", s.q.start(i), g.end, g.owner)
		}
	}
	for i := range s.carriers {
		switch c := &s.carriers[i]; {
		case c.draining:
			fmt.Fprintf(&b, "; carrier %d drains", c.id)
		case c.weight == 0:
			fmt.Fprintf(&b, "; carrier %d stands by", c.id)
		default:
			fmt.Fprintf(&b, "; carrier %d weighs %d", c.id, c.weight)
		}
	}
	return b.String()
}

// String returns the whole state in one line, for humans and tests.
func (r *Receiver) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "next %d", r.next)
	if r.fin {
		fmt.Fprintf(&b, " fin at %d", r.finAt)
	}
	fmt.Fprintf(&b, " window %d", r.limit()-r.next)
	for _, s := range r.stored {
		fmt.Fprintf(&b, "; [%d,%d) stored", s.start, s.end)
	}
	fmt.Fprintf(&b, "; told %d on %d", r.ackSent, r.ackSentOn)
	return b.String()
}
