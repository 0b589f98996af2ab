package agree

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// chain is the deepest possible tree: with few members it has inner nodes, whose deaths are the
// interesting ones.
func chain(position int) int { return position - 1 }

// A world is members, the messages between them, and the decisions. It checks the package's
// guarantees after each event.
type world struct {
	size, goal int // number of members, and of agreements that each is to start
	members    []*Member
	dead       Set
	net        []packet // in flight, in an order without meaning
	decided    []Value  // by number-1, of the first member to decide
	fifo       bool     // messages from one to another do not overtake
	shy        bool     // deaths are reported only where necessary: see hears
	wrote      []Set    // by rank: the ranks it has sent something to
	sent       int
	trail      []string // events, where the world records them
	record     bool
}

// A packet is a message in flight. depth is the length of the chain of messages that led to it,
// itself included.
type packet struct {
	from, to int
	bytes    []byte
	depth    int
}

func newWorld(size, goal int, shape func(int) int) *world {
	w := &world{size: size, goal: goal, wrote: make([]Set, size)}
	for r := range size {
		w.members = append(w.members, newMember(r, size, shape))
	}
	return w
}

// contribution is what rank contributes to agreement seq: it clears its own flag, so that the sum
// shows whose contributions are in it.
func contribution(rank int, seq uint64) Value {
	return Value{Flags: ^uint64(0) &^ (1 << rank), Max: 100*seq + uint64(rank)}
}

func (w *world) alive(rank int) bool { return !w.dead.Has(rank) }

// started returns how many agreements rank has started.
func (w *world) started(rank int) int { return int(w.members[rank].starts) }

func (w *world) start(rank int) error {
	w.note("%d starts", rank)
	seq, out := w.members[rank].Start(contribution(rank, w.members[rank].starts+1))
	if seq != w.members[rank].starts {
		return fmt.Errorf("rank %d starts %d, want %d", rank, seq, w.members[rank].starts)
	}
	return w.did(rank, out, 0)
}

func (w *world) crash(rank int) {
	w.note("%d dies", rank)
	w.dead = w.dead.Union(SetOf(rank))
	w.net = slices.DeleteFunc(w.net, func(p packet) bool { return p.to == rank })
}

// tell reports to rank that others are dead.
func (w *world) tell(rank int, dead ...int) error {
	w.note("%d is told of %v", rank, dead)
	return w.did(rank, w.members[rank].Fail(dead...), 0)
}

// hears reports whether a death can be reported to rank. A shy world reports no more than owners
// guarantee: a member that waits for the dead one, or has sent it something, finds it dead, and one
// member's knowledge reaches those with which it has a link, because one of the two waits for the
// other, or has sent it something.
func (w *world) hears(rank, dead int) bool {
	if !w.shy || w.linked(rank).Has(dead) {
		return true
	}
	for r, m := range w.members {
		if w.alive(r) && m.failed.Has(dead) && (w.linked(rank).Has(r) || w.linked(r).Has(rank)) {
			return true
		}
	}
	return false
}

func (w *world) linked(rank int) Set { return w.wrote[rank].Union(w.members[rank].WaitsFor()) }

// deliver delivers the packet at i.
func (w *world) deliver(i int) error {
	p := w.net[i]
	w.net = slices.Delete(w.net, i, i+1)
	msg, err := Parse(p.bytes, w.size)
	if err != nil {
		return err
	}
	w.note("%d > %d: %v", p.from, p.to, msg)
	out, err := w.members[p.to].Receive(p.from, msg)
	if err != nil {
		return err
	}
	return w.did(p.to, out, p.depth)
}

// deliverable reports whether the packet at i may be delivered now.
func (w *world) deliverable(i int) bool {
	if w.fifo {
		for _, p := range w.net[:i] {
			if p.from == w.net[i].from && p.to == w.net[i].to {
				return false
			}
		}
	}
	return true
}

// did checks and carries out rank's output.
func (w *world) did(rank int, out Out, depth int) error {
	for _, d := range out.Decided {
		w.note("%d decides %d: %x %v", rank, d.Seq, d.Value.Flags, d.Value.Failed)
		if err := w.checkDecision(rank, d); err != nil {
			return err
		}
	}
	for _, e := range out.Send {
		if e.To == rank || e.To < 0 || e.To >= w.size {
			return fmt.Errorf("rank %d sends to %d", rank, e.To)
		}
		w.sent++
		w.wrote[rank] = w.wrote[rank].Union(SetOf(e.To))
		if w.alive(e.To) {
			w.net = append(w.net, packet{rank, e.To, e.Message.Append(nil), depth + 1})
		}
	}
	// A member that knows of a death receives nothing more from the dead one.
	m := w.members[rank]
	if !m.failed.In(w.dead) {
		return fmt.Errorf("rank %d holds %v for dead, but %v are", rank, m.failed, w.dead)
	}
	w.net = slices.DeleteFunc(w.net, func(p packet) bool { return p.to == rank && m.failed.Has(p.from) })
	return nil
}

