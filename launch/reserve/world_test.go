package reserve

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/overlay"
)

var epoch = time.Unix(1e9, 0)

// scenario is the start of a world and what may go wrong in it.
type scenario struct {
	name         string
	policy       Policy
	job          allocate.Job
	strategy     allocate.Strategy
	spares       int
	nodes, subs  int
	lost, twice  int // messages that may be lost, and duplicated
	late         int // how often the clock may advance although a party has something to do, or an answer may be late
	subDeaths    int
	nodeDeaths   int  // a node that dies restarts at once, without memory
	drops, stops int  // calls of Drop, and of Cancel
	hasty        bool // processes may also exit while messages are in flight

	// prompt lets a node's answer arrive together with the message that it answers, unless it is
	// lost or late. That avoids most of the orders of answers of different nodes, so that two
	// submitters can be explored.
	prompt bool
}

// world is submitters, nodes and the messages between them. Every possible event is a move; a world
// has no randomness of its own.
type world struct {
	*scenario
	now      time.Time
	services []*Node
	subs     []*Submission
	alive    []bool
	net      []packet
	runs     []run          // running processes
	began    map[string]int // launches ever, by node, key and by job, rank, copy
	mute     bool           // messages are not delivered
}

// packet is a message in flight. Submitters are 0, 1, ..., nodes -1, -2, ...
type packet struct {
	from, to int
	m        Message
	text     string
}

// run is one launch by a node's daemon.
type run struct {
	node   int
	key    Key
	killed bool
}

func keyOf(sub, node int) Key { return Key{byte(sub + 1), byte(node + 1), 0xff} }

func nodeName(i int) overlay.NodeID { return overlay.NodeID{Site: "s", Name: fmt.Sprint("n", i)} }

func jobOf(sub int) overlay.JobID { return overlay.JobID(fmt.Sprint("job", sub)) }

func person(sub int) Requester { return Requester{Identity: fmt.Sprint("user", sub), Site: "s"} }

func newWorld(t testing.TB, sc *scenario) *world {
	w := &world{scenario: sc, now: epoch, began: map[string]int{}}
	for range sc.nodes {
		n, err := NewNode(1, sc.policy)
		if err != nil {
			t.Fatal(err)
		}
		w.services = append(w.services, n)
	}
	for i := range sc.subs {
		var candidates []Candidate
		for j := range sc.nodes {
			// Each prefers different nodes.
			node := (i + j) % sc.nodes
			candidates = append(candidates, Candidate{nodeName(node), time.Duration(j) * time.Millisecond, 0, keyOf(i, node)})
		}
		s, err := New(jobOf(i), sc.job, sc.strategy, candidates,
			Config{Answer: 2 * time.Second, Resend: time.Second, Begin: 3 * time.Second, Spares: sc.spares})
		if err != nil {
			t.Fatal(err)
		}
		w.subs = append(w.subs, s)
		w.alive = append(w.alive, true)
		w.submit(i, s.Begin(w.now))
	}
	return w
}

func (w *world) submit(sub int, out []Send) {
	for _, s := range out {
		for i := range w.services {
			if nodeName(i) == s.To {
				w.put(packet{from: sub, to: -1 - i, m: s.Message})
			}
		}
	}
}

func (w *world) put(p packet) {
	if w.mute {
		return
	}
	p.text = fmt.Sprintf("%d>%d %T%v", p.from, p.to, p.m, p.m)
	w.net = append(w.net, p)
}

// act carries out actions like a node's daemon.
func (w *world) act(node int, actions []Action) error {
	for _, a := range actions {
		switch a := a.(type) {
		case Launch:
			w.runs = append(w.runs, run{node: node, key: a.Key})
			once := []string{fmt.Sprintf("key %v at node %d", a.Key, node)}
			for _, p := range a.Processes {
				once = append(once, fmt.Sprintf("rank %d copy %d of %s", p.Rank, p.Copy, a.Job))
			}
			for _, what := range once {
				if w.began[what]++; w.began[what] > 1 {
					return fmt.Errorf("%s starts a second time", what)
				}
			}
		case Kill:
			for i := range w.runs {
				if w.runs[i].node == node && w.runs[i].key == a.Key {
					w.runs[i].killed = true
				}
			}
		}
	}
	return nil
}

