package schedule

import (
	"fmt"
	"slices"
)

// Builder makes the Schedule of a rank, step by step. It is for one goroutine. Empty
// messages are messages, too: ranks that disagree about a length are to hear of it
// and not to wait. It panics on what no algorithm can mean: a message to the rank
// itself, or operands of different lengths.
type Builder struct {
	s       Schedule
	inPlace int // where in Output the Input lies, or -1
	sent    []int
	got     []int
	live    [spaces][]access // what later steps may depend on
}

// access is a step's use of a region.
type access struct {
	region Region
	step   int
	writes bool
}

// NewBuilder begins the schedule of a rank.
func NewBuilder(rank, size int) *Builder {
	if rank < 0 || rank >= size {
		panic(fmt.Sprintf("schedule: rank %d of %d", rank, size))
	}
	return &Builder{s: Schedule{Rank: rank, Size: size}, inPlace: -1, sent: make([]int, size), got: make([]int, size)}
}

// InPlace says that there is no Input of its own: it lies in Output from byte off
// on (MPI_IN_PLACE). It is to be called first.
func (b *Builder) InPlace(off int) { b.inPlace = off }

// Rank returns whose schedule it is, and of how many.
func (b *Builder) Rank() (rank, size int) { return b.s.Rank, b.s.Size }

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

// Signal adds an empty message to another rank, of which it is only wanted that it
// comes. It goes when all that was added before is done.
func (b *Builder) Signal(to int) {
	b.peer(to)
	b.s.Steps = append(b.s.Steps, Step{Kind: Send, Peer: to, Slot: b.sent[to], After: b.ends()})
	b.sent[to]++
}

// Await adds the receipt of another rank's Signal. A Signal that is added later goes
// after it has come.
func (b *Builder) Await(from int) {
	b.peer(from)
	b.s.Steps = append(b.s.Steps, Step{Kind: Receive, Peer: from, Slot: b.got[from]})
	b.got[from]++
}

// Copy adds a copy. Of bytes onto themselves it adds nothing.
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

// Done returns the schedule. The Builder is not to be used any more.
func (b *Builder) Done() *Schedule {
	b.s.frees = b.s.followers()
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
	return r
}

// add appends a step that depends on every earlier one that writes what it touches, or
// touches what it writes.
func (b *Builder) add(s Step) {
	n := len(b.s.Steps)
	if s.Kind != Receive {
		b.uses(&s, access{s.From, n, false})
	}
	if s.Kind != Send {
		b.uses(&s, access{s.To, n, true})
	}
	slices.Sort(s.After)
	s.After = slices.Compact(s.After)
	b.s.Steps = append(b.s.Steps, s)
}

// uses notes an access. Of those before it that it hides, because whoever depended on
// them will depend on it, none is kept.
func (b *Builder) uses(s *Step, a access) {
	if a.region.Len == 0 {
		return
	}
	live := &b.live[a.region.Space]
	kept := (*live)[:0]
	for _, old := range *live {
		if old.step != a.step && (a.writes || old.writes) && a.region.overlaps(old.region) {
			s.After = append(s.After, old.step)
			if a.writes && a.region.covers(old.region) {
				continue
			}
		}
		kept = append(kept, old)
	}
	*live = append(kept, a)
}

// ends returns the steps that no other depends on: when they are done, all are.
func (b *Builder) ends() []int {
	waited := make([]bool, len(b.s.Steps))
	for _, s := range b.s.Steps {
		for _, a := range s.After {
			waited[a] = true
		}
	}
	var ends []int
	for i, w := range waited {
		if !w {
			ends = append(ends, i)
		}
	}
	return ends
}
