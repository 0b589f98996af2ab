package schedule

import (
	"fmt"
	"strings"
)

// Space identifies one of the memories that a schedule works on.
type Space uint8

const (
	Input   Space = iota // the caller's send buffer; not changed, unless it and Output overlap
	Output               // the caller's receive buffer
	Scratch              // memory of the call itself
	spaces
)

func (s Space) String() string {
	names := [...]string{"in", "out", "scratch"}
	if int(s) >= len(names) {
		return fmt.Sprintf("Space(%d)", s)
	}
	return names[s]
}

// Region is Len bytes of a space, from Off on.
type Region struct {
	Space    Space
	Off, Len int
}

// Cut returns the bytes from off to end of r.
func (r Region) Cut(off, end int) Region {
	if off < 0 || end < off || end > r.Len {
		panic(fmt.Sprintf("schedule: bytes %d to %d of %v", off, end, r))
	}
	return Region{r.Space, r.Off + off, end - off}
}

func (r Region) String() string { return fmt.Sprintf("%v[%d:%d]", r.Space, r.Off, r.Off+r.Len) }

func (r Region) overlaps(o Region) bool {
	return r.Space == o.Space && r.Off < o.Off+o.Len && o.Off < r.Off+r.Len
}

// Kind is the action of a step.
type Kind uint8

const (
	Send    Kind = iota // From goes to Peer
	Receive             // To is filled by Peer
	Copy                // To becomes From
	Reduce              // To becomes From op To: From is the operand of the lower ranks
)

func (k Kind) String() string {
	names := [...]string{"send", "receive", "copy", "reduce"}
	if int(k) >= len(names) {
		return fmt.Sprintf("Kind(%d)", k)
	}
	return names[k]
}

// Step is one action of a rank.
type Step struct {
	Kind     Kind
	Peer     int    // of Send and Receive
	Slot     int    // number of the message between the pair
	From, To Region // as Kind says; of equal length if both are used
	After    []int  // the steps that must be done first; all have smaller numbers
}

func (s Step) String() string {
	switch s.Kind {
	case Send:
		return fmt.Sprintf("send %v to rank %d, message %d", s.From, s.Peer, s.Slot)
	case Receive:
		return fmt.Sprintf("receive %v from rank %d, message %d", s.To, s.Peer, s.Slot)
	}
	return fmt.Sprintf("%v %v to %v", s.Kind, s.From, s.To)
}

// message describes a Send or a Receive to readers who do not know the schedule.
func (s *Step) message() string {
	if s.Kind == Send {
		return fmt.Sprintf("send %d bytes to rank %d", s.From.Len, s.Peer)
	}
	return fmt.Sprintf("receive %d bytes from rank %d", s.To.Len, s.Peer)
}

// Schedule is what one rank does in a collective call. It must not be changed.
type Schedule struct {
	Rank, Size int
	Steps      []Step
	Scratch    int // size of that space in bytes

	links *graph
}

// String lists the steps, one per line, with their numbers and the steps they wait for.
func (s *Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d of %d, %d bytes of scratch\n", s.Rank, s.Size, s.Scratch)
	for i, step := range s.Steps {
		fmt.Fprintf(&b, "%4d  %v", i, step)
		for k, a := range step.After {
			fmt.Fprintf(&b, "%s%d", [...]string{"  after ", ", "}[min(k, 1)], a)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
