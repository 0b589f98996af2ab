// Package tally counts what a rank has sent, and how much of it to other sites, and compares times of ranks.
// The figures are those of the library's links, so messages of collectives are
// in them. It keeps no state: a phase's traffic is the difference of two counts.
package tally

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Traffic is what one or more ranks have sent. Encoded as JSON it has lower-case
// names. Bytes are those of messages, without envelopes.
type Traffic struct {
	Messages    int64 `json:"messages"` // to any rank
	Bytes       int64 `json:"bytes"`
	WANMessages int64 `json:"wan_messages"` // to ranks of other sites
	WANBytes    int64 `json:"wan_bytes"`
}

// Sent returns what this rank has sent so far. places are those of the world's
// ranks.
func Sent(comm *mpilib.Comm, places []overlay.NodeID) (t Traffic) {
	world := comm.World()
	here := places[world.Comm().Rank()].Site
	for _, l := range world.Links() {
		t.Messages += int64(l.MessagesSent)
		t.Bytes += int64(l.BytesSent)
		if places[l.Peer].Site != here {
			t.WANMessages += int64(l.MessagesSent)
			t.WANBytes += int64(l.BytesSent)
		}
	}
	return t
}

// Since returns what was sent between u and t.
func (t Traffic) Since(u Traffic) Traffic {
	return Traffic{t.Messages - u.Messages, t.Bytes - u.Bytes, t.WANMessages - u.WANMessages, t.WANBytes - u.WANBytes}
}

// Sum returns what all ranks have sent together, the same on each; where ranks have replicas, one of each rank's counts. A
// collective call.
func (t Traffic) Sum(ctx context.Context, comm *mpilib.Comm) (Traffic, error) {
	all, err := Decided(ctx, comm, []int64{t.Messages, t.Bytes, t.WANMessages, t.WANBytes})
	if err != nil {
		return Traffic{}, err
	}
	err = mpilib.Allreduce(ctx, comm, all, all, mpilib.Sum)
	return Traffic{all[0], all[1], all[2], all[3]}, err
}
