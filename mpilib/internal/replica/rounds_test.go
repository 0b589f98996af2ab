package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// withMilestones returns random programs with a milestone at their beginning and between their parts.
func withMilestones(r *rand.Rand, ranks int) []program {
	all := make([]program, ranks)
	for range 2 + r.IntN(6) {
		part := randomPrograms(r, ranks)
		for rank := range all {
			all[rank] = append(append(all[rank], op{kind: milestone}), part[rank]...)
		}
	}
	return all
}

// Processes fail and others take their seats, up to four: more fail than a job without newcomers could lose.
func TestRandomNewcomers(t *testing.T) {
	worlds := 60
	if testload.Full() {
		worlds = 800
	}
	admitted, failed := 0, 0
	for seed := range uint64(worlds) {
		one := func(record bool) (*world, error) {
			r := rand.New(rand.NewPCG(seed, 12))
			w := randomWorld(r)
			w.cfg.Replicas, w.cfg.Spares = max(2, w.cfg.Replicas), 1+r.IntN(4)
			w = newWorld(w.cfg, withMilestones(r, w.cfg.Ranks))
			w.record = record
			return w, walk(w, r)
		}
		w, err := one(false)
		if err != nil {
			again, _ := one(true)
			t.Fatalf("seed %d, %v: %v\n%s", seed, fmt.Sprintf("%+v", w.cfg), err, again.story())
		}
		admitted += w.admitted
		for _, d := range w.dead {
			if d {
				failed++
			}
		}
	}
	t.Logf("%d failures, %d admitted", failed, admitted)
	if admitted < worlds/4 {
		t.Errorf("%d newcomers were admitted in %d worlds", admitted, worlds)
	}
}

// steady returns a world of two ranks in which process 3 is dead and another one is about to come. It
// goes on as order says.
func steady(table Table, ack int) *world {
	part := func(rank int) program {
		other := 1 - rank
		return program{
			{kind: milestone}, {kind: choose},
			{kind: sends, sends: []message{{other, 10, 1, rank == 0}, {other, 10, 2, false}}},
			{kind: receives, recvs: []want{{-1, 10, -1}, {other, 10, 2}}},
		}
	}
	var all []program
	for rank := range 2 {
		p := part(rank)
		all = append(all, slices.Concat(p, p, p, p, program{{kind: milestone}}))
	}
	w := newWorld(Config{Layout: Layout{Ranks: 2, Replicas: 2, Spares: 2}, Table: table, AckEvery: ack, MaxKept: 1 << 20}, all)
	w.dies(3)
	w.joins = 1
	w.begins(4, Seat{1, 1})
	return w
}

// A crash, or a wrong suspicion, of each process at each step of the arrival of a newcomer, and of another process some steps
// later; without the tag "system" at every 17th step.
func TestFailureAtEachStep(t *testing.T) {
	orders, stride := 3, 17
	if testload.Full() {
		stride = 1
	}
	runs, admitted := 0, 0
	for order := range uint64(orders) {
		for victim := range 5 {
			for at := int(order); ; at += stride {
				w := steady(Table(order%2), 1+int(order)%3)
				kind := eventKind(fails)
				if order%3 == 2 {
					kind = suspects
				}
				over, err := play(w, order, victim, at, kind)
				if err != nil {
					w = steady(Table(order%2), 1+int(order)%3)
					w.record = true
					play(w, order, victim, at, kind)
					t.Fatalf("order %d, process %d %v at step %d: %v\n%s", order, victim, event{kind: kind}, at, err, w.story())
				}
				runs++
				admitted += w.admitted
				if over {
					break
				}
			}
		}
	}
	t.Logf("%d runs, %d admitted", runs, admitted)
	if admitted < runs {
		t.Errorf("in %d runs, %d newcomers were admitted", runs, admitted)
	}
}

