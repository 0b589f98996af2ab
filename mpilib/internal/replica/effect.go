package replica

import (
	"cmp"
	"fmt"
)

// An Effect is something that the owner of a Process is to do. The effects of a call are carried out in
// their order.
type Effect struct {
	Kind       EffectKind
	Process    int // Transmit, SendControl, Condemn, Seated, Watch
	Rank       int // Lost, Seated
	Send       *Send
	Receive    *Receive
	Message    Message // SendControl
	Divergence Divergence
}

// EffectKind says what an Effect means.
type EffectKind uint8

// The kinds, with the fields that they use.
const (
	// Transmit: send the message Send to Process, behind whatever was sent to it.
	Transmit EffectKind = iota
	// SendControl: send Message to Process, behind whatever was sent to it.
	SendControl
	// Copy: copy the bytes of Send; the send is complete for the program.
	Copy
	// Complete: the send is complete for the program. It was not copied, and its bytes are no longer needed.
	Complete
	// Undelivered: the send, which was not copied, fails: all replicas of its destination have failed, and none is known to
	// have the message.
	Undelivered
	// Release: the copy of Send is no longer needed.
	Release
	// Post: post Receive, with the source and tag that it has now.
	Post
	// Cancel: Receive is complete as cancelled. It was not posted.
	Cancel
	// Wake: points that wait may be ready, see Outcome.
	Wake
	// Condemn: Process is to be treated as failed: end the link, report it to others.
	Condemn
	// Lost: all replicas of Rank have failed. What needs it fails.
	Lost
	// Diverge: Divergence was found. The job ends.
	Diverge
	// Seated: Process is one of Rank from now on.
	Seated
	// Watch: this process waits for Process, whose failure may become known only by a link to it.
	Watch
	// Expel: others treat this process as failed. It ends, and writes nothing more.
	Expel
)

// A Divergence is a difference between two replicas of a rank. Calls are counted by the caller, see
// Send.Call.
type Divergence struct {
	Rank     int
	Replicas [2]int    // this one, and the one it differs from
	Point    uint64    // where the difference is; 0: not in a point
	First    uint64    // the difference is in this call,
	Last     uint64    // or one up to this; 0: unknown
	Names    [2]string // what First and Last are called; empty if unknown
	Lines    [2]string // where they, or the point, are in the source; empty if unknown
	Messages *Messages // that differ; nil: unknown
	What     string
}

// Messages are those of a stream. Their tag says something to the program if it is the program's own.
type Messages struct {
	Context uint32
	To      int // rank
	Tag     int
	Own     bool
}

func (m *Messages) String() string {
	if m.Own {
		return fmt.Sprintf("to rank %d, tag %d", m.To, m.Tag)
	}
	return fmt.Sprintf("to rank %d", m.To)
}

func (d Divergence) Error() string {
	where := ""
	switch {
	case d.Point > 0:
		where = fmt.Sprintf(" at point %d", d.Point)
	case d.First == d.Last && d.First > 0:
		where = fmt.Sprintf(" in call %d", d.First)
	case d.First > 0:
		where = fmt.Sprintf(" in call %d to %d", d.First, d.Last)
	}
	names := span(d.Names, " and ")
	switch {
	case d.Messages == nil:
	case names != "":
		where += fmt.Sprintf(", %s %v", names, d.Messages)
	default:
		where += fmt.Sprintf(", in messages %v", d.Messages)
	}
	if lines := span(d.Lines, " to "); lines != "" {
		where += ", " + lines
	}
	return fmt.Sprintf("rank %d: replicas %d and %d differ%s: %s", d.Rank, d.Replicas[0], d.Replicas[1], where, d.What)
}

// span writes what is known of both.
func span(of [2]string, between string) string {
	if of[0] == "" || of[1] == "" || of[0] == of[1] {
		return cmp.Or(of[0], of[1])
	}
	return of[0] + between + of[1]
}

// Explained returns d with what may be its cause.
func (d Divergence) Explained(sendDeterministic bool) error {
	cause := "what is sent may depend on the clock, random numbers, the order of a map, or several goroutines that use one communicator"
	if sendDeterministic {
		cause += "; or on the order in which messages arrive, although the job was started with --send-deterministic: omit that"
	}
	return fmt.Errorf("%w (%s)", d, cause)
}

// Effects returns what is to be done since the last call of Effects. The list is the caller's; the next one is
// gathered in spare.
func (p *Process) Effects(spare []Effect) (list []Effect) {
	list, p.effects = p.effects, spare[:0]
	return list
}

// HasEffects reports whether there is something to be done.
func (p *Process) HasEffects() bool { return len(p.effects) > 0 }

func (p *Process) emit(e Effect) { p.effects = append(p.effects, e) }

// sendControl sends m to a process that has not failed.
func (p *Process) sendControl(process int, m Message) {
	if !p.failed[process] {
		m.Epoch = p.cfg.Epoch
		p.emit(Effect{Kind: SendControl, Process: process, Message: m})
	}
}

// diverge reports that this replica and another differ, as d says.
func (p *Process) diverge(other int, d Divergence) {
	d.Rank, d.Replicas = p.rank, [2]int{p.replica, other}
	p.emit(Effect{Kind: Diverge, Divergence: d})
}
