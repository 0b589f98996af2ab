package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/job/merge"
	"github.com/isthmus-grid/isthmus/internal/testload"
)

// A launcher prints what the processes of a world write. It reads them one line at a time, and learns of deaths at any time after
// them.
type launcher struct {
	rule    rule
	heard   [][]string // by process
	over    []bool     // by process: nothing more is heard of it
	dead    []bool     // by process: it counts as dead
	mergers []*merge.Merger
	printed []string // by rank
}

// A rule says what is printed.
type rule uint8

const (
	committed  rule = iota // package merge
	fromAhead              // a fault: the first that writes a line is printed
	fromAnyTwo             // likewise: a line that two have written
)

func newLauncher(l Layout, r rule) *launcher {
	a := &launcher{rule: r, heard: make([][]string, l.Size()), over: make([]bool, l.Size()), dead: make([]bool, l.Size()), printed: make([]string, l.Ranks)}
	for range l.Ranks {
		a.mergers = append(a.mergers, merge.New(l.Replicas))
	}
	return a
}

// events returns what the launcher can do next.
func (a *launcher) events(w *world) (all []event) {
	for q, n := range w.nodes {
		switch {
		case a.over[q]:
		case len(a.heard[q]) < len(n.lines) || n.left:
			all = append(all, event{reads, q, 0})
		}
		if !a.over[q] && !w.live(q) {
			all = append(all, event{learns, q, 0})
		}
	}
	return all
}

// change does one of them.
func (a *launcher) change(w *world, e event) error {
	q, n := e.a, w.nodes[e.a]
	m := a.mergers[w.cfg.Rank(q)]
	switch {
	case e.kind == learns:
		a.over[q], a.dead[q] = true, true
		m.End(w.cfg.Replica(q), true)
	case len(a.heard[q]) == len(n.lines):
		a.over[q] = true
		m.End(w.cfg.Replica(q), false)
	default:
		line := n.lines[len(a.heard[q])]
		a.heard[q] = append(slices.Clip(a.heard[q]), line)
		if err := m.Write(w.cfg.Replica(q), []byte(line+"\n")); err != nil {
			return err
		}
	}
	return a.print(w.cfg.Rank(q), w)
}

// print prints what is to be printed of a rank.
func (a *launcher) print(rank int, w *world) error {
	if a.rule != committed {
		for {
			line, ok := a.nextLine(rank, w.cfg.Layout)
			if !ok {
				return nil
			}
			a.printed[rank] += line + "\n"
		}
	}
	for {
		out, err := a.mergers[rank].Next()
		if err != nil || len(out) == 0 {
			return err
		}
		a.printed[rank] += string(out)
	}
}

// nextLine returns the next line of a rank by a rule that is a fault.
func (a *launcher) nextLine(rank int, l Layout) (line string, ok bool) {
	at, votes, live := strings.Count(a.printed[rank], "\n"), map[string]int{}, 0
	for q := range l.Holders(rank) {
		if a.rule == fromAnyTwo && a.dead[q] {
			continue
		}
		live++
		if at < len(a.heard[q]) {
			votes[a.heard[q][at]]++
		}
	}
	for q := range l.Holders(rank) {
		if at < len(a.heard[q]) && (a.rule == fromAhead || votes[a.heard[q][at]] >= min(2, live)) {
			return a.heard[q][at], true
		}
	}
	return "", false
}

// finished checks what was printed: of each rank what its live replicas wrote, and so that all ranks together tell one story, in which
// what was received was sent.
func (a *launcher) finished(w *world) error {
	for q, n := range w.nodes {
		if want := strings.Join(append(slices.Clone(n.lines), ""), "\n"); w.live(q) && a.printed[n.core.rank] != want {
			return fmt.Errorf("of rank %d was printed\n%sand process %d wrote\n%s", n.core.rank, a.printed[n.core.rank], q, want)
		}
	}
	for rank, text := range a.printed {
		for line := range strings.Lines(text) {
			var source, context, tag, nth int
			if k, _ := fmt.Sscanf(line, "%d.%d.%d#%d/", &source, &context, &tag, &nth); k == 4 && nth > 0 {
				if sent := fmt.Sprintf("to %d: %s", rank, line); !strings.Contains("\n"+a.printed[source], "\n"+sent) {
					return fmt.Errorf("rank %d received %sof which rank %d printed\n%s", rank, line, source, a.printed[source])
				}
			}
		}
	}
	return nil
}

// sentLine is what a program writes when it sends a message.
func sentLine(to int, p payload) string { return fmt.Sprintf("to %d: %v/%x", to, p, p.history) }

// The programs of which the output is looked at: each goes on from what one replica decides.
var (
	// What is sent is forwarded.
	forwarded = []program{
		{{kind: choose}, {kind: sends, sends: []message{{1, 10, 1, false}}}},
		{{kind: receives, recvs: []want{{0, 10, 1}}}, {kind: sends, sends: []message{{2, 10, 1, true}}}},
		{{kind: receives, recvs: []want{{1, 10, 1}}}},
	}
	// Two of three would decide the same.
	alike = []program{{{kind: choose, alike: true}, {kind: choose, alike: true}}}
	// Whether something is sent depends on an outcome.
	sometimes = []program{
		{{kind: choose}, {kind: sends, sends: []message{{1, 10, 1, false}}, only: "of 0"}, {kind: sends, sends: []message{{1, 10, 2, false}}}},
		{{kind: receives, recvs: []want{{0, 10, -1}}}},
	}
	// It is all that would be sent to that rank.
	perhaps = []program{
		{{kind: choose}, {kind: sends, sends: []message{{1, 10, 1, false}}, only: "of 0"}},
		{{kind: receives, recvs: []want{{-1, 10, 1}}}},
		{{kind: sends, sends: []message{{1, 10, 1, false}}}},
	}
)