// play makes things happen to w in an order, and reports whether all is over before step at, when victim fails. A
// second newcomer comes when there is a seat for it.
func play(w *world, order uint64, victim, at int, kind eventKind) (over bool, err error) {
	r := rand.New(rand.NewPCG(order, 13))
	for step := 0; ; step++ {
		events := w.events()
		if len(events) == 0 && step < at {
			return true, w.finished()
		}
		if len(events) == 0 {
			return false, w.finished()
		}
		e := events[r.IntN(len(events))]
		if step == at && w.canFail(victim) {
			e = event{kind, victim, 0}
		} else if seats := w.vacant(); step > at && len(seats) > 0 {
			e = event{joins, w.cfg.Seats() + w.joins, seats[0]}
		}
		if err := w.happen(e); err != nil {
			return false, err
		}
	}
}

// Every order of steps, deliveries, failures, their reports and arrivals, for small programs; without the tag "system" a
// few of them.
func TestEveryArrival(t *testing.T) {
	stop := op{kind: milestone}
	for _, c := range []struct {
		name                string
		programs            []program
		replicas            int
		crashes, suspicions int
	}{
		{"alone", []program{{stop, stop}}, 2, 1, 0},
		{"alone-suspected", []program{{stop, stop}}, 2, 0, 1},
		{"alone-3", []program{{stop, stop}}, 3, 2, 0},
		{"decided", []program{{stop, {kind: choose}, stop, {kind: choose}}}, 2, 2, 0},
		{"sent", []program{
			{stop, {kind: sends, sends: []message{{1, 10, 1, false}}}, stop},
			{stop, {kind: receives, recvs: []want{{0, 10, 1}}}, stop},
		}, 2, 1, 0},
		{"sent-later", []program{
			{stop, stop, {kind: sends, sends: []message{{1, 10, 1, true}, {1, 10, 1, false}}}},
			{stop, stop, {kind: receives, recvs: []want{{0, 10, 1}, {0, 10, 1}}}},
		}, 2, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Layout: Layout{Ranks: len(c.programs), Replicas: c.replicas, Spares: 1}, MaxKept: 1 << 20, AckEvery: 1}
			begin := func() *world {
				w := newWorld(cfg, c.programs)
				w.drains, w.eager = false, true
				return w
			}
			if !testload.Full() {
				sample(t, begin, c.crashes, c.suspicions)
				return
			}
			s := &search{crashes: c.crashes, suspicions: c.suspicions, seen: map[uint64]struct{}{}, most: maxStates(t) / 4}
			err := s.visit(begin(), c.crashes, c.suspicions)
			t.Logf("%d states, %d ends, cut off: %v", len(s.seen), s.ends, len(s.seen) == s.most)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A milestone at which messages are there that nobody received is refused to all alike, and the newcomer does not come.
func TestUnreceivedAtMilestone(t *testing.T) {
	stop := op{kind: milestone}
	w := newWorld(Config{Layout: Layout{Ranks: 2, Replicas: 2, Spares: 1}, AckEvery: 1, MaxKept: 1 << 20}, []program{
		{stop, {kind: sends, sends: []message{{1, 10, 3, false}, {1, 10, 1, false}}}, {kind: receives, recvs: []want{{1, 10, 2}}}, stop},
		{stop, {kind: receives, recvs: []want{{0, 10, 3}}}, {kind: sends, sends: []message{{0, 10, 2, false}}}, stop, {kind: receives, recvs: []want{{0, 10, 1}}}},
	})
	w.untidy = true
	for q := range 3 { // to the receives
		if err := w.happen(event{runs, q, 0}); err != nil {
			t.Fatal(err)
		}
	}
	w.dies(3)
	w.joins = 1
	w.begins(4, Seat{1, 1})
	runWithout(t, w, func(e event) bool { return e.kind == runs && e.a < 4 }) // so all know of the newcomer
	run(t, w, func() bool { return false })
	if w.admitted > 0 || w.refused != 3 || !w.nodes[1].done() {
		t.Errorf("%d admitted, refused %d times", w.admitted, w.refused)
	}
}

// Of two newcomers the second comes when the first is about to have its seat, which hears of it.
func TestSecondNewcomer(t *testing.T) {
	w := steady(Parallel, 1)
	w.dies(2)
	run(t, w, func() bool { return w.nodes[0].core.rounds.stage == loading })
	w.joins = 2
	w.begins(5, Seat{0, 1})
	run(t, w, func() bool { return false })
	if err := w.finished(); err != nil || w.admitted != 2 {
		t.Errorf("%d admitted: %v", w.admitted, err)
	}
}

// What a process decided behind the milestone and told is not decided again: it may have written what follows from it.
func TestDecidedBehindMilestone(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 1, Replicas: 2, Spares: 1}, Process: 1})
	if !p.rounds.isConsistent(p) {
		t.Error("nothing was decided")
	}
	if err := p.Receive(0, Message{Kind: Decisions, Entries: []Entry{{Point: 1}}}); err != nil {
		t.Fatal(err)
	}
	p.Fail(0)
	if p.rounds.isConsistent(p) {
		t.Error("the program has not come to a point that was decided")
	}
}

