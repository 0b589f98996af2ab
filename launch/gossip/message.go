package gossip

import (
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Kind is what a message is for.
type Kind uint8

// The kinds of messages.
const (
	Gossip Kind = iota + 1 // all that the sender knows
	Ping                   // are you alive? Its one entry is the sender
	Pong                   // yes. Its one entry is the sender
)

func (k Kind) String() string {
	switch k {
	case Gossip:
		return "gossip"
	case Ping:
		return "ping"
	case Pong:
		return "pong"
	}
	return "unknown"
}

// Message goes from one detector to another. It is unordered, may be lost, and
// may arrive twice; the sooner the better. The receiver does not keep Entries.
type Message struct {
	From, To overlay.NodeID
	Kind     Kind
	Round    uint64 // the number of the sender's period
	Entries  []Entry
}

// Entry is what a host knows of another, or of itself.
type Entry struct {
	ID          overlay.NodeID
	Incarnation uint64
	Heartbeat   uint64
	Age         time.Duration // of the heartbeat, when the message was sent
	Left        bool          // it took its leave
}

// VerdictKind is what became of a host.
type VerdictKind uint8

// The kinds of verdicts.
const (
	Joined   VerdictKind = iota + 1 // is new, or is back in another incarnation
	Failed                          // is dead, or out of reach of this host for as long as that takes
	Returned                        // was declared failed and was not dead
	Left                            // took its leave
)

func (k VerdictKind) String() string {
	return [...]string{"?", "joined", "failed", "returned", "left"}[min(int(k), 4)%5]
}

// Verdict is what a detector tells the processes of its host.
type Verdict struct {
	ID          overlay.NodeID
	Incarnation uint64 // 0: it was never heard of
	Kind        VerdictKind
	Silent      time.Duration // how old the last news of it was
	Reason      string        // of Failed, in words
}

// Output is what is to be done after a call: send messages, in any order, and
// pass on verdicts, in this order. The slices are the caller's.
type Output struct {
	Send     []Message
	Verdicts []Verdict
}
