package gossip

import (
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Kind is the purpose of a message.
type Kind uint8

// The kinds of messages.
const (
	Gossip Kind = iota + 1 // all the sender's entries
	Ping                   // requests a Pong. Its one entry is the sender
	Pong                   // answers a Ping. Its one entry is the sender
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

// Message is sent from one detector to another. Messages are unordered, may be lost, and may be
// duplicated. The receiver does not retain Entries.
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
	Left        bool          // it left
}

// VerdictKind is what happened to a host.
type VerdictKind uint8

// The kinds of verdicts.
const (
	Joined   VerdictKind = iota + 1 // is new, or is back in another incarnation
	Failed                          // is dead, or has been unreachable for the same time
	Returned                        // was declared failed and is alive
	Left                            // left by itself
)

func (k VerdictKind) String() string {
	return [...]string{"?", "joined", "failed", "returned", "left"}[min(int(k), 4)%5]
}

// Verdict is what a detector reports to the processes of its host.
type Verdict struct {
	ID          overlay.NodeID
	Incarnation uint64 // 0: it was never heard of
	Kind        VerdictKind
	Silent      time.Duration // age of its last heartbeat
	Reason      string        // of Failed, for people
}

// Output is what the caller must do after a call: send messages, in any order, and report verdicts,
// in this order. The caller owns the slices.
type Output struct {
	Send     []Message
	Verdicts []Verdict
}
