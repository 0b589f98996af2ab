package comm

import (
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// Failed returns the processes of c, world ranks of both sides, that are known
// to have failed, in the order in which this process learned of it.
func (c *Core) Failed() []int {
	return slices.DeleteFunc(c.Engine.Dead(), func(world int) bool { return !c.Contains(world) })
}

// FailedPeers returns the ranks of the failed processes that messages can name, ascending.
func (c *Core) FailedPeers() []int {
	var ranks []int
	for _, world := range c.Engine.Dead() {
		if rank := c.Peers.Rank(world); rank >= 0 {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// Acknowledge acknowledges the first n of Failed, but at least those acknowledged before, and
// returns their number.
func (c *Core) Acknowledge(n int) int {
	failed := c.Failed()
	c.mu.Lock()
	defer c.mu.Unlock()
	n = max(0, min(n, len(failed)))
	before := 0
	if acked := c.acked.Load(); acked != nil {
		before = len(*acked)
	}
	if n <= before {
		return before
	}
	acked := map[int]bool{}
	for _, world := range failed[:n] {
		acked[world] = true
	}
	c.acked.Store(&acked)
	return n
}

// Acknowledged reports whether the failure of a process, by world rank, is acknowledged.
func (c *Core) Acknowledged(world int) bool {
	acked := c.acked.Load()
	return acked != nil && (*acked)[world]
}

// Senders are the processes that point-to-point messages come from.
func (c *Core) Senders() engine.Group { return (*senders)(c) }

type senders Core

func (s *senders) Member(world int) bool       { return (*Core)(s).Member(world) }
func (s *senders) Whole() bool                 { return false }
func (s *senders) Acknowledged(world int) bool { return (*Core)(s).Acknowledged(world) }

// CollectiveGroup are the processes that a collective call needs.
func (c *Core) CollectiveGroup() engine.Group { return (*collectiveGroup)(c) }

type collectiveGroup Core

func (s *collectiveGroup) Member(world int) bool       { return (*Core)(s).Contains(world) }
func (s *collectiveGroup) Whole() bool                 { return true }
func (s *collectiveGroup) Acknowledged(world int) bool { return (*Core)(s).Acknowledged(world) }
