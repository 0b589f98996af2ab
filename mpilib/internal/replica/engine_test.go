package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A program is what a rank does, one op after the other. Its replicas all do it.
type program []op

type op struct {
	kind  opKind
	sends []message
	recvs []want
	only  string // the op is done only if this is the last of the history
	alike bool   // replicas 0 and 1 choose the same

	synchronous bool // it sends in synchronous mode
}

type opKind uint8

const (
	sends    opKind = iota // one after the other
	schedule               // all at once, in an order that differs between replicas, like a collective's schedule
	receives               // posts all, then waits for all
	choose                 // a point that has another outcome in each replica
	create                 // a context, which is told with each message from then on
	milestone
)

// inNew is the context that was created last.
const inNew = 1

type message struct {
	to, context, tag int
	large            bool // it may be interrupted
}

type want struct{ source, context, tag int } // -1: any

// A payload is what a message of the model carries.
type payload struct {
	source, context, tag int
	nth                  int    // of its source's messages to its destination in the context
	history              uint64 // of its source
	created              uint32 // see create
	synchronous          bool
}

func (m payload) String() string {
	return fmt.Sprintf("%d.%d.%d#%d", m.source, m.context, m.tag, m.nth)
}

// digest returns the digest of the content.
func (m payload) digest() uint64 { return hashOf(fmt.Sprintf("%v/%x/%d", m, m.history, m.created)) }

// A node is a process of the model: a program and an engine over a Process.
type node struct {
	core *Process
	me   int
	prog program

	at      int  // op
	began   bool // whether op at has begun
	sending int  // of the op's sends
	recvs   []*receiving
	point   uint64
	created uint32
	counts  map[[2]int]int // messages, by destination and context
	history []string

	posted     []*Receive
	unexpected []*arriving
	moving     map[int]*Arrival // begun, by number of the transfer
	announced  []announcement
	taken      []string   // synchronous messages that receives have got
	wait       []*sending // sends of the op
	expelled   bool
	left       bool
	cannotSave bool
	lines      []string // that the program has written
	call       uint64
}

type receiving struct {
	r    *Receive
	done bool
	got  payload
}

type sending struct {
	payload  payload
	to       int
	large    bool
	complete bool
	released bool
}

type arriving struct {
	from, context, tag int
	to                 *receiving // nil: unexpected
	done               bool
	payload            payload
}

// An announcement is that of a synchronous message which no receive has matched yet: only then does the process that
// announced it send its bytes.
type announcement struct {
	of *Arrival
	by int
}

func (n *node) done() bool { return n.at == len(n.prog) }

// canRun reports whether the program can go on.
func (n *node) canRun() bool {
	if n.expelled || n.done() {
		return false
	}
	if !n.began {
		return true
	}
	switch o := n.prog[n.at]; o.kind {
	case sends, schedule:
		next := o.kind == schedule && n.sending < len(o.sends)
		return next || !slices.ContainsFunc(n.wait, func(s *sending) bool { return !s.complete })
	case receives:
		return !slices.ContainsFunc(n.recvs, func(r *receiving) bool { return !r.done })
	case choose:
		return n.core.Answer(n.point) != Wait
	case milestone:
		return n.core.Milestones().Step() != Stay
	}
	return true
}

// atMilestone does what is to be done at a milestone, and reports whether the program goes on.
func (w *world) atMilestone(n *node) (bool, error) {
	m := n.core.Milestones()
	if !n.began {
		n.began = true
		m.Come()
		return false, nil
	}
	switch step := m.Step(); step {
	case Pass:
		return true, nil
	case Inspect:
		m.Inspected(len(n.unexpected) > 0)
	case Save:
		m.Saved([]byte(n.saved()), !n.cannotSave)
	case Load:
		n.load(string(m.State()))
		m.Loaded(true)
	case Refuse:
		if w.refused++; !w.untidy {
			return false, fmt.Errorf("process %d is refused a milestone", n.me)
		}
		return true, nil
	case Unsaved:
		w.unsaved++
		n.expelled = true
		w.dies(n.me)
	case InVain: // it has not heard of the later layout
		n.expelled = true
		w.dies(n.me)
	case Stay:
	default:
		return false, fmt.Errorf("process %d: step %d", n.me, step)
	}
	return false, nil
}