// deliver delivers one packet; the caller removes it from the net. A node's answer is put there, or
// delivered as well, or lost.
func (w *world) deliver(p packet, answer fate) error {
	if p.to >= 0 {
		if w.alive[p.to] {
			w.submit(p.to, w.subs[p.to].Receive(nodeName(-1-p.from), p.m, w.now))
		}
		return nil
	}
	node := -1 - p.to
	m, actions := w.services[node].Receive(person(p.from), p.m, w.now)
	if err := w.act(node, actions); err != nil || m == nil || answer == never {
		return err
	}
	back := packet{from: p.to, to: p.from, m: m}
	if answer == atOnce {
		return w.deliver(back, never)
	}
	w.put(back)
	return nil
}

// fate is when an answer arrives.
type fate int

const (
	atOnce fate = iota
	sometime
	never
)

// next returns the next deadline; zero: never.
func (w *world) next() time.Time {
	var next time.Time
	soon := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, n := range w.services {
		soon(n.Next())
	}
	for i, s := range w.subs {
		if w.alive[i] {
			soon(s.Next())
		}
	}
	return next
}

// tick advances time to the next deadline.
func (w *world) tick() error {
	w.now = w.next()
	for i, n := range w.services {
		if err := w.act(i, n.Tick(w.now)); err != nil {
			return err
		}
	}
	for i, s := range w.subs {
		if w.alive[i] {
			w.submit(i, s.Tick(w.now))
		}
	}
	return nil
}

func (w *world) exit(i int) {
	r := w.runs[i]
	w.runs = slices.Delete(w.runs, i, i+1)
	w.services[r.node].Exited(r.key)
}

func (w *world) killNode(i int) {
	n, _ := NewNode(w.services[i].boot+1, w.policy) // the policy was valid before
	w.services[i] = n
	w.runs = slices.DeleteFunc(w.runs, func(r run) bool { return r.node == i })
}

// move is one possible next event.
type move struct {
	name string
	do   func(w *world) error
}

// moves lists all possible events in w.
func (w *world) moves() []move {
	var all []move
	add := func(name string, do func(w *world) error) { all = append(all, move{name, do}) }
	seen := map[string]bool{}
	for i, p := range w.net {
		if seen[p.text] {
			continue // a duplicate of another packet
		}
		seen[p.text] = true
		take := func(w *world) { w.net = slices.Delete(w.net, i, i+1) }
		usual := sometime
		if w.prompt && p.to < 0 {
			usual = atOnce
			if w.lost > 0 {
				add("lose the answer to "+p.text, func(w *world) error { w.lost--; take(w); return w.deliver(p, never) })
			}
			if w.late > 0 {
				add("keep the answer to "+p.text, func(w *world) error { w.late--; take(w); return w.deliver(p, sometime) })
			}
		}
		add("deliver "+p.text, func(w *world) error { take(w); return w.deliver(p, usual) })
		if w.lost > 0 {
			add("lose "+p.text, func(w *world) error { w.lost--; take(w); return nil })
		}
		if w.twice > 0 {
			add("double "+p.text, func(w *world) error { w.twice--; return w.deliver(p, usual) })
		}
	}
	// Time passes when no party has anything else to do, or one is late.
	busy := len(w.net) > 0
	for i, s := range w.subs {
		busy = busy || w.alive[i] && s.Phase() == Planned
	}
	if next := w.next(); !next.IsZero() && (!busy || w.late > 0) {
		add("wait until "+fmt.Sprint(next.Sub(epoch)), func(w *world) error {
			if busy {
				w.late--
			}
			return w.tick()
		})
	}
	for i, r := range w.runs {
		if len(w.net) > 0 && !w.hasty {
			continue
		}
		add(fmt.Sprintf("exit %v", r.key), func(w *world) error { w.exit(i); return nil })
	}
	for i, s := range w.subs {
		if !w.alive[i] {
			continue
		}
		if s.Phase() == Planned {
			add(fmt.Sprint("start ", i), func(w *world) error { w.submit(i, w.subs[i].Start(w.now)); return nil })
			if w.drops > 0 {
				node := s.Plan().Used()[0].Node
				add(fmt.Sprint("drop ", i, node), func(w *world) error { w.drops--; w.submit(i, w.subs[i].Drop(node, w.now)); return nil })
			}
		}
		if w.stops > 0 && s.Phase() < Cancelling {
			add(fmt.Sprint("stop ", i), func(w *world) error { w.stops--; w.submit(i, w.subs[i].Cancel(w.now)); return nil })
		}
		if w.subDeaths > 0 && s.Phase() < Failed {
			add(fmt.Sprint("kill submitter ", i), func(w *world) error { w.subDeaths--; w.alive[i] = false; return nil })
		}
	}
	for i, n := range w.services {
		if w.nodeDeaths > 0 && len(n.held) > 0 {
			add(fmt.Sprint("kill node ", i), func(w *world) error { w.nodeDeaths--; w.killNode(i); return nil })
		}
	}
	return all
}

