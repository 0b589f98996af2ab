package agree

import (
	"fmt"
	"hash/maphash"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// A search visits every reachable state of a world once.
type search struct {
	deaths int // how many members may die
	seen   map[[2]uint64]struct{}
	seeds  [2]maphash.Seed
	buf    []byte
}

func newSearch(deaths int) *search {
	return &search{deaths: deaths, seen: map[[2]uint64]struct{}{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// visit continues from w in every possible way.
func (s *search) visit(w *world) error {
	s.buf = w.state(s.buf[:0])
	id := [2]uint64{maphash.Bytes(s.seeds[0], s.buf), maphash.Bytes(s.seeds[1], s.buf)}
	if _, known := s.seen[id]; known {
		return nil
	}
	s.seen[id] = struct{}{}
	moved := false
	try := func(f func(*world) error) error {
		c := w.clone()
		err := f(c)
		if err == nil {
			err = s.visit(c)
		}
		if err != nil { // record what led to the error, last event first
			c = w.clone()
			c.record = true
			f(c)
			err = fmt.Errorf("%w\nafter %s", err, c.story())
		}
		return err
	}
	for r, m := range w.members {
		if !w.alive(r) {
			continue
		}
		if w.started(r) < w.goal && int(m.last.Seq) == w.started(r) {
			moved = true
			if err := try(func(c *world) error { return c.start(r) }); err != nil {
				return err
			}
		}
		for d := range w.dead.Minus(m.failed).Ranks() {
			if !w.hears(r, d) {
				continue
			}
			moved = true
			if err := try(func(c *world) error { return c.tell(r, d) }); err != nil {
				return err
			}
		}
		if w.dead.Len() < s.deaths {
			if err := try(func(c *world) error { c.crash(r); return nil }); err != nil {
				return err
			}
		}
	}
	for i := range w.net {
		if !w.deliverable(i) {
			continue
		}
		moved = true
		if err := try(func(c *world) error { return c.deliver(i) }); err != nil {
			return err
		}
	}
	if !moved {
		if err := w.finished(); err != nil {
			return err
		}
	}
	return nil
}

// Every order of starts, deliveries, deaths and their reports, for few members. Messages overtake
// each other, except where fifo keeps the number of states low. In shy worlds a death, even one
// before anything began, is reported as late as possible. Without the tag "system" there are up to
// three members: TestRandom samples the larger worlds.
func TestEveryInterleaving(t *testing.T) {
	for _, c := range []struct {
		size, goal, deaths int
		shape              string
		fifo, shy          bool
	}{
		{1, 2, 0, "binomial", false, false},
		{2, 2, 1, "binomial", false, false},
		{3, 1, 2, "binomial", false, false},
		{3, 1, 2, "chain", false, false},
		{3, 2, 2, "chain", false, false},
		{3, 2, 2, "chain", false, true},
		{3, 3, 2, "binomial", false, false},
		{3, 3, 2, "binomial", false, true},
		{4, 1, 3, "binomial", false, false},
		{4, 1, 3, "binomial", false, true},
		{4, 1, 3, "chain", false, false},
		{4, 1, 3, "chain", false, true},
		{4, 2, 3, "chain", true, false},
		{5, 1, 2, "chain", true, false},
		{5, 1, 2, "binomial", true, true},
	} {
		if c.size > 3 && !testload.Full() {
			continue
		}
		t.Run(fmt.Sprintf("%d-members-%d-agreements-%d-deaths-%s-shy-%v", c.size, c.goal, c.deaths, c.shape, c.shy), func(t *testing.T) {
			shape := binomial
			if c.shape == "chain" {
				shape = chain
			}
			w := newWorld(c.size, c.goal, shape)
			w.fifo, w.shy = c.fifo, c.shy
			s := newSearch(c.deaths)
			if err := s.visit(w); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states", len(s.seen))
		})
	}
}