// run makes the events of w happen in an order until none is left or stop says so.
func run(t *testing.T, w *world, stop func() bool) {
	t.Helper()
	runSome(t, w, stop, func(event) bool { return false })
}

// runWithout makes all events happen but some.
func runWithout(t *testing.T, w *world, but func(event) bool) {
	t.Helper()
	runSome(t, w, func() bool { return false }, but)
}

func runSome(t *testing.T, w *world, stop func() bool, but func(event) bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 14))
	for !stop() {
		events := slices.DeleteFunc(w.events(), but)
		if len(events) == 0 {
			return
		}
		if err := w.happen(events[r.IntN(len(events))]); err != nil {
			t.Fatal(err)
		}
	}
}

// hasLoaded reports whether n has heard that newcomer 4 has loaded.
func hasLoaded(n *node) bool {
	c := n.core.rounds.newcomers[4]
	return c != nil && c.loaded
}

// A rank whose last process dies when the newcomer has loaded lives on in it; when it has not, it is lost everywhere.
func TestRankLivesInNewcomer(t *testing.T) {
	for _, loaded := range []bool{true, false} {
		w := steady(Parallel, 1)
		giver, newcomer := w.nodes[1], w.nodes[4]
		run(t, w, func() bool {
			if loaded {
				return hasLoaded(w.nodes[0]) && hasLoaded(w.nodes[2])
			}
			return giver.core.rounds.stage == loading
		})
		w.dies(1)
		w.mayLose = true
		run(t, w, func() bool { return false })
		if loaded != (w.lost == 0) || loaded != newcomer.core.isSeated() {
			t.Errorf("loaded %v: %d processes have lost a rank; the newcomer has its seat: %v", loaded, w.lost, newcomer.core.isSeated())
		}
		if loaded {
			if err := w.finished(); err != nil {
				t.Error(err)
			}
		}
	}
}

// What a program cannot save its newcomer does not load, and the others go on without it.
func TestUnsaved(t *testing.T) {
	w := steady(Parallel, 1)
	giver := w.nodes[1]
	giver.cannotSave = true
	run(t, w, func() bool { return false })
	if err := w.finished(); err != nil {
		t.Error(err)
	}
	if w.admitted > 0 || w.unsaved == 0 {
		t.Errorf("%d admitted, %d told that there is no state", w.admitted, w.unsaved)
	}
}