// wrong checks the invariants.
func (w *world) wrong() error {
	for i, n := range w.services {
		if len(n.held) > n.policy.Jobs {
			return fmt.Errorf("node %d has %d jobs, its owner allows %d", i, len(n.held), n.policy.Jobs)
		}
		for key, r := range n.held {
			if r.size() > n.policy.Processes {
				return fmt.Errorf("node %d gives %d processes to %v", i, r.size(), key)
			}
		}
	}
	for i, s := range w.subs {
		if s.Phase() != Launched {
			continue
		}
		for _, h := range s.Plan().Hosts {
			for _, p := range h.Processes {
				if w.began[fmt.Sprintf("rank %d copy %d of %s", p.Rank, p.Copy, jobOf(i))] != 1 {
					return fmt.Errorf("submitter %d says launched, and %+v was not", i, p)
				}
			}
		}
	}
	return nil
}

// quiet checks that silence ends everything: if no message arrives from now on, only the
// reservations of running jobs are left, and no submitter waits.
func (w *world) quiet() error {
	w = w.clone()
	w.mute, w.net = true, nil
	for range 200 {
		for i := len(w.runs) - 1; i >= 0; i-- {
			if w.runs[i].killed {
				w.exit(i)
			}
		}
		if w.next().IsZero() {
			return w.ended()
		}
		if err := w.tick(); err != nil {
			return err
		}
	}
	return fmt.Errorf("in silence there is always something due, now at %v", w.next())
}

// ended checks a world in which nothing is due and no message is in flight.
func (w *world) ended() error {
	for i, n := range w.services {
		for key, r := range n.held {
			if r.state == Held || r.state == starts {
				return fmt.Errorf("node %d keeps %v %s", i, key, r.state)
			}
			if !slices.ContainsFunc(w.runs, func(run run) bool { return run.node == i && run.key == key }) {
				return fmt.Errorf("node %d counts %v, and nothing runs", i, key)
			}
		}
	}
	for i, s := range w.subs {
		if w.alive[i] && s.Phase() != Launched && s.Phase() != Failed {
			return fmt.Errorf("submitter %d waits for ever, %s", i, s.Phase())
		}
		if s.Phase() == Failed && s.Err() == nil {
			return fmt.Errorf("submitter %d failed without a reason", i)
		}
	}
	return nil
}

// settled checks a world at its end if no messages were lost permanently: of a job whose submitter
// lives and reports that it failed, nothing runs.
func (w *world) settled() error {
	if err := w.ended(); err != nil {
		return err
	}
	for _, r := range w.runs {
		sub := int(r.key[0]) - 1
		if w.alive[sub] && w.subs[sub].Phase() == Failed && !r.killed {
			return fmt.Errorf("submitter %d failed and its key %v runs on", sub, r.key)
		}
	}
	return nil
}

