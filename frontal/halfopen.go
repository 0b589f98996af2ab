package frontal

import (
	"net"

	"github.com/isthmus-grid/isthmus/internal/limit/accept"
)

// halfOpen are the connections that have not shown yet who they are, by the
// port to which they came: a flood from outside is none for the site's nodes.
type halfOpen struct{ control, nodes, outside *accept.HalfOpen }

func (f *Frontal) newHalfOpen(l Limits) halfOpen {
	data := func(from net.Addr, err error) {
		f.mu.Lock()
		f.links.refused++
		f.mu.Unlock()
		f.auditRefusal(from.String(), "data-overloaded", err)
	}
	return halfOpen{
		control: accept.NewHalfOpen(l.halfOpen("control connections that have not shown who they are"), func(from net.Addr, err error) {
			f.auditRefusal(from.String(), "session", err)
		}),
		nodes:   accept.NewHalfOpen(l.halfOpen("data connections of nodes whose first frame has not come"), data),
		outside: accept.NewHalfOpen(l.halfOpen("data connections from outside whose first frame has not come"), data),
	}
}

func (h halfOpen) setMax(l Limits) {
	for _, port := range []*accept.HalfOpen{h.control, h.nodes, h.outside} {
		port.SetMax(l.HalfOpen, l.HalfOpenPerSource)
	}
}
