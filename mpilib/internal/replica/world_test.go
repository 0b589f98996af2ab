package replica

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A world is processes, what is under way between them, and who has failed.
type world struct {
	cfg       Config
	bytes     int // of each message
	nodes     []*node
	hashes    []uint64 // of nodes; 0: not known
	links     [][]packet
	dead      []bool
	condemned []bool // reported as failed, though it lives
	reported  []bool // by process that hears, and process: once is enough

	drains        bool      // processes ask for all acknowledgements at the end
	leaves        bool      // and end when they have them
	eager         bool      // acknowledgements arrive at once
	launcher      *launcher // prints what processes write; nil: nobody does
	misuse        bool      // what is sent depends on outcomes although the configuration says that it does not: a divergence is right,
	diverged      bool      // and was found
	acksEarly     bool      // a fault: what a receive has matched is acknowledged before its bytes are here
	acksUnmatched bool      // a fault: a synchronous message is acknowledged before a receive has matched it
	untidy        bool      // messages may be there at a milestone
	programs      []program
	joins         int // how many of the spare numbers are given
	admitted      int
	unsaved       int
	mayLose       bool // a rank may be lost,
	lost          int  // which so many processes have found
	refused       int
	rests         []packet // of what the event transmits: behind all else that it does,
	last          []packet // but for the goodbye
	transfers     int
	data          int // messages transmitted,
	crossed       int // of those to another set of replicas
	controls      [32]int
	verdicts      [4]int
	trail         []string
	record        bool
}

type packetKind uint8

const (
	whole packetKind = iota
	begin
	tail
	control
	goodbye
)

type packet struct {
	from, to int
	kind     packetKind
	payload  payload
	transfer int
	bytes    string
}

func (p packet) String() string {
	if p.kind == control {
		return fmt.Sprintf("%d > %d: %v %x", p.from, p.to, Kind(p.bytes[0]), p.bytes[1:])
	}
	return fmt.Sprintf("%d > %d: %s %v", p.from, p.to, [...]string{"", "begin of", "rest of", "", "goodbye"}[p.kind], p.payload)
}

func newWorld(cfg Config, programs []program) *world {
	size := cfg.Size()
	w := &world{cfg: cfg, bytes: 100, drains: true, links: make([][]packet, size*size), dead: make([]bool, size), condemned: make([]bool, size), reported: make([]bool, size*size), hashes: make([]uint64, size)}
	w.programs, w.nodes = programs, make([]*node, size)
	for q := range cfg.Seats() {
		w.begins(q, Seat{})
	}
	return w
}

// begins begins a process; seat is the one that it comes to take, if it has a spare number.
func (w *world) begins(q int, seat Seat) {
	c := w.cfg
	c.Process, c.Seat = q, seat
	n := &node{core: New(c), me: q, counts: map[[2]int]int{}, moving: map[int]*Arrival{}}
	n.prog = w.programs[n.core.rank]
	if q >= w.cfg.Seats() {
		n.at = slices.IndexFunc(n.prog, func(o op) bool { return o.kind == milestone })
	}
	w.nodes[q] = n
}

// vacant returns the seats for which a process may begin: their holders have failed, and nobody else comes.
func (w *world) vacant() (seats []int) {
	if w.joins == w.cfg.Spares {
		return nil
	}
	for s := range w.cfg.Seats() {
		live := false
		for q, n := range w.nodes {
			seat := Seat{s % w.cfg.Ranks, s / w.cfg.Ranks}
			live = live || n != nil && w.live(q) && (Seat{n.core.rank, n.core.replica}) == seat
		}
		if !live {
			seats = append(seats, s)
		}
	}
	return seats
}

// clone returns a copy in which the node of a process may be changed; -1: none.
func (w *world) clone(process int) *world {
	c := *w
	c.nodes, c.hashes, c.links = slices.Clone(w.nodes), slices.Clone(w.hashes), slices.Clone(w.links)
	c.dead, c.condemned = slices.Clone(w.dead), slices.Clone(w.condemned)
	c.reported = slices.Clone(w.reported)
	c.trail = slices.Clip(w.trail)
	if process >= 0 {
		n := *w.nodes[process]
		prog := n.prog
		n.prog = nil
		c.nodes[process] = clone(&n)
		c.nodes[process].prog = prog
		c.hashes[process] = 0
	}
	return &c
}

