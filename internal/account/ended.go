package account

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

// LinkEnded is what a daemon knows of a link when it has ended: one that it carried, or one that no
// daemon carried and a process told of (OwnWord).
type LinkEnded struct {
	ID        string            // the same in every daemon; "": not known
	Principal overlay.Principal // on whose behalf it was
	Job       overlay.JobID
	Ranks     []uint32         // of its two processes, as far as known
	Nodes     []overlay.NodeID // of its two ends, likewise; without a name where only the site is known
	Technique string           // "": not known
	Relay     string           // the proxy's name
	Peer      string           // the addresses of its connections, or who told of it

	Traffic carrier.Stats // AToB from the first of Ranks or Nodes to the second
	Lasted  time.Duration
	Err     error  // why it ended before both ends closed it; nil: they did
	Rule    string // of its audit record
	Reason  string // likewise: why it ended, or how its bytes are known

	LimitedTo, LimitedBy string // the rate that held it, and that rate's setting or rule; "": none

	Count uint64 // how many links this sums up; 0: it is one link
}

// Subscribers are what happens at the end of each of a daemon's links, in this order. L is the link
// as its daemon has it, for what no other daemon would know.
type Subscribers[L any] []func(L, LinkEnded)

// Publish calls all of them.
func (s Subscribers[L]) Publish(link L, e LinkEnded) {
	for _, take := range s {
		take(link, e)
	}
}

// LimitAttrs returns what a line of a daemon's log says of the rate that held the link.
func (e LinkEnded) LimitAttrs() []any {
	if e.LimitedBy == "" {
		return nil
	}
	return []any{"limited_to", e.LimitedTo, "by", e.LimitedBy}
}

// RuleOwnWord is the Rule of a link that no daemon carried: its counts are those reported by the
// processes at its ends.
const RuleOwnWord = "own-word"

// OwnWord returns the end of a link that no daemon carried, by the last report of a process at a
// node. by is the reporter. The process was killed after it had not reported on the link for the
// time unsaid; 0 means that the process itself reported the link's end.
func OwnWord(process overlay.ProcessName, at overlay.NodeID, who overlay.Principal, by string, t overlay.Traffic, unsaid time.Duration) LinkEnded {
	e := LinkEnded{
		ID: hex.EncodeToString(t.Link[:]), Principal: who, Job: process.Job, Ranks: []uint32{process.Rank, t.Rank}, Nodes: []overlay.NodeID{at},
		Technique: t.Technique.String(), Peer: by, Traffic: carrier.Stats{AToB: t.Sent, BToA: t.Received}, Lasted: t.Lasted,
		Rule: RuleOwnWord, Reason: "no daemon carried it: the bytes are what the process says",
	}
	if t.Peer != (overlay.NodeID{}) {
		e.Nodes = append(e.Nodes, t.Peer)
	}
	if unsaid != 0 {
		e.Reason = fmt.Sprintf("no daemon carried it, and the process was gone without a word: the bytes are at least these, which it said %v before", unsaid.Round(time.Millisecond))
	}
	return e
}