// A story is a world whose output is looked at.
type story struct {
	name     string
	programs []program
	replicas int
	crashes  int
	claim    claimed
}

// claimed says whether a program is said to send the same whatever is decided, and is.
type claimed uint8

const (
	nothing claimed = iota
	rightly
	falsely
)

var stories = []story{
	{"decided", decided, 2, 1, nothing},
	{"decided-3", decided, 3, 2, nothing},
	{"decided-3-free", decided, 3, 2, rightly},
	{"alike-3", alike, 3, 2, nothing},
	{"chosenTwice", chosenTwice, 2, 2, nothing},
	{"chosen-3", chosen, 3, 2, nothing},
	{"anyThenOne", anyThenOne, 2, 1, nothing},
	{"anySource", anySource, 2, 2, nothing},
	{"anySource-free", anySource, 2, 2, rightly},
	{"overtaken", overtaken, 2, 2, nothing},
	{"synchronous", synchronous, 2, 2, nothing},
	{"forwarded", forwarded, 2, 2, nothing},
	{"chosen-misused", chosen, 2, 2, falsely},
	{"chosen-3-misused", chosen, 3, 3, falsely},
	{"forwarded-misused", forwarded, 2, 3, falsely},
	{"sometimes-misused", sometimes, 2, 2, falsely},
	{"perhaps-misused", perhaps, 2, 2, falsely},
}

// begin returns the world.
func (s story) begin(table Table, ack int) *world {
	w := newWorld(Config{
		Layout: Layout{Ranks: len(s.programs), Replicas: s.replicas}, Table: table, MaxKept: 1 << 20, AckEvery: ack, SendDeterministic: s.claim != nothing,
	}, s.programs)
	w.misuse, w.launcher = s.claim == falsely, newLauncher(w.cfg.Layout, committed)
	return w
}

// play plays random orders of what happens until one goes wrong.
func (s story) play(orders int, change func(*world)) (text string, wrong error) {
	for seed := range uint64(orders) {
		for _, table := range []Table{Parallel, Primary} {
			begin := func(record bool) (*world, error) {
				w := s.begin(table, []int{1, 2, 100}[seed%3])
				suspicions := int(seed) % 2
				w.record, w.leaves = record, suspicions == 0 // who is suspected may be behind those that have ended, and not know it
				change(w)
				return w, w.wander(rand.New(rand.NewPCG(seed, 16)), s.crashes, suspicions)
			}
			if _, err := begin(false); err != nil {
				w, _ := begin(true)
				return w.story(), fmt.Errorf("%v, seed %d: %w", table, seed, err)
			}
		}
	}
	return "", nil
}

// Whatever happens, what is printed of a rank is what its live replicas wrote, and what ranks print of each other agrees; or else a
// divergence was found, in a program of which something is said that is not so.
func TestOutput(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			if text, err := s.play(orders(), func(*world) {}); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		})
	}
}

// orders returns in how many random orders the worlds of each story are played.
func orders() int {
	if testload.Full() {
		return 20000
	}
	return 100
}

// search returns a search of all that may happen in a story, as far as that goes, and the world in which it begins.
func (s story) search() (*search, *world) {
	w := s.begin(Parallel, 1)
	w.eager = true
	return &search{crashes: s.crashes, seen: map[uint64]struct{}{}, most: 20000}, w
}

// decidedOnce is a story of one decision, which two of three replicas would make alike.
var decidedOnce = story{"decidedOnce", []program{{{kind: choose, alike: true}}}, 3, 2, nothing}

// The same in every order, for the smallest programs.
func TestEveryOutput(t *testing.T) {
	for _, s := range []story{stories[0], decidedOnce} {
		if s.replicas > 2 && !testload.Full() {
			continue
		}
		all, w := s.search()
		err := all.visit(w, s.crashes, 0)
		t.Logf("%s: %d states, %d ends, cut off: %v", s.name, len(all.seen), all.ends, len(all.seen) == all.most)
		if err != nil {
			t.Error(err)
		}
	}
}

// Faults of a launcher, and of an engine, are found.
func TestFaultsAreFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		story story
		rule  rule
	}{
		{"the replica that is ahead is printed", stories[0], fromAhead},
		{"what two of three have written is printed", decidedOnce, fromAnyTwo},
	} {
		all, w := c.story.search()
		w.launcher.rule = c.rule
		if all.visit(w, c.story.crashes, 0) == nil {
			t.Errorf("%s, and that is not found in %d states", c.name, len(all.seen))
		}
	}
	for _, s := range stories {
		switch s.name {
		case "overtaken":
			if _, err := s.play(300, func(w *world) { w.acksEarly = true }); err == nil {
				t.Error("what a receive has matched is acknowledged before its bytes are here, and that is not found")
			}
		case "synchronous":
			if _, err := s.play(20, func(w *world) { w.acksUnmatched = true }); err == nil {
				t.Error("a synchronous message is acknowledged before a receive has matched it, and that is not found")
			}
		}
	}
}