func (w *world) checkDecision(rank int, d Decision) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("rank %d decides %d on %x %d %v: %s", rank, d.Seq, d.Value.Flags, d.Value.Max, d.Value.Failed, fmt.Sprintf(format, args...))
	}
	if int(d.Seq) <= len(w.decided) {
		if want := w.decided[d.Seq-1]; !equal(want, d.Value) {
			return fail("another has decided on %x %d %v", want.Flags, want.Max, want.Failed)
		}
		return nil
	}
	if int(d.Seq) != len(w.decided)+1 {
		return fail("%d is not decided", len(w.decided)+1)
	}
	w.decided = append(slices.Clip(w.decided), d.Value)
	highest := uint64(0)
	for r, m := range w.members {
		in := d.Value.Flags>>r&1 == 0
		if in {
			highest = 100*d.Seq + uint64(r)
		}
		if in && m.starts < d.Seq {
			return fail("rank %d is in it and has not started", r)
		}
		if !w.alive(r) || r == rank {
			continue
		}
		if !in || m.last.Seq+1 != d.Seq || !m.now.started {
			return fail("rank %d lives and is not in it", r)
		}
		if !m.now.mine.Failed.In(d.Value.Failed) {
			return fail("rank %d gave the failures %v", r, m.now.mine.Failed)
		}
	}
	if d.Value.Max != highest {
		return fail("the greatest is %d", highest)
	}
	if !d.Value.Failed.In(w.dead) {
		return fail("dead are %v", w.dead)
	}
	return nil
}

// finished checks a world in which nothing but deaths can happen.
func (w *world) finished() error {
	for r, m := range w.members {
		if w.alive(r) && (int(m.last.Seq) != w.goal || !m.now.heard.Empty() && m.now.started || len(m.queue) > 0 || len(m.early) > 0) {
			return fmt.Errorf("nothing can happen, and rank %d has decided %d of %d; it waits for %v", r, m.last.Seq, w.goal, m.WaitsFor())
		}
	}
	return nil
}

func (w *world) note(format string, args ...any) {
	if w.record {
		w.trail = append(w.trail, fmt.Sprintf(format, args...))
	}
}

func (w *world) story() string { return strings.Join(w.trail, "\n") }

func equal(a, b Value) bool {
	return a.Flags == b.Flags && a.Max == b.Max && a.Failed.Equal(b.Failed) && a.Acked.Equal(b.Acked)
}

// clone copies all mutable state.
func (w *world) clone() *world {
	c := *w
	c.net, c.wrote = slices.Clone(w.net), slices.Clone(w.wrote)
	c.trail = slices.Clip(w.trail)
	c.members = make([]*Member, w.size)
	for r, m := range w.members {
		d := *m
		d.queue = slices.Clone(m.queue)
		d.early = slices.Clone(m.early)
		c.members[r] = &d
	}
	return &c
}

// state appends everything that the future of the world depends on.
func (w *world) state(b []byte) []byte {
	b = appendSet(b, w.dead)
	for _, v := range w.decided {
		b = appendValue(b, v)
	}
	for r, m := range w.members {
		if !w.alive(r) {
			continue
		}
		a := &m.now
		b = append(b, byte(r), byte(m.starts), byte(m.last.Seq), byte(len(m.queue)), flag(a.started), flag(a.accepted), flag(a.answered),
			byte(a.stage), byte(a.ballot.Leader), byte(a.ballot.Attempt))
		for _, s := range []Set{m.failed, a.tree.excluded, a.heard} {
			b = appendSet(b, s)
		}
		if w.shy {
			b = appendSet(b, w.wrote[r])
		}
		for _, v := range []Value{a.mine, a.value, a.sum} { // the last decision is in w.decided
			b = appendValue(b, v)
		}
		for _, e := range m.early {
			b = e.message.Append(append(b, byte(e.from)))
		}
	}
	if !w.fifo {
		slices.SortFunc(w.net, func(p, q packet) int {
			return cmp.Or(p.from-q.from, p.to-q.to, bytes.Compare(p.bytes, q.bytes))
		})
	} else {
		slices.SortStableFunc(w.net, func(p, q packet) int { return cmp.Or(p.from-q.from, p.to-q.to) })
	}
	for _, p := range w.net {
		b = append(append(b, 0xff, byte(p.from), byte(p.to)), p.bytes...)
	}
	return b
}

func appendValue(b []byte, v Value) []byte {
	b = binary.BigEndian.AppendUint64(b, v.Flags)
	b = binary.BigEndian.AppendUint16(b, uint16(v.Max))
	return appendSet(appendSet(b, v.Failed), v.Acked)
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