// state returns a hash of all that the future depends on.
func (w *world) state() uint64 {
	h := uint64(1)
	for q, n := range w.nodes {
		if w.dead[q] || n == nil {
			h = mix(h, 5)
			continue
		}
		if w.hashes[q] == 0 {
			prog := n.prog
			n.prog = nil
			w.hashes[q] = deepHash(3, reflect.ValueOf(n)) | 1
			n.prog = prog
		}
		h = mix(h, w.hashes[q])
		if w.condemned[q] {
			h = mix(h, 6)
		}
	}
	for _, l := range w.links {
		h = mix(h, uint64(len(l)))
		for _, p := range l {
			h = mix(mix(mix(h, uint64(p.kind)), uint64(p.transfer)), hashOf(p.bytes))
			h = mix(mix(mix(h, uint64(p.payload.tag)), uint64(p.payload.nth)), p.payload.history+uint64(p.payload.context))
		}
	}
	if w.launcher != nil {
		h = deepHash(h, reflect.ValueOf(w.launcher))
	}
	return h
}

func (w *world) controlSent(k Kind) { w.controls[k]++ }

func (w *world) link(from, to int) *[]packet { return &w.links[from*len(w.nodes)+to] }

func (w *world) push(p packet) {
	if to := w.nodes[p.to]; w.dead[p.to] || to.left && p.kind < control || to.core.Failed(p.from) && !w.condemned[p.from] {
		return
	}
	w.note("  %v", p)
	l := w.link(p.from, p.to)
	*l = append(slices.Clip(*l), p)
}

// cut ends what a process that is dead has under way to another. One that is only suspected goes on.
func (w *world) cut(from, to int) {
	if w.dead[from] {
		*w.link(from, to) = nil
	}
}

// dies ends a process. What it sent is still under way.
func (w *world) dies(q int) {
	w.dead[q] = true
	for p := range w.nodes {
		*w.link(p, q) = nil
	}
}

// An event is something that can happen next.
type event struct {
	kind eventKind
	a, b int
}

type eventKind uint8

const (
	runs eventKind = iota
	delivers
	reports
	fails
	suspects
	joins
	reads  // the launcher
	learns // likewise, of a death
)

func (e event) String() string {
	return fmt.Sprintf("%s %d %d", [...]string{"runs", "delivers", "hears of", "crashes", "is suspected", "begins for seat", "is read by the launcher", "is dead for the launcher"}[e.kind], e.a, e.b)
}

// changes returns the process that the event changes.
func (e event) changes() int {
	switch e.kind {
	case delivers:
		return e.b
	case suspects, joins, reads, learns:
		return -1
	}
	return e.a
}

// live reports whether a process lives, and nobody suspects it.
func (w *world) live(q int) bool { return !w.dead[q] && !w.condemned[q] }

// events returns what can happen without another failure.
func (w *world) events() (all []event) {
	if w.diverged {
		return nil
	}
	for i, l := range w.links {
		if w.eager && len(l) > 0 && l[0].kind == control && Kind(l[0].bytes[0]) == Ack {
			return []event{{delivers, i / len(w.nodes), i % len(w.nodes)}}
		}
	}
	if w.launcher != nil {
		all = w.launcher.events(w)
	}
	for q, n := range w.nodes {
		if w.dead[q] || n == nil {
			continue
		}
		if n.canRun() {
			all = append(all, event{runs, q, 0})
		}
		for other := range w.nodes {
			if !n.left && !w.live(other) && !n.core.Failed(other) && !w.reported[q*len(w.nodes)+other] {
				all = append(all, event{reports, q, other})
			}
			if len(*w.link(other, q)) > 0 {
				all = append(all, event{delivers, other, q})
			}
		}
	}
	return all
}

// canFail reports whether a process may fail, without its rank being lost.
func (w *world) canFail(q int) bool {
	if !w.live(q) || w.nodes[q] == nil || w.nodes[q].left {
		return false
	}
	if !w.nodes[q].core.isSeated() {
		return true
	}
	for p, n := range w.nodes {
		if n != nil && p != q && n.core.rank == w.nodes[q].core.rank && n.core.isSeated() && w.live(p) {
			return true
		}
	}
	return false
}

// happen has an event happen.
func (w *world) happen(e event) error {
	w.note("%v", e)
	if err := w.change(e); err != nil {
		return err
	}
	for _, p := range append(slices.Clip(w.rests), w.last...) {
		w.push(p)
	}
	w.rests, w.last = nil, nil
	return nil
}