func (w *world) clone() *world {
	c := *w
	sc := *w.scenario
	c.scenario = &sc
	c.services, c.subs = slices.Clone(w.services), slices.Clone(w.subs)
	for i, n := range c.services {
		c.services[i] = n.clone()
	}
	for i, s := range c.subs {
		c.subs[i] = s.clone()
	}
	c.alive, c.net, c.runs, c.began = slices.Clone(w.alive), slices.Clone(w.net), slices.Clone(w.runs), maps.Clone(w.began)
	return &c
}

func (n *Node) clone() *Node {
	c := *n
	c.held, c.used, c.oldest = make(map[Key]*reservation, len(n.held)), maps.Clone(n.used), slices.Clone(n.oldest)
	for k, r := range n.held {
		r := *r
		c.held[k] = &r
	}
	c.queue.all = slices.Clone(n.queue.all)
	for i, w := range c.queue.all {
		w := *w
		c.queue.all[i] = &w
	}
	return &c
}

func (s *Submission) clone() *Submission {
	c := *s
	c.peers, c.at = slices.Clone(s.peers), make(map[overlay.NodeID]*peer, len(s.at))
	for i, p := range c.peers {
		p := *p
		c.peers[i], c.at[p.Node] = &p, &p
	}
	return &c
}

// code returns the world as bytes: worlds with equal code behave alike.
func (w *world) code() string {
	var b []byte
	num := func(all ...int) {
		for _, x := range all {
			b = binary.AppendVarint(b, int64(x))
		}
	}
	at := func(t time.Time) {
		if t.IsZero() {
			num(-1)
		} else {
			num(int(t.Sub(w.now) / 1e6))
		}
	}
	text := func(s string) { num(len(s)); b = append(b, s...) }
	num(w.lost, w.twice, w.late, w.subDeaths, w.nodeDeaths, w.drops, w.stops)
	for _, n := range w.services {
		num(int(n.boot), int(n.serial), len(n.held), len(n.used))
		for _, r := range slices.SortedFunc(maps.Values(n.held), byHold) {
			b = append(b, r.ask.Key[:2]...)
			num(int(r.hold.Serial), r.granted, len(r.processes))
			text(string(r.state + State(r.why)))
			at(r.since)
			at(r.until)
		}
		for _, k := range slices.SortedFunc(maps.Keys(n.used), func(a, b Key) int { return cmp.Compare(string(a[:]), string(b[:])) }) {
			b = append(b, k[:2]...)
			text(string(n.used[k].why))
			num(int(n.used[k].hold.Boot), int(n.used[k].hold.Serial))
		}
	}
	for i, s := range w.subs {
		if !w.alive[i] {
			num(-1)
			continue
		}
		num(int(s.phase), s.wave)
		at(s.deadline)
		for _, p := range s.peers {
			num(int(p.step), p.processes, int(p.lease/1e6), int(p.hold.Boot), int(p.hold.Serial), len(p.nok))
			num(map[bool]int{true: 1}[p.silent], map[bool]int{true: 1}[p.deaf])
			at(p.until)
			at(p.renewed)
			at(p.sent)
			if s.plan != nil {
				for _, h := range s.plan.Hosts {
					if h.Node == p.Node {
						text(fmt.Sprint(h.Processes))
					}
				}
			}
		}
	}
	net := make([]string, len(w.net))
	for i, p := range w.net {
		net[i] = p.text
	}
	slices.Sort(net)
	text(strings.Join(net, "\n"))
	runs := make([]string, len(w.runs))
	for i, r := range w.runs {
		runs[i] = fmt.Sprint(r)
	}
	slices.Sort(runs)
	text(strings.Join(runs, "\n"))
	began := slices.Sorted(maps.Keys(w.began))
	text(strings.Join(began, "\n"))
	return string(b)
}
