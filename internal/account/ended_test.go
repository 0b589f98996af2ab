package account

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Each subscriber gets each end once, in the order of the list, with the link.
func TestSubscribers(t *testing.T) {
	var calls []string
	note := func(who string) func(int, LinkEnded) {
		return func(link int, e LinkEnded) { calls = append(calls, fmt.Sprint(who, link, e.ID)) }
	}
	s := Subscribers[int]{note("a"), note("b"), note("c")}
	s.Publish(1, LinkEnded{ID: "x"})
	s.Publish(2, LinkEnded{ID: "y"})
	if want := []string{"a1x", "b1x", "c1x", "a2y", "b2y", "c2y"}; !slices.Equal(calls, want) {
		t.Errorf("called %v, want %v", calls, want)
	}
	Subscribers[int](nil).Publish(3, LinkEnded{})
}

func TestOwnWord(t *testing.T) {
	process, at := overlay.ProcessName{Job: "j", Rank: 4}, overlay.NodeID{Site: "a", Name: "a1"}
	who := overlay.Principal{User: "alice", Project: "climate"}
	told := overlay.Traffic{
		Link: [16]byte{15: 0xab}, Rank: 9, Peer: overlay.NodeID{Site: "b", Name: "b1"}, Technique: overlay.Direct, Sent: 5, Received: 7, Lasted: 3 * time.Second, Over: true,
	}
	want := LinkEnded{
		ID: "000000000000000000000000000000ab", Principal: who, Job: "j", Ranks: []uint32{4, 9}, Nodes: []overlay.NodeID{at, told.Peer}, Technique: "direct",
		Peer: "uid 7", Traffic: carrier.Stats{AToB: 5, BToA: 7}, Lasted: 3 * time.Second,
		Rule: "own-word", Reason: "no daemon carried it: the bytes are what the process says",
	}
	if got := OwnWord(process, at, who, "uid 7", told, 0); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	told.Peer = overlay.NodeID{} // an older peer did not name it
	want.Nodes = want.Nodes[:1]
	want.Reason = "no daemon carried it, and the process was gone without a word: the bytes are at least these, which it said 1.5s before"
	if got := OwnWord(process, at, who, "uid 7", told, 1500*time.Millisecond); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestLimitAttrs(t *testing.T) {
	if got := (LinkEnded{}).LimitAttrs(); got != nil {
		t.Errorf("not held: %v", got)
	}
	if got := fmt.Sprint(LinkEnded{LimitedTo: "2Mbit/s", LimitedBy: "quota.rate"}.LimitAttrs()); got != "[limited_to 2Mbit/s by quota.rate]" {
		t.Errorf("held: %v", got)
	}
}
