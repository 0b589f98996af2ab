package replica

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// A search visits every reachable state of a world once, up to a number of states.
type search struct {
	crashes, suspicions int // how many processes may fail, and be suspected
	most                int // states
	seen                map[uint64]struct{}
	ends                int
	verdicts            [4]int // of all steps
}

// visit continues from w in every possible way.
func (s *search) visit(w *world, crashes, suspicions int) error {
	id := w.state()
	if _, known := s.seen[id]; known || len(s.seen) >= s.most {
		return nil
	}
	s.seen[id] = struct{}{}
	events := w.events()
	if len(events) == 0 {
		s.ends++
		if err := w.finished(); err != nil {
			return err
		}
	}
	for _, e := range events {
		if err := s.try(w, e, crashes, suspicions); err != nil {
			return err
		}
	}
	for _, seat := range w.vacant() {
		if err := s.try(w, event{joins, w.cfg.Seats() + w.joins, seat}, crashes, suspicions); err != nil {
			return err
		}
	}
	for q := range w.nodes {
		if crashes > 0 && w.canFail(q) {
			if err := s.try(w, event{fails, q, 0}, crashes-1, suspicions); err != nil {
				return err
			}
		}
		if suspicions > 0 && w.canFail(q) {
			if err := s.try(w, event{suspects, q, 0}, crashes, suspicions-1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *search) try(w *world, e event, crashes, suspicions int) error {
	c := w.clone(e.changes())
	err := c.happen(e)
	for v := range c.verdicts {
		s.verdicts[v] += c.verdicts[v] - w.verdicts[v]
	}
	if err == nil {
		err = s.visit(c, crashes, suspicions)
	}
	if err != nil { // record what led to the error, last event first
		c = w.clone(e.changes())
		c.record, c.trail = true, nil
		c.happen(e)
		err = fmt.Errorf("%w\nafter %s", err, c.story())
	}
	return err
}

// sampled is how many random orders of a program's events are played where not all are.
const sampled = 20

// sample plays some random orders of what happens to worlds that begin alike, with up to so many failures
// and suspicions.
func sample(t *testing.T, begin func() *world, crashes, suspicions int) {
	t.Helper()
	for seed := range uint64(sampled) {
		w := begin()
		if err := w.wander(rand.New(rand.NewPCG(seed, 15)), crashes, suspicions); err != nil {
			w = begin()
			w.record = true
			w.wander(rand.New(rand.NewPCG(seed, 15)), crashes, suspicions)
			t.Fatalf("seed %d: %v\n%s", seed, err, w.story())
		}
	}
}

// wander makes random things happen to w until nothing can but failures. Those come early and late alike.
func (w *world) wander(r *rand.Rand, crashes, suspicions int) error {
	odds := 1 + r.IntN(10)
	for {
		events := w.events()
		if len(events) == 0 {
			return w.finished()
		}
		e := events[r.IntN(len(events))]
		if seats := w.vacant(); len(seats) > 0 && r.IntN(3) == 0 {
			e = event{joins, w.cfg.Seats() + w.joins, seats[r.IntN(len(seats))]}
		} else if q := r.IntN(len(w.nodes)); crashes+suspicions > 0 && r.IntN(odds) == 0 && w.canFail(q) {
			if crashes > 0 && (suspicions == 0 || r.IntN(2) == 0) {
				e = event{fails, q, 0}
				crashes--
			} else {
				e = event{suspects, q, 0}
				suspicions--
			}
		}
		if err := w.happen(e); err != nil {
			return err
		}
	}
}

// The programs of the exhaustive model: small, each with one thing that may go wrong.
var (
	// A large message is overtaken by a small one of its stream.
	overtaken = []program{
		{
			{kind: sends, sends: []message{{1, 10, 1, true}, {1, 10, 1, false}}},
		},
		{
			{kind: receives, recvs: []want{{0, 10, 1}, {0, 10, 1}}},
		},
	}
	// Messages of any tag come in the order in which they were sent.
	anyTag = []program{
		{{kind: sends, sends: []message{{1, 10, 1, true}, {1, 10, 2, false}}}},
		{{kind: receives, recvs: []want{{0, 10, -1}, {0, 10, -1}}}},
	}
	// A schedule sends in another order in each replica.
	schedules = []program{
		{{kind: schedule, sends: []message{{1, 11, 1, true}, {1, 11, 2, false}}}},
		{{kind: receives, recvs: []want{{0, 11, 1}, {0, 11, 2}}}},
	}
	// What is sent depends on an outcome.
	chosen = []program{
		{{kind: choose}, {kind: sends, sends: []message{{1, 10, 1, false}}}},
		{{kind: receives, recvs: []want{{0, 10, 1}}}},
	}
	// Nothing but outcomes.
	decided     = []program{{{kind: choose}, {kind: choose}}}
	chosenTwice = []program{
		{{kind: choose}, {kind: sends, sends: []message{{1, 10, 1, false}}}, {kind: choose}, {kind: sends, sends: []message{{1, 10, 1, false}}}},
		{{kind: receives, recvs: []want{{0, 10, 1}, {0, 10, 1}}}},
	}
	// A receive from any source, and behind it one from one of the two.
	anySource = []program{
		{{kind: sends, sends: []message{{2, 10, 1, false}}}},
		{{kind: sends, sends: []message{{2, 10, 1, false}}}},
		{{kind: receives, recvs: []want{{-1, 10, 1}, {-1, 10, -1}}}},
	}
	anyThenOne = []program{
		{{kind: sends, sends: []message{{1, 10, 1, false}, {1, 10, 1, false}}}, {kind: receives, recvs: []want{{1, 10, 4}}}},
		{{kind: receives, recvs: []want{{-1, 10, -1}, {0, 10, 1}}}, {kind: sends, sends: []message{{0, 10, 4, false}}}},
	}
	// Synchronous sends, to receives that each replica posts at another time.
	synchronous = []program{
		{{kind: sends, synchronous: true, sends: []message{{1, 10, 1, true}, {1, 10, 2, false}}}},
		{{kind: choose}, {kind: receives, recvs: []want{{-1, 10, -1}}}, {kind: receives, recvs: []want{{0, 10, -1}}}},
	}
	// A context that one rank creates and another uses.
	created = []program{
		{{kind: create}, {kind: sends, sends: []message{{1, 10, 1, false}, {1, inNew, 1, false}}}},
		{{kind: receives, recvs: []want{{0, 10, 1}}}, {kind: receives, recvs: []want{{0, inNew, 1}}}},
	}
)

// maxStates returns up to how many states a search visits: 20000, with which 20 of 32 come to their end in
// a minute, as many as ISTHMUS_TEST_STATES says, or fewer where each takes long.
func maxStates(t *testing.T) int {
	text := os.Getenv("ISTHMUS_TEST_STATES")
	if text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("ISTHMUS_TEST_STATES is %q, want a number of states", text)
		}
		return n
	}
	return 20000
}

// Every order of steps, deliveries, failures and their reports, for small programs; without the tag "system" a few of them.
// Acknowledgements arrive at once; that they are late is played by batches that are not sent, and by the random programs.
func TestEveryInterleaving(t *testing.T) {
	for _, c := range []struct {
		name                string
		programs            []program
		replicas            int
		crashes, suspicions int
		ack, kept           int
		drains, eager       bool
	}{
		{"overtaken", overtaken, 2, 1, 0, 2, 1 << 20, false, true},
		{"anyTag", anyTag, 2, 1, 0, 1, 1 << 20, false, true},
		{"anyTag-suspected", anyTag, 2, 0, 1, 2, 1 << 20, false, true},
		{"blocked", anyTag, 2, 1, 0, 100, 200, true, true},
		{"schedules", schedules, 2, 1, 0, 1, 1 << 20, false, true},
		{"schedules-two", schedules, 2, 2, 0, 2, 1 << 20, false, true},
		{"chosen", chosen, 2, 2, 0, 1, 1 << 20, false, true},
		{"chosen-suspected", chosen, 2, 0, 1, 1, 1 << 20, false, true},
		{"chosenTwice", chosenTwice, 2, 1, 0, 2, 1 << 20, false, true},
		{"anyThenOne", anyThenOne, 2, 1, 0, 2, 1 << 20, false, true},
		{"anySource", anySource, 2, 1, 0, 2, 1 << 20, false, true},
		{"synchronous", synchronous, 2, 2, 0, 100, 1 << 20, false, true},
		{"synchronous-suspected", synchronous, 2, 0, 1, 100, 1 << 20, false, true},
		{"synchronous-3", synchronous, 3, 1, 0, 100, 1 << 20, false, true},
		{"created", created, 2, 1, 0, 2, 1 << 20, false, true},
		{"decided-3", decided, 3, 2, 0, 1, 1 << 20, false, true},
		{"decided-3-suspected", decided, 3, 0, 1, 1, 1 << 20, false, true},
		{"chosen-3", chosen, 3, 1, 0, 1, 1 << 20, false, true},
		{"schedules-3", schedules, 3, 1, 0, 2, 1 << 20, false, true},
	} {
		for _, table := range []Table{Parallel, Primary} {
			t.Run(fmt.Sprintf("%s-%v", c.name, table), func(t *testing.T) {
				cfg := Config{Layout: Layout{Ranks: len(c.programs), Replicas: c.replicas}, Table: table, MaxKept: c.kept, AckEvery: c.ack}
				begin := func() *world {
					w := newWorld(cfg, c.programs)
					w.drains, w.eager = c.drains, c.eager
					return w
				}
				if !testload.Full() {
					sample(t, begin, c.crashes, c.suspicions)
					return
				}
				most := maxStates(t) // where it cuts a search off, the log says so
				s := &search{crashes: c.crashes, suspicions: c.suspicions, seen: map[uint64]struct{}{}, most: most}
				err := s.visit(begin(), c.crashes, c.suspicions)
				t.Logf("%d states, %d ends, verdicts %v, cut off: %v", len(s.seen), s.ends, s.verdicts, len(s.seen) == most)
				if err != nil {
					t.Fatal(err)
				}
				if c.name == "overtaken" && len(s.seen) < most && (s.verdicts[Resumed] == 0 || s.verdicts[Duplicate] == 0) {
					t.Error("nothing was resumed, or no duplicate came")
				}
			})
		}
	}
}
