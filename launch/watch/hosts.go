package watch

import (
	"fmt"
	"slices"
	"sync"

	"github.com/isthmus-grid/isthmus/launch/gossip"
	"github.com/isthmus-grid/isthmus/overlay"
)

// hostList is the hosts of a job, which Admit extends. It is safe for concurrent use.
type hostList struct {
	mu    sync.Mutex
	order []overlay.NodeID
	all   map[overlay.NodeID]Host
	taken int // of order: those that take has returned
}

// add adds a host, at most gossip.MaxMembers in total. No host is ever removed.
func (l *hostList) add(h Host) error {
	if _, err := overlay.ParseNodeID(h.Node.Key()); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := l.all[h.Node]; twice {
		return fmt.Errorf("host %v is there twice", h.Node)
	}
	if len(l.order) >= gossip.MaxMembers {
		return fmt.Errorf("host %v is one more than %d", h.Node, gossip.MaxMembers)
	}
	if l.all == nil {
		l.all = map[overlay.NodeID]Host{}
	}
	l.all[h.Node] = h
	l.order = append(l.order, h.Node)
	return nil
}

func (l *hostList) find(node overlay.NodeID) (h Host, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, found = l.all[node]
	return h, found
}

func (l *hostList) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.order)
}

// take returns the hosts that were added since its last call, in order. The slice is the caller's.
func (l *hostList) take() []overlay.NodeID {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := slices.Clone(l.order[l.taken:])
	l.taken = len(l.order)
	return news
}