// saved returns what load goes on from.
func (n *node) saved() string {
	lines := append([]string{fmt.Sprint(n.at, " ", n.created, " ", n.call), fmt.Sprint(len(n.history))}, n.history...)
	for _, to := range slices.SortedFunc(maps.Keys(n.counts), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		lines = append(lines, fmt.Sprint(to[0], " ", to[1], " ", n.counts[to]))
	}
	return strings.Join(lines, "\n")
}

// load makes n go on from what another node has saved.
func (n *node) load(state string) {
	lines := strings.Split(state, "\n")
	fmt.Sscan(lines[0], &n.at, &n.created, &n.call)
	end := 0
	fmt.Sscan(lines[1], &end)
	n.history = slices.Clone(lines[2 : 2+end])
	n.counts = map[[2]int]int{}
	for _, line := range lines[2+end:] {
		var to [2]int
		count := 0
		fmt.Sscan(line, &to[0], &to[1], &count)
		n.counts[to] = count
	}
}

// run runs the program until it waits.
func (w *world) run(n *node) error {
	for n.canRun() {
		if err := w.step(n); err != nil {
			return err
		}
	}
	if n.done() && !n.expelled && w.drains {
		n.core.Drain()
	}
	return w.carryOut(n)
}

// step begins an op, or a part of it, or ends it.
func (w *world) step(n *node) error {
	o := n.prog[n.at]
	if o.only != "" && !n.began && n.history[len(n.history)-1] != o.only {
		n.at++
		return nil
	}
	switch o.kind {
	case sends, schedule:
		if n.sending < len(o.sends) {
			i := n.sending
			if o.kind == schedule {
				i = (i + n.core.replica) % len(o.sends)
			}
			n.began = true
			n.sending++
			w.send(n, o.sends[i], &o)
			return w.carryOut(n)
		}
	case receives:
		if !n.began {
			n.began, n.recvs = true, nil
			for _, x := range o.recvs {
				r := &receiving{r: &Receive{Context: n.context(x.context), Source: x.source, Tag: x.tag}}
				r.r.Owner = &waiting{len(n.recvs)}
				n.recvs = append(n.recvs, r)
				n.core.Post(r.r)
			}
			return w.carryOut(n)
		}
		for _, r := range n.recvs {
			n.add(fmt.Sprintf("%v/%x", r.got, r.got.history))
			n.created = max(n.created, r.got.created)
		}
		n.recvs = nil
	case choose:
		if !n.began {
			n.began, n.point = true, n.core.Begin(1, "")
		}
		outcome, answer := n.core.Outcome(n.point)
		switch answer {
		case Wait:
			return w.carryOut(n)
		case Choose:
			by := n.core.replica
			if o.alike && by == 1 {
				by = 0
			}
			outcome = Outcome{Data: fmt.Sprintf("of %d", by)}
			n.core.Decide(n.point, outcome)
		}
		n.add(outcome.Data)
	case milestone:
		if on, err := w.atMilestone(n); err != nil || !on {
			return errors.Join(err, w.carryOut(n))
		}
	case create:
		n.created = 100 + uint32(n.core.Rank())
	}
	n.at++
	n.began, n.sending, n.wait = false, 0, nil
	return w.carryOut(n)
}

// add adds what the program has come to know, which it writes at once.
func (n *node) add(what string) {
	n.history, n.lines = append(n.history, what), append(n.lines, what)
}

// waiting is the owner of a Receive.
type waiting struct{ index int }

func (n *node) context(c int) uint32 {
	if c == inNew {
		return n.created
	}
	return uint32(c)
}

func (w *world) send(n *node, m message, of *op) {
	inOrder := of.kind == sends
	context := n.context(m.context)
	to := [2]int{m.to, int(context)}
	n.counts[to]++
	nth := n.counts[to]
	if !inOrder {
		nth = 0
	}
	p := payload{n.core.rank, int(context), m.tag, nth, hashOf(fmt.Sprint(n.history)), n.created, of.synchronous}
	n.call++
	s := &sending{payload: p, to: m.to, large: m.large}
	n.wait = append(n.wait, s)
	if inOrder {
		n.lines = append(n.lines, sentLine(m.to, p))
	}
	n.core.Send(&Send{
		Context: context, To: m.to, Tag: m.tag, Bytes: w.bytes, Digest: p.digest(), Call: n.call, InOrder: inOrder, Synchronous: of.synchronous, Owner: s,
	})
}

