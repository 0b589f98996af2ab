package resume

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// choices answers questions from a string of bytes, then always 0.
type choices []byte

func (c *choices) below(n int) int {
	v := 0
	for range 2 {
		v <<= 8
		if len(*c) > 0 {
			v |= int((*c)[0])
			*c = (*c)[1:]
		}
	}
	return v % n
}

// play runs a random life of a link, as the choices determine, to its end: many carriers with all
// kinds of weights, large and small frames, deaths and drains at any time. The world's oracle
// checks every step.
func play(c choices) (*world, error) {
	window := []int{1, 7, 100, 5000, 20000}[c.below(5)]
	granule := []int{1, 16, Granule}[c.below(3)]
	least := []int{1, granule}[c.below(2)] // of a frame's limit
	w := newWorld(window, granule)
	w.widest = uint64(3 * window)
	if c.below(4) == 0 { // store less than the sender's frames may need
		w.ends[0].r.ranges, w.ends[1].r.ranges = 2, 2
	}
	for len(c) > 0 {
		if err := step(w, &c, least); err != nil {
			return w, err
		}
		if err := bounded(w, granule, least); err != nil {
			return w, err
		}
	}
	for e := range w.ends {
		w.ends[e].s.Fin()
	}
	w.connect([2]uint32{1, 1})
	for range 10000 { // a fragmented receiver makes progress with every carrier
		err := w.settle(4096)
		if err == nil && w.served(0) && w.served(1) {
			break
		}
		if err != nil {
			return w, err
		}
		w.connect([2]uint32{1, 1})
	}
	return w, errors.Join(w.finished(0), w.finished(1))
}

// step makes one thing happen.
func step(w *world, c *choices, least int) error {
	e := c.below(2)
	n := &w.ends[e]
	if len(w.wires) == 0 || c.below(40) == 0 && len(w.wires) < 10 {
		weights := []uint32{0, 1, 3, 1000, MaxWeight}
		w.connect([2]uint32{weights[c.below(5)], weights[c.below(5)]})
		return nil
	}
	i := c.below(len(w.wires))
	l := &w.wires[i]
	what := c.below(100)
	switch {
	case what < 20:
		n.s.Push(1 + c.below([]int{4, 3000}[c.below(2)])) // tiny frames lead to many ranges
	case l.closed[e]:
	case what < 55:
		for range 1 + c.below(8) {
			if len(l.queue[e]) == 0 {
				break
			}
			wires := len(w.wires)
			if err := w.deliver(e, i); err != nil {
				return err
			}
			if len(w.wires) < wires {
				break
			}
		}
	case what < 80:
		_, err := w.write(e, i, least+c.below(2000))
		return err
	case what < 88:
		return pick(w, c, e, least)
	case what < 93:
		if l.up[e] && n.r.Due() > 0 {
			w.tell(e, i)
		}
	case what < 94:
		n.advertise(uint64(c.below(int(w.widest-n.r.window) + 1)))
	case what < 95:
		n.s.Drain(l.id)
	case what < 97:
		n.s.Weight(l.id, uint32(c.below(4)))
	case what < 98 && c.below(20) == 0:
		n.s.Fin()
	case what >= 98:
		return w.close(e, i)
	}
	return nil
}

// pick writes on the carrier that Pick chooses from all of them.
func pick(w *world, c *choices, e, least int) error {
	n := &w.ends[e]
	var ready []Carrier
	for i := range w.wires {
		ready = append(ready, w.wires[i].id)
	}
	id, ok := n.s.Pick(ready)
	if !ok {
		if n.s.Sendable() && w.served(e) && n.s.q.len() < n.s.entries {
			return fmt.Errorf("%v: Pick found none of %v", n.s, ready)
		}
		return nil
	}
	for i := range w.wires {
		if w.wires[i].id == id {
			wrote, err := w.write(e, i, least+c.below(5000))
			if err == nil && !wrote {
				return fmt.Errorf("%v: Pick chose %d, and there is nothing for it", n.s, id)
			}
			return err
		}
	}
	return nil
}

// bounded checks the memory bound of the package comment. The sender's holds if no frame is smaller
// than a granule: see Next.
func bounded(w *world, granule, least int) error {
	for e := range w.ends {
		s, r := w.ends[e].s, w.ends[e].r
		entries := 2*int(w.widest)/granule + 2*MaxCarriers + 1
		if least >= granule && (s.q.len() > entries || cap(s.q.list) > 4*entries) {
			return fmt.Errorf("end %d: %d entries in room for %d, at most %d", e, s.q.len(), cap(s.q.list), entries)
		}
		if len(r.stored) > entries || cap(r.stored) > 4*entries {
			return fmt.Errorf("end %d: %d ranges in room for %d, at most %d", e, len(r.stored), cap(r.stored), entries)
		}
		if s.End()-w.ends[e].free > w.widest || r.Stored() >= w.widest {
			return fmt.Errorf("end %d: %v\n%v: beyond the window", e, s, r)
		}
	}
	return nil
}

// life is a random string of choices.
func life(seed uint64, n int) choices {
	r := rand.New(rand.NewPCG(seed, 1))
	c := make(choices, n)
	for i := range c {
		c[i] = byte(r.Uint32())
	}
	return c
}

// TestRandom plays random lives, a thousand in full, in which every rare event must have happened. A failure
// names its seed.
func TestRandom(t *testing.T) {
	var pushed, resent, lostAtDeath, freedLost, carriers, fragmented uint64
	lives := uint64(150)
	if testload.Full() {
		lives = 1000
	}
	for seed := range lives {
		w, err := play(life(seed, 6000))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for e := range w.ends {
			n := &w.ends[e]
			pushed += n.s.End()
			resent += n.s.Resent()
			lostAtDeath += n.lostAtDeath
			freedLost += n.freedLost
		}
		carriers += uint64(w.births)
		fragmented += uint64(w.fragmented)
	}
	t.Logf("%d bytes, %d carriers; deaths left %d, of which %d were sent again and %d had come; %d carriers closed for fragmentation",
		pushed, carriers, lostAtDeath, resent, freedLost, fragmented)
	if resent == 0 || freedLost == 0 || fragmented == 0 {
		t.Error("something has never happened")
	}
}

// FuzzTwoSided lets the fuzzer choose the life.
func FuzzTwoSided(f *testing.F) {
	for seed := range uint64(20) {
		f.Add([]byte(life(seed, 3000)))
	}
	f.Fuzz(func(t *testing.T, c []byte) {
		if _, err := play(choices(c[:min(len(c), 1<<14)])); err != nil {
			t.Fatal(err)
		}
	})
}
