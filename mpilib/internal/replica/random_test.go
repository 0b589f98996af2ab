package replica

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// randomPrograms returns programs of ranks that go through the same rounds.
func randomPrograms(r *rand.Rand, ranks int) []program {
	all := make([]program, ranks)
	add := func(rank int, o op) { all[rank] = append(all[rank], o) }
	for range 1 + r.IntN(5) {
		switch r.IntN(5) {
		case 0: // around a ring, tags in another order than they are received in
			many, tags := 1+r.IntN(5), 1+r.IntN(4)
			for rank := range ranks {
				var s []message
				var w []want
				for i := range many {
					s = append(s, message{(rank + 1) % ranks, 10, i % tags, i == 0 || r.IntN(3) == 0})
					w = append([]want{{(rank + ranks - 1) % ranks, 10, i % tags}}, w...)
				}
				add(rank, op{kind: sends, sends: s})
				add(rank, op{kind: receives, recvs: w})
			}
		case 1: // to one, which takes them as they come
			root, each := r.IntN(ranks), 1+r.IntN(2)
			var w []want
			for rank := range ranks {
				for i := range each {
					if rank != root {
						add(rank, op{kind: sends, sends: []message{{root, 12, i, r.IntN(3) == 0}}, synchronous: i > 0})
						w = append(w, want{-1, 12, -1})
					}
				}
			}
			add(root, op{kind: receives, recvs: w})
			for rank := range ranks {
				if rank != root {
					add(root, op{kind: sends, sends: []message{{rank, 10, 77, false}}})
					add(rank, op{kind: receives, recvs: []want{{root, 10, 77}}})
				}
			}
		case 2: // a collective's schedule
			for rank := range ranks {
				o := op{kind: schedule}
				i := op{kind: receives}
				for other := range ranks {
					if other != rank {
						for tag := range 2 {
							o.sends = append(o.sends, message{other, 11, tag, r.IntN(3) == 0})
							i.recvs = append(i.recvs, want{other, 11, tag})
						}
					}
				}
				add(rank, o)
				add(rank, i)
			}
		case 3: // and tell others
			rank := r.IntN(ranks)
			for range 1 + r.IntN(3) {
				add(rank, op{kind: choose})
				add(rank, op{kind: sends, sends: []message{{(rank + 1) % ranks, 14, 1, false}}, synchronous: rank == 0})
				add((rank+1)%ranks, op{kind: receives, recvs: []want{{rank, 14, 1}}})
			}
		case 4: // from any, and behind it from one
			root := r.IntN(ranks)
			other := (root + 1) % ranks
			add(other, op{kind: sends, sends: []message{{root, 13, 1, false}, {root, 13, 1, false}}, synchronous: root == 0})
			w := []want{{-1, 13, -1}, {other, 13, 1}}
			add(root, op{kind: receives, recvs: w})
		}
	}
	return all
}

// randomWorld returns a world of a seed.
func randomWorld(r *rand.Rand) *world {
	ranks := 2 + r.IntN(1+r.IntN(4))
	cfg := Config{Layout: Layout{Ranks: ranks, Replicas: 1 + r.IntN(3)}, Table: Table(r.IntN(2)), AckEvery: 1 + r.IntN(1<<r.IntN(7)), MaxKept: 1 << 20, MaxAhead: 1 + r.IntN(4)}
	if r.IntN(3) == 0 {
		cfg.MaxKept = 100 + r.IntN(1000)
	}
	return newWorld(cfg, randomPrograms(r, ranks))
}

// walk makes random things happen to w until nothing but failures can.
func walk(w *world, r *rand.Rand) error {
	odds := 3 + r.IntN(1<<r.IntN(9))
	weights := make([]int, len(w.nodes)) // some processes are slow, and some reports late
	for q := range weights {
		weights[q] = 1 + r.IntN(1<<r.IntN(6))
	}
	late := 1 + r.IntN(50)
	slow := event{kind: delivers, a: -1} // a link that seldom delivers anything, so that what it carries is overtaken by rounds
	if w.cfg.Spares > 0 {
		slow.a, slow.b = r.IntN(len(w.nodes)), r.IntN(len(w.nodes))
	}
	for {
		events := w.events()
		if len(events) == 0 {
			return w.finished()
		}
		var e event
		for {
			e = events[r.IntN(len(events))]
			if e == slow && len(events) > 1 && r.IntN(300) > 0 {
				continue
			}
			if r.IntN(weights[max(0, e.changes())]) == 0 && (e.kind != reports || r.IntN(late) == 0) {
				break
			}
		}
		if q := r.IntN(len(w.nodes)); r.IntN(odds) == 0 && w.canFail(q) {
			e = event{fails, q, 0}
			if r.IntN(3) == 0 {
				e.kind = suspects
			}
		}
		if w.cfg.Spares > 0 && r.IntN(10) == 0 {
			if seats := w.vacant(); len(seats) > 0 {
				e = event{joins, w.cfg.Seats() + w.joins, seats[r.IntN(len(seats))]}
			}
		}
		if err := w.happen(e); err != nil {
			return err
		}
	}
}

// Larger programs, up to 15 processes, any number of failures that leaves each rank a replica.
func TestRandom(t *testing.T) {
	worlds := 200
	if testload.Full() {
		worlds = 1500
	}
	var verdicts [4]int
	failed := 0
	for seed := range uint64(worlds) {
		one := func(record bool) (*world, error) {
			r := rand.New(rand.NewPCG(seed, 11))
			w := randomWorld(r)
			w.record = record
			return w, walk(w, r)
		}
		w, err := one(false)
		if err != nil {
			again, _ := one(true)
			t.Fatalf("seed %d, %v: %v\n%s", seed, fmt.Sprintf("%+v", w.cfg), err, again.story())
		}
		for v, n := range w.verdicts {
			verdicts[v] += n
		}
		for _, d := range w.dead {
			if d {
				failed++
			}
		}
	}
	t.Logf("%d failures; fresh, resumed, duplicate, stale: %v", failed, verdicts)
	for v, n := range verdicts {
		if n < 1+worlds/375 {
			t.Errorf("verdict %d only %d times", v, n)
		}
	}
}