// What is slow holds up the round: a message that no receive has matched is found though it comes last.
func TestSlowUnreceived(t *testing.T) {
	stop := op{kind: milestone}
	w := newWorld(Config{Layout: Layout{Ranks: 3, Replicas: 2, Spares: 1}, AckEvery: 1, MaxKept: 1 << 20}, []program{
		{stop, {kind: sends, sends: []message{{1, 10, 3, false}}}, {kind: sends, sends: []message{{1, 10, 1, false}}}, stop},
		{stop, {kind: receives, recvs: []want{{0, 10, 3}}}, stop, {kind: receives, recvs: []want{{0, 10, 1}}}},
		{stop, stop},
	})
	w.untidy = true
	w.dies(5)
	for q, at := range []int{2, 1, 1, 2, 1} { // between the milestones
		for n := w.nodes[q]; n.at < at; {
			if err := w.step(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.joins = 1
	w.begins(6, Seat{2, 1})
	runWithout(t, w, func(e event) bool { return e.kind == runs && e.a < 5 })
	if err := w.happen(event{runs, 3, 0}); err != nil {
		t.Fatal(err)
	}
	link := w.link(3, 4)
	for (*link)[0].kind == control || (*link)[0].payload.tag == 3 { // up to the message that is not received
		if err := w.happen(event{delivers, 3, 4}); err != nil {
			t.Fatal(err)
		}
	}
	runWithout(t, w, func(e event) bool { return e == event{delivers, 3, 4} })
	if w.admitted > 0 || w.refused > 0 {
		t.Errorf("%d admitted, refused %d times, while a message is under way", w.admitted, w.refused)
	}
	run(t, w, func() bool { return false })
	if w.admitted > 0 || w.refused != 5 {
		t.Errorf("%d admitted, refused %d times", w.admitted, w.refused)
	}
}

// Once all have drained nothing more is accepted of those that had failed then, also where nobody reported them.
func TestFailedIsNotHeard(t *testing.T) {
	idle := program{{kind: milestone}, {kind: milestone}}
	w := newWorld(Config{Layout: Layout{Ranks: 3, Replicas: 2, Spares: 1}}, []program{idle, idle, idle})
	w.dies(4)
	w.joins = 1
	w.begins(6, Seat{1, 1})
	unheard := event{reports, 2, 4}
	runWithout(t, w, func(e event) bool { return e == unheard || e.kind == runs && e.a < 6 })
	p := w.nodes[2].core
	if p.Failed(4) || p.rounds.stage != bound {
		t.Fatalf("stage %d, failed %v", p.rounds.stage, failures(p))
	}
	runSome(t, w, func() bool { return p.rounds.stage == inspecting }, func(e event) bool { return e == unheard })
	if !p.Failed(4) {
		t.Errorf("process 4 failed before all had drained, and messages of it are accepted\n%s", w.whereAll())
	}
}

// Messages of an older layout change nothing, and those of a later one wait for it.
func TestOtherLayouts(t *testing.T) {
	w := steady(Parallel, 1)
	run(t, w, func() bool { return w.admitted > 0 && w.nodes[0].core.cfg.Epoch == 1 })
	p := w.nodes[0].core
	p.Effects(nil)
	for _, m := range []Message{
		{Kind: Have}, {Kind: Committed, Count: 100}, {Kind: Flush, Count: 1}, {Kind: Total, Count: 1},
		{Kind: Ack, Acks: []AckEntry{{Context: 1, Tag: 1, Count: 1}}}, {Kind: Begin, Count: 100}, {Kind: Have, Epoch: 2}, {Kind: Begin, Epoch: 2},
	} {
		from := 1
		if m.Kind.within() {
			from = 2
		}
		if err := p.Receive(from, m); err != nil {
			t.Errorf("%v of layout %d: %v", m.Kind, m.Epoch, err)
		}
		if p.HasEffects() || p.peers[1].flush[0] != 0 || p.rounds.seen == 100 {
			t.Errorf("%v of layout %d has effects: %+v", m.Kind, m.Epoch, p.Effects(nil))
		}
	}
	if len(p.rounds.early) != 2 {
		t.Errorf("%d messages are kept for later, want 2", len(p.rounds.early))
	}
	if err := p.Receive(1, Message{Kind: Have, Epoch: 1}); err == nil {
		t.Error("Have of this layout was not asked for")
	}
}
