package checkpoint

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

var seeds = flag.Uint64("seeds", defaultSeeds(), "simulated worlds of TestWorlds")

func defaultSeeds() uint64 {
	if testload.Full() {
		return 1000
	}
	return 150
}

// world is tasks, and the messages between them: those of a pair arrive in order, after any time.
type world struct {
	rng     *rand.Rand
	places  []Place
	peers   []*peer
	stores  []*Store
	queues  map[[2]int][]message // by sender and receiver
	at      []uint64             // iterations of the tasks
	saved   map[int]map[uint64][][]byte
	lossy   bool            // pieces and their acknowledgements may get lost
	damaged map[*Store]bool // something in it was changed
	unaware [][]int         // by task: losses that it does not know of
	fetches int
	log     []string
}

func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 4))
	n := 2 + rng.IntN(7)
	w := &world{rng: rng, saved: map[int]map[uint64][][]byte{}, lossy: seed%4 == 3, damaged: map[*Store]bool{}, at: make([]uint64, n)}
	for task := range n {
		w.places = append(w.places, w.place())
		w.stores = append(w.stores, NewStore(100))
		w.saved[task] = map[uint64][][]byte{}
	}
	w.connect()
	return w
}

func (w *world) place() Place {
	return Place{Site: string(rune('a' + w.rng.IntN(3))), Node: fmt.Sprint(w.rng.IntN(3)), Power: float64(w.rng.IntN(4))}
}

