package limit

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// oracle is Places without any structure: all places in the order in which they were taken.
type oracle struct {
	total, perKey int
	places        []taken
}

type taken struct{ key, id int }

func (o *oracle) count(key int) (n int) {
	for _, p := range o.places {
		if p.key == key {
			n++
		}
	}
	return n
}

func (o *oracle) enter(key, id int) (ok bool, evicted int) {
	if o.count(key) >= o.perKey {
		return false, -1
	}
	evicted = -1
	if len(o.places) >= o.total {
		victim, most := -1, o.count(key)
		for i, p := range o.places { // the oldest of those with the most
			if o.count(p.key) > most {
				victim, most = i, o.count(p.key)
			}
		}
		if victim < 0 {
			return false, -1
		}
		evicted = o.places[victim].id
		o.places = slices.Delete(o.places, victim, victim+1)
	}
	o.places = append(o.places, taken{key, id})
	return true, evicted
}

func (o *oracle) leave(id int) bool {
	i := slices.IndexFunc(o.places, func(p taken) bool { return p.id == id })
	if i < 0 {
		return false
	}
	o.places = slices.Delete(o.places, i, i+1)
	return true
}

func TestPlacesAgainstOracle(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		o := &oracle{total: 1 + rng.IntN(12), perKey: 1 + rng.IntN(8)}
		p := NewPlaces[int](Bounds{Total: o.total, PerKey: o.perKey})
		held := map[int]*Place[int]{}
		for id := range 400 {
			if rng.IntN(3) == 0 && len(held) > 0 {
				old := rng.IntN(id)
				if place := held[old]; place != nil {
					if got, want := place.Leave(), o.leave(old); got != want {
						t.Fatalf("seed %d, step %d: left %v, the oracle %v", seed, id, got, want)
					}
					delete(held, old)
				}
				continue
			}
			key, evicted := rng.IntN(6), -1
			hadNone := o.count(key) == 0
			wantOK, wantEvicted := o.enter(key, id)
			for old := range held { // the argument of evict identifies the place
				held[old].evict = func(error) { evicted = old }
			}
			place, err := p.Enter(key, nil)
			if (err == nil) != wantOK || evicted != wantEvicted {
				t.Fatalf("seed %d, step %d: %v and evicted %d, the oracle %v and %d", seed, id, err, evicted, wantOK, wantEvicted)
			}
			if err != nil && hadNone && slices.ContainsFunc(o.places, func(a taken) bool { return o.count(a.key) > 1 }) {
				t.Fatalf("seed %d, step %d: a key without a place was refused: %v", seed, id, err)
			}
			if err == nil {
				held[id] = place
			}
			if s := p.Stats(); s.Used != len(o.places) || s.Used > o.total || s.Most > o.perKey || len(p.held) > o.total {
				t.Fatalf("seed %d, step %d: %+v with %d keys; the oracle has %d", seed, id, s, len(p.held), len(o.places))
			}
		}
	}
}

func TestCounterAgainstOracle(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		total, perKey := 1+rng.IntN(40), 1+rng.IntN(20)
		c := NewCounter[int](Bounds{Total: total, PerKey: perKey})
		held, sum := [5]int{}, 0
		for step := range 400 {
			key, n := rng.IntN(5), rng.IntN(6)
			if rng.IntN(2) == 0 {
				n = min(n, held[key])
				c.Give(key, n)
				held[key], sum = held[key]-n, sum-n
			} else {
				want := held[key]+n <= perKey && sum+n <= total
				if err := c.Take(key, n); (err == nil) != want {
					t.Fatalf("seed %d, step %d: %v, the oracle %v", seed, step, err, want)
				}
				if want {
					held[key], sum = held[key]+n, sum+n
				}
			}
			if s := c.Stats(); s.Used != sum || s.Most != slices.Max(held[:]) || c.Held(key) != held[key] {
				t.Fatalf("seed %d, step %d: %+v, the oracle %v", seed, step, s, held)
			}
		}
		for key, n := range held {
			c.Give(key, n)
		}
		if len(c.held) != 0 {
			t.Fatalf("seed %d: keys that hold nothing are kept: %v", seed, c.held)
		}
	}
}

func TestRefusalsNameTheLimit(t *testing.T) {
	c := NewCounter[string](Bounds{What: "registered processes", Total: 3, PerKey: 2, TotalSetting: "limits.processes", KeySetting: "limits.processes_per_node"})
	c.Take("n1", 2)
	for key, want := range map[string]string{
		"n1": "the limit of 2 registered processes for n1 is reached (limits.processes_per_node)",
		"n2": "the limit of 3 registered processes for all together is reached (limits.processes)",
	} {
		err := c.Take(key, 2)
		if !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	p := NewPlaces[string](Bounds{What: "silent connections", Total: 2, TotalSetting: "limits.half_open"})
	var why error
	p.Enter("a", func(err error) { why = err })
	p.Enter("a", nil)
	if _, err := p.Enter("b", nil); err != nil {
		t.Error(err)
	}
	if want := "the limit of 2 silent connections (limits.half_open) is reached; to make room, the oldest of a, which has the most, is closed"; why == nil || !strings.Contains(why.Error(), want) {
		t.Errorf("evicted with %v; want %q", why, want)
	}
}

func TestGiveMoreThanTaken(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	NewCounter[int](Bounds{}).Give(1, 1)
}
