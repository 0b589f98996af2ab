package schedule

import (
	"fmt"
	"slices"
)

// Builder makes the Schedule of a rank, step by step. It is for one goroutine. It adds empty
// messages too, so that ranks that disagree about a length get an error instead of blocking. It
// panics on steps that are errors in the algorithm: a message to the rank itself, or operands of
// different lengths.
type Builder struct {
	s       Schedule
	inPlace int // offset of Input in Output, or -1
	within  int // offset of Output in Input, or -1
	sent    []int
	got     []int
	uses    [spaces]uses
	seen    int    // number of steps that the following two include
	ends    []int  // steps, except signals, that no later step except signals depends on
	after   []int  // for add
	spare   []int  // memory for the steps' After
	waited  []bool // of each step, whether such a later one depends on it
}

// NewBuilder begins the schedule of a rank.
func NewBuilder(rank, size int) *Builder {
	if rank < 0 || rank >= size {
		panic(fmt.Sprintf("schedule: rank %d of %d", rank, size))
	}
	counts := make([]int, 2*size)
	return &Builder{s: Schedule{Rank: rank, Size: size}, inPlace: -1, within: -1, sent: counts[:size], got: counts[size:]}
}

// InPlace says that there is no separate Input: it lies in Output from byte off on (MPI_IN_PLACE).
// It must be called first.
func (b *Builder) InPlace(off int) { b.inPlace = off }

// Within says that the Output is a part of the Input, from byte off on. It must be called first.
func (b *Builder) Within(off int) { b.within = off }

// Scratch returns n bytes that nothing else uses.
func (b *Builder) Scratch(n int) Region {
	r := Region{Scratch, b.s.Scratch, n}
	b.s.Scratch += n
	return r
}

// Send adds a message to another rank.
func (b *Builder) Send(to int, from Region) {
	b.peer(to)
	b.add(Step{Kind: Send, Peer: to, Slot: b.sent[to], From: b.real(from)})
	b.sent[to]++
}

// Receive adds a message from another rank.
func (b *Builder) Receive(from int, to Region) {
	b.peer(from)
	b.add(Step{Kind: Receive, Peer: from, Slot: b.got[from], To: b.real(to)})
	b.got[from]++
}

// Signal adds an empty message to another rank, whose arrival is all that matters. It is sent when
// every earlier step is done, except other Signals, for which it does not wait.
func (b *Builder) Signal(to int) {
	b.peer(to)
	b.noteSpace()
	b.s.Steps = append(b.s.Steps, Step{Kind: Send, Peer: to, Slot: b.sent[to], After: slices.Clone(b.ends)})
	b.waited = append(b.waited, false)
	b.seen++
	b.sent[to]++
}

// Await adds the receive of another rank's Signal. A Signal that is added later is sent after it
// has arrived.
func (b *Builder) Await(from int) {
	b.peer(from)
	b.s.Steps = append(b.s.Steps, Step{Kind: Receive, Peer: from, Slot: b.got[from]})
	b.got[from]++
}

// Copy adds a copy. It adds nothing for a copy of bytes onto themselves.
func (b *Builder) Copy(to, from Region) {
	from, to = b.real(from), b.real(to)
	equal(from, to)
	if from.Len > 0 && from != to {
		b.add(Step{Kind: Copy, From: from, To: to})
	}
}

// Reduce adds a reduction of from, the operand of lower ranks, into to.
func (b *Builder) Reduce(to, from Region) {
	from, to = b.real(from), b.real(to)
	equal(from, to)
	if from.Len > 0 {
		b.add(Step{Kind: Reduce, From: from, To: to})
	}
}

// Done returns the schedule. The Builder must not be used afterwards.
func (b *Builder) Done() *Schedule {
	b.s.links = b.s.link()
	return &b.s
}

func (b *Builder) peer(p int) {
	if p == b.s.Rank || p < 0 || p >= b.s.Size {
		panic(fmt.Sprintf("schedule: a message between rank %d of %d and %d", b.s.Rank, b.s.Size, p))
	}
}

func equal(from, to Region) {
	if from.Len != to.Len || from.overlaps(to) && from != to {
		panic(fmt.Sprintf("schedule: from %v to %v", from, to))
	}
}

// real returns where a region lies.
func (b *Builder) real(r Region) Region {
	if r.Space == Input && b.inPlace >= 0 {
		return Region{Output, b.inPlace + r.Off, r.Len}
	}
	if r.Space == Output && b.within >= 0 {
		return Region{Input, b.within + r.Off, r.Len}
	}
	return r
}

// add appends a step that depends, directly or through others, on every earlier step that writes
// bytes it touches, or touches bytes it writes.
func (b *Builder) add(s Step) {
	n := int32(len(b.s.Steps))
	after := b.after[:0]
	if s.Kind != Receive && s.From.Len > 0 {
		after = b.uses[s.From.Space].read(s.From, n, after)
	}
	if s.Kind != Send && s.To.Len > 0 {
		after = b.uses[s.To.Space].write(s.To, n, after)
	}
	b.after = after
	if len(after) > 1 {
		slices.Sort(after)
		after = slices.Compact(after)
	}
	s.After = b.keep(after)
	b.s.Steps = append(b.s.Steps, s)
}

// keep returns a copy.
func (b *Builder) keep(after []int) []int {
	if len(after) == 0 {
		return nil
	}
	if len(b.spare) < len(after) {
		b.spare = make([]int, max(len(after), min(2*len(b.s.Steps), 1024), 16))
	}
	kept := b.spare[:len(after):len(after)]
	b.spare = b.spare[len(after):]
	copy(kept, after)
	return kept
}

// noteSpace brings ends up to date. None of the steps that it adds is a signal.
func (b *Builder) noteSpace() {
	for ; b.seen < len(b.s.Steps); b.seen++ {
		for _, a := range b.s.Steps[b.seen].After {
			b.waited[a] = true
		}
		b.ends = append(b.ends, b.seen)
		b.waited = append(b.waited, false)
	}
	b.ends = slices.DeleteFunc(b.ends, func(i int) bool { return b.waited[i] })
}