func (w *world) logf(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

// connect makes new peers for all tasks, none of which is lost, with the stores that there are.
func (w *world) connect() {
	w.queues, w.peers, w.unaware = map[[2]int][]message{}, nil, make([][]int, len(w.places))
	for task := range w.places {
		p := newPeer(task, w.places, nil, w.stores[task])
		p.piece, p.window = 8, 24
		w.peers = append(w.peers, p)
	}
}

func (w *world) send(from int, out []envelope) {
	for _, e := range out {
		b := e.m.append(nil)
		m, err := parse(b) // a copy, as the receiver has
		if err != nil {
			panic(err)
		}
		pair := [2]int{from, e.to}
		if w.lossy && (m.kind == kindPut || m.kind == kindTaken) && w.rng.IntN(20) == 0 {
			continue
		}
		w.queues[pair] = append(w.queues[pair], m)
	}
}

// live returns the tasks that live, in order.
func (w *world) live() (all []int) {
	for task, at := range w.places {
		if !at.IsLost {
			all = append(all, task)
		}
	}
	return all
}

// save has a task iterate and save, as the owner of a peer does.
func (w *world) save(task int) {
	w.at[task] += 1 + w.rng.Uint64N(3)
	p := w.peers[task]
	holder, ok := p.target()
	if !ok {
		return
	}
	data := p.memory()
	for range w.rng.IntN(100) {
		data = append(data, byte(w.rng.Uint32()))
	}
	w.saved[task][w.at[task]] = append(w.saved[task][w.at[task]], bytes.Clone(data))
	w.logf("task %d saves iteration %d, %d bytes, at %d", task, w.at[task], len(data), holder)
	w.send(task, p.save(holder, identify(State{task, w.at[task], data}), data))
}

// deliver delivers a message of a random pair, and reports whether there was one.
func (w *world) deliver() bool {
	var pairs [][2]int
	for pair, q := range w.queues {
		if len(q) > 0 && !w.places[pair[1]].IsLost {
			pairs = append(pairs, pair)
		}
	}
	if len(pairs) == 0 {
		return false
	}
	slices.SortFunc(pairs, func(a, b [2]int) int { return (a[0]-b[0])*100 + a[1] - b[1] })
	pair := pairs[w.rng.IntN(len(pairs))]
	m := w.queues[pair][0]
	w.queues[pair] = w.queues[pair][1:]
	if slices.Contains(w.unaware[pair[1]], pair[0]) || !w.places[pair[0]].IsLost {
		w.send(pair[1], w.peers[pair[1]].receive(pair[0], m))
	}
	return true
}

// kill ends a task: what it sent last is lost, and the others learn it later.
func (w *world) kill(task int) {
	w.logf("task %d is lost", task)
	w.places[task].IsLost = true
	for pair, q := range w.queues {
		if pair[0] == task {
			w.queues[pair] = q[:w.rng.IntN(len(q)+1)]
		}
	}
	for _, other := range w.live() {
		w.unaware[other] = append(w.unaware[other], task)
	}
}

// learn has a task learn of a loss, after all that the lost one has sent it, and reports whether there was any.
func (w *world) learn() bool {
	for _, task := range w.live() {
		for i, lost := range w.unaware[task] {
			if len(w.queues[[2]int{lost, task}]) == 0 {
				w.unaware[task] = slices.Delete(w.unaware[task], i, i+1)
				w.send(task, w.peers[task].lost(lost))
				return true
			}
		}
	}
	return false
}

// damage changes a byte of a state that a task holds.
func (w *world) damage() {
	s := w.stores[w.rng.IntN(len(w.stores))]
	for task := range w.places {
		if h := s.held[task]; h != nil && len(h.data) > 0 {
			h.data[w.rng.IntN(len(h.data))] ^= 1
			w.damaged[s] = true
			return
		}
	}
}

// newest returns which iterations of a task live tasks hold, by holder, without those that are damaged.
func (w *world) newest(task int) map[int]uint64 {
	all := map[int]uint64{}
	for _, holder := range w.live() {
		if id, ok := w.stores[holder].newest(task); ok && !w.damaged[w.stores[holder]] {
			all[holder] = id.iteration
		}
	}
	return all
}

// fetch fetches the state of a task, while the others go on and some of them are lost.
func (w *world) fetch(by, task int) (State, error) {
	before := w.newest(task)
	w.fetches++
	ended, state, cause := false, State{}, error(nil)
	number, out := w.peers[by].fetch(task, func(s State, err error) { ended, state, cause = true, s, err })
	w.send(by, out)
	for !ended {
		switch roll := w.rng.IntN(40); {
		case roll == 0 && len(w.live()) > 1:
			if victim := w.live()[w.rng.IntN(len(w.live()))]; victim != by {
				w.kill(victim)
			}
		case roll < 6:
			if saver := w.live()[w.rng.IntN(len(w.live()))]; saver != task {
				w.save(saver)
			}
		case roll < 8:
			w.learn()
		default:
			if !w.deliver() && !w.learn() {
				return State{}, w.peers[by].abandon(number, errors.New("nothing moves"))
			}
		}
	}
	if cause == nil && !slices.ContainsFunc(w.saved[task][state.Iteration], func(b []byte) bool { return bytes.Equal(b, state.Data) }) {
		return state, fmt.Errorf("task %d never saved %+v", task, state)
	}
	for holder, iteration := range before {
		if !w.places[holder].IsLost && (cause != nil || state.Iteration < iteration) {
			return state, fmt.Errorf("task %d gets iteration %d, %v; holder %d has had %d", task, state.Iteration, cause, holder, iteration)
		}
	}
	return state, cause
}

// replace starts each lost task anew, at some place and with nothing in its store, and lets it fetch its state.
func (w *world) replace() error {
	var lost []int
	for task := range w.places {
		if w.places[task].IsLost {
			w.places[task] = w.place()
			w.stores[task] = NewStore(100)
			lost = append(lost, task)
		}
	}
	w.connect()
	for _, task := range lost {
		if w.places[task].IsLost {
			continue // again
		}
		state, err := w.fetch(task, task)
		if err != nil && !errors.Is(err, ErrNoState) {
			return err
		}
		w.logf("task %d goes on from iteration %d: %v", task, state.Iteration, err)
		w.at[task] = state.Iteration
	}
	return nil
}

func (w *world) run() error {
	for range 4 {
		for range 50 + w.rng.IntN(300) {
			switch roll := w.rng.IntN(100); {
			case roll == 0:
				if live := w.live(); len(live) > 1 && w.rng.IntN(3) == 0 {
					w.kill(live[w.rng.IntN(len(live))])
				}
			case roll == 1:
				if live := w.live(); w.rng.IntN(4) == 0 {
					if _, err := w.fetch(live[w.rng.IntN(len(live))], w.rng.IntN(len(w.places))); err != nil && !errors.Is(err, ErrNoState) {
						return err
					}
				}
			case roll == 2 && w.rng.IntN(20) == 0:
				w.damage()
			case roll < 20:
				live := w.live()
				w.save(live[w.rng.IntN(len(live))])
			case roll < 23:
				w.learn()
			default:
				w.deliver()
			}
		}
		if err := w.replace(); err != nil {
			return err
		}
	}
	return nil
}

// Whatever is late or lost: what a task gets is a state that it saved, whole, and no older than any that was whole at a
// task that lives; and Fetch ends.
func TestWorlds(t *testing.T) {
	fetches, kept := 0, uint64(0)
	for seed := range *seeds {
		w := newWorld(seed)
		if err := w.run(); err != nil {
			for _, line := range w.log {
				t.Log(line)
			}
			t.Fatalf("seed %d: %v", seed, err)
		}
		fetches += w.fetches
		for _, p := range w.peers {
			kept += p.counts.Kept
		}
	}
	if uint64(fetches) < *seeds || kept < *seeds {
		t.Errorf("only %d fetches and %d states in %d worlds", fetches, kept, *seeds)
	}
	t.Logf("%d fetches; %d states whole in the last part of the worlds", fetches, kept)
}
