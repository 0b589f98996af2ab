package wan

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestHeap compares with sorting, including ids that wrap.
func TestHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var h dueHeap
		var all []packet
		for i := range r.IntN(200) {
			p := packet{due: time.Duration(r.IntN(40)), id: uint32(i - 50)}
			all = append(all, p)
			h.push(p)
			if r.IntN(4) == 0 {
				got := h.pop()
				least := 0
				for k := range all {
					if all[k].before(&all[least]) {
						least = k
					}
				}
				if got.id != all[least].id {
					t.Fatalf("popped %d, next due is %d", got.id, all[least].id)
				}
				all = slices.Delete(all, least, least+1)
			}
		}
		slices.SortStableFunc(all, func(a, b packet) int { return int(a.due - b.due) })
		for _, want := range all {
			if got := h.pop(); got.id != want.id {
				t.Fatalf("popped %d, want %d", got.id, want.id)
			}
		}
		if len(h) != 0 {
			t.Fatalf("%d left", len(h))
		}
	}
}

// TestWindow compares with a set of waiting ids: advance must stop exactly before the least of
// them.
func TestWindow(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		var w window
		var waiting []uint32
		next := uint32(0xffffff00) // the ids wrap
		last := next - 1
		for range 5000 {
			switch r.IntN(5) {
			case 0, 1:
				gap := 0
				if r.IntN(10) == 0 && w.ring != nil {
					gap = r.IntN(5)
				}
				next += uint32(gap)
				if skipped, ok := w.add(next); !ok || skipped != gap {
					t.Fatalf("seed %d: add %d: skipped %d, ok %v, want %d", seed, next, skipped, ok, gap)
				}
				waiting = append(waiting, next)
				last = next
				next++
			case 2, 3:
				if len(waiting) > 0 {
					k := r.IntN(min(len(waiting), 4))
					w.settle(waiting[k])
					waiting = slices.Delete(waiting, k, k+1)
				}
			case 4:
				got, ok := w.advance()
				want := last
				if len(waiting) > 0 {
					want = waiting[0] - 1
				}
				// A gap in front of a waiting id is settled with what precedes it.
				if ok && got != want {
					t.Fatalf("seed %d: advanced to %d, want %d", seed, got, want)
				}
				if len(waiting) > 0 && int32(w.base-waiting[0]) > 0 {
					t.Fatalf("seed %d: passed %d, which waits", seed, waiting[0])
				}
			}
		}
	}
}

func TestWindowRefusesIDsThatDoNotFollow(t *testing.T) {
	var w window
	w.add(10)
	for _, id := range []uint32{10, 9, 10 + windowMax, 10 + 1<<31} {
		if _, ok := w.add(id); ok {
			t.Errorf("%d after 10 is accepted", id)
		}
	}
	if skipped, ok := w.add(12); !ok || skipped != 1 {
		t.Errorf("12 after 10: skipped %d, ok %v", skipped, ok)
	}
	w.settle(99) // outside the window: nothing happens
	w.settle(10)
	if last, ok := w.advance(); !ok || last != 11 {
		t.Errorf("advanced to %d, %v; want 11", last, ok)
	}
}