// carryOut carries out the effects of a node's Process.
func (w *world) carryOut(n *node) error {
	for {
		w.leave(n)
		list := n.core.Effects(nil)
		if len(list) == 0 {
			break
		}
		for _, e := range list {
			if err := w.effect(n, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave ends a process that nobody needs any more. It still takes what others have said before they learn that.
func (w *world) leave(n *node) {
	if w.launcher == nil || n.left || n.expelled || !n.core.draining || !n.core.Ended() || !w.leaves || n.core.HasEffects() {
		return
	}
	for q := range w.nodes {
		if q != n.me {
			w.last = append(slices.Clip(w.last), packet{from: n.me, to: q, kind: goodbye})
		}
	}
	n.left = true
}

// hasEnded reports whether a replica of a rank has come to its end: then all messages are what it has received.
func (w *world) hasEnded(rank int) bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return n != nil && n.core.rank == rank && n.left })
}

func (w *world) effect(n *node, e Effect) error {
	switch e.Kind {
	case Transmit:
		s := e.Send.Owner.(*sending)
		if s.released {
			return fmt.Errorf("process %d transmits %v after its release", n.me, s.payload)
		}
		w.data++
		if n.core.replica != n.core.cfg.Replica(e.Process) {
			w.crossed++
		}
		p := packet{from: n.me, to: e.Process, payload: s.payload, kind: whole}
		if s.large {
			p.kind = begin
			w.transfers++
			p.transfer = w.transfers
			rest := p
			rest.kind = tail
			w.rests = append(slices.Clip(w.rests), rest)
		}
		w.push(p)
	case SendControl:
		if n.left { // nothing follows a goodbye
			return nil
		}
		w.controlSent(e.Message.Kind)
		w.push(packet{from: n.me, to: e.Process, kind: control, bytes: string(e.Message.Append(nil))})
	case Copy:
		e.Send.Owner.(*sending).complete = true
	case Complete, Undelivered:
		s := e.Send.Owner.(*sending)
		s.complete, s.released = true, true
		if s.payload.synchronous && e.Kind == Complete {
			return w.checkTaken(n, s)
		}
	case Release:
		e.Send.Owner.(*sending).released = true
	case Post:
		n.post(e.Receive)
	case Condemn:
		if !w.dead[e.Process] && !w.condemned[e.Process] {
			return fmt.Errorf("process %d treats process %d as failed, and nobody reported that", n.me, e.Process)
		}
		w.cut(e.Process, n.me)
	case Expel:
		if !w.condemned[n.me] {
			return fmt.Errorf("process %d is expelled, and nobody suspects it", n.me)
		}
		n.expelled = true
		w.dies(n.me)
	case Lost:
		if w.hasEnded(e.Rank) {
			return nil
		}
		if w.condemned[n.me] && w.cfg.Spares > 0 { // the others may have a layout in which the rank lives
			n.expelled = true
			w.dies(n.me)
			return nil
		}
		if w.lost++; !w.mayLose {
			return fmt.Errorf("process %d: rank %d is lost", n.me, e.Rank)
		}
	case Diverge:
		// Who is suspected, and does not know it, compares what it sends with what was sent in its place.
		if w.diverged = true; !w.misuse && !w.condemned[n.me] {
			return e.Divergence
		}
	case Seated:
		if e.Process >= w.cfg.Seats() && e.Process == n.me {
			w.admitted++
		}
	case Wake, Watch:
	default:
		return fmt.Errorf("effect %d", e.Kind)
	}
	return nil
}

func matches(r *Receive, a *arriving) bool {
	return r.Context == uint32(a.context) && (r.Source == AnySource || r.Source == a.from) && (r.Tag < 0 || r.Tag == a.tag)
}

// post posts a receive, or gives it the first message that it matches.
func (n *node) post(r *Receive) {
	for i, a := range n.unexpected {
		if matches(r, a) {
			n.unexpected = slices.Delete(slices.Clone(n.unexpected), i, i+1)
			n.match(r, a)
			return
		}
	}
	n.posted = append(n.posted, r)
}

func (n *node) match(r *Receive, a *arriving) {
	if r.Source == AnySource {
		n.core.Decide(r.Point(), Outcome{Source: a.from, Tag: a.tag})
	}
	a.to = n.recvs[r.Owner.(*waiting).index]
	if i := slices.IndexFunc(n.announced, func(x announcement) bool { return x.of.Owner == a }); i >= 0 {
		x := n.announced[i]
		n.announced = slices.Delete(slices.Clone(n.announced), i, i+1)
		if !n.core.Failed(x.by) { // else another process sends it again
			n.deliver(a, x.of)
		}
		return
	}
	if a.done {
		n.give(a)
	}
}

// give gives a message to the receive that it has matched.
func (n *node) give(m *arriving) {
	m.to.done, m.to.got = true, m.payload
	if m.payload.synchronous {
		n.taken = append(slices.Clip(n.taken), m.payload.String())
	}
}

// checkTaken checks that each live replica of the destination has received the message of a synchronous send that is
// complete, and that one at least has.
func (w *world) checkTaken(n *node, s *sending) error {
	some := false
	for c := range w.cfg.Replicas {
		q := n.core.cfg.Layout.Process(s.to, c)
		taken := slices.Contains(w.nodes[q].taken, s.payload.String())
		some = some || taken
		if !taken && !n.core.Failed(q) {
			return fmt.Errorf("for process %d the synchronous send of %v is complete, and process %d has not received it", n.me, s.payload, q)
		}
	}
	if !some {
		return fmt.Errorf("for process %d the synchronous send of %v is complete, and nobody has received it", n.me, s.payload)
	}
	return nil
}

// arrive takes a packet of a message.
func (w *world) arrive(n *node, p packet) error {
	if p.kind == tail {
		if a := n.moving[p.transfer]; a != nil && !n.core.Failed(p.from) {
			delete(n.moving, p.transfer)
			w.complete(n, p, a)
		}
		return w.carryOut(n)
	}
	source := n.core.cfg.Rank(p.from)
	a, verdict := n.core.Arrive(p.from, uint32(p.payload.context), p.payload.tag, w.bytes)
	w.verdicts[verdict]++
	switch verdict {
	case Stale, Duplicate:
		return w.carryOut(n)
	case Fresh:
		m := &arriving{from: source, context: p.payload.context, tag: p.payload.tag}
		a.Owner = m
		if n.offer(m); w.acksEarly && m.to != nil {
			n.core.Delivered(m.from, uint32(m.context), m.tag, a, p.payload.digest())
		}
	case Resumed:
		for id, other := range n.moving {
			if other == a {
				delete(n.moving, id)
			}
		}
	}
	if p.kind == begin {
		n.moving[p.transfer] = a
	} else {
		w.complete(n, p, a)
	}
	return w.carryOut(n)
}

// offer matches a message that arrives.
func (n *node) offer(m *arriving) {
	for i, r := range n.posted {
		if matches(r, m) {
			n.posted = slices.Delete(slices.Clone(n.posted), i, i+1)
			n.match(r, m)
			return
		}
	}
	n.unexpected = append(n.unexpected, m)
}

// complete is called with the last byte of a message, or with the announcement of a synchronous one.
func (w *world) complete(n *node, p packet, a *Arrival) {
	m := a.Owner.(*arriving)
	m.payload = p.payload
	if m.to == nil && p.payload.synchronous && !w.acksUnmatched {
		again := func(x announcement) bool { return x.of == a }
		n.announced = append(slices.DeleteFunc(slices.Clone(n.announced), again), announcement{a, p.from})
		return
	}
	n.deliver(m, a)
}

// deliver notes that all bytes of a message are here.
func (n *node) deliver(m *arriving, a *Arrival) {
	m.done = true
	if m.to != nil {
		n.give(m)
	}
	if !a.delivered { // see acksEarly
		n.core.Delivered(m.from, uint32(m.context), m.tag, a, m.payload.digest())
	}
}