func (w *world) change(e event) error {
	n := w.nodes[e.a]
	switch e.kind {
	case runs:
		return w.run(n)
	case fails:
		w.dies(e.a)
	case suspects:
		w.condemned[e.a] = true
	case joins:
		w.joins++
		w.begins(e.a, Seat{e.b % w.cfg.Ranks, e.b / w.cfg.Ranks})
	case reads, learns:
		w.launcher = clone(w.launcher)
		return w.launcher.change(w, e)
	case reports:
		w.reported[e.a*len(w.nodes)+e.b] = true
		n.core.Fail(e.b)
		w.cut(e.b, e.a)
		return w.carryOut(n)
	case delivers:
		l := w.link(e.a, e.b)
		p := (*l)[0]
		*l = (*l)[1:]
		n = w.nodes[e.b]
		if p.kind == goodbye {
			n.core.Leave(p.from)
			return w.carryOut(n)
		}
		if p.kind != control {
			if n.left {
				return nil
			}
			return w.arrive(n, p)
		}
		m, err := Parse([]byte(p.bytes), w.cfg.Layout)
		if err != nil {
			return err
		}
		if err := n.core.Receive(p.from, m); err != nil {
			return err
		}
		return w.carryOut(n)
	}
	return nil
}

// finished checks a world in which nothing can happen but failures.
func (w *world) finished() error {
	if w.diverged {
		return nil
	}
	for q, n := range w.nodes {
		if !w.live(q) || n == nil || !n.core.isSeated() {
			continue
		}
		if !n.done() || w.drains && !n.core.Drained() || w.leaves && !n.left {
			if w.misuse { // it waits for what was sent by a replica that is dead, and fails when that rank has ended
				return nil
			}
			return fmt.Errorf("nothing can happen, and process %d is at op %d of %d; drained: %v; posted: %d, waiting to be posted: %d\n%s", q, n.at, len(n.prog), n.core.Drained(), len(n.posted), len(n.core.receives), w.whereAll())
		}
		if err := n.check(w.drains); err != nil && !w.misuse {
			return err
		}
		for c := range w.cfg.Replicas {
			other := n.core.cfg.Layout.Process(n.core.rank, c)
			if w.live(other) && w.nodes[other].done() && !slices.Equal(n.history, w.nodes[other].history) {
				return fmt.Errorf("process %d has\n%q\nand process %d\n%q", q, n.history, other, w.nodes[other].history)
			}
		}
	}
	if w.launcher != nil {
		return w.launcher.finished(w)
	}
	return nil
}

// whereAll describes how far all processes are.
func (w *world) whereAll() (text string) {
	for q, n := range w.nodes {
		if n != nil && !w.dead[q] {
			r := &n.core.rounds
			text += fmt.Sprintf("process %d: seat %d of layout %d, op %d of %d, stage %d, milestone %d, target %d, agreements %d, failed %v, suspected: %v\n",
				q, n.core.cfg.seatOf(q), n.core.cfg.Epoch, n.at, len(n.prog), r.stage, r.count, r.target, r.started, failures(n.core), w.condemned[q])
		}
	}
	return text
}

// check checks that a node has each message once, in the order of its source and context, and that nothing is kept.
func (n *node) check(drained bool) error {
	seen := map[string]bool{}
	last := map[[2]int]int{}
	for _, h := range n.history {
		var source, context, tag, nth int
		if k, _ := fmt.Sscanf(h, "%d.%d.%d#%d/", &source, &context, &tag, &nth); k != 4 || nth == 0 {
			continue
		}
		if seen[h] {
			return fmt.Errorf("process %d has %s twice", n.me, h)
		}
		seen[h] = true
		if n.inOrder() && nth < last[[2]int{source, context}] {
			return fmt.Errorf("process %d has %s too late: %q", n.me, h, n.history)
		}
		last[[2]int{source, context}] = nth
	}
	if len(n.unexpected) > 0 || drained && n.core.kept != 0 {
		return fmt.Errorf("process %d ends with %d messages that nobody received, and %d bytes kept", n.me, len(n.unexpected), n.core.kept)
	}
	for rank := range n.core.peers {
		q := &n.core.peers[rank]
		if drained && len(q.outgoing) > 0 || len(q.incoming) > 0 {
			return fmt.Errorf("process %d ends with %d streams to rank %d and %d from it", n.me, len(q.outgoing), rank, len(q.incoming))
		}
	}
	return nil
}

// inOrder reports whether the program receives any tags only: then it gets messages in the order in which
// they were sent.
func (n *node) inOrder() bool {
	for _, o := range n.prog {
		for _, r := range o.recvs {
			if r.tag >= 0 {
				return false
			}
		}
	}
	return true
}

func (w *world) note(format string, args ...any) {
	if w.record {
		w.trail = append(w.trail, fmt.Sprintf(format, args...))
	}
}

func (w *world) story() string { return strings.Join(w.trail, "\n") }
