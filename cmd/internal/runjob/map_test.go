package runjob

import (
	"fmt"
	"os"
	"testing"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/submit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// dropped is a Fetcher that counts whose files it is to drop.
type dropped int

func (d *dropped) Piece(overlay.NodeID, string, os.FileMode, []byte, bool) error { return nil }
func (d *dropped) Fail(overlay.NodeID, string, error)                            {}
func (d *dropped) Drop(overlay.NodeID)                                           { *d++ }

// The map has all replicas of ranks, where they ran, and their reports, though other files are those of one replica; of
// replicas that are independent it has one.
func TestMapOfReplicas(t *testing.T) {
	a, b := overlay.NodeID{Site: "a", Name: "n1"}, overlay.NodeID{Site: "b", Name: "n1"}
	r := &submit.Result{
		Places: []submit.Placed{
			{Node: a, Processes: []allocate.Process{{Rank: 0}, {Rank: 1}}},
			{Node: b, Processes: []allocate.Process{{Rank: 0, Copy: 1}, {Rank: 1, Copy: 1}}},
		},
		Sources: map[int]overlay.NodeID{0: a, 1: b},
	}
	for independent, want := range map[bool]string{
		false: "map[{0 0}:a/n1 {0 1}:b/n1 {1 0}:a/n1 {1 1}:b/n1]",
		true:  "map[{0 0}:a/n1 {1 0}:b/n1]",
	} {
		if got := fmt.Sprint(nodesOf(&submit.Job{Independent: independent}, r)); got != want {
			t.Errorf("independent %t: %s, want %s", independent, got, want)
		}
	}
	var reported, others dropped
	(&reports{to: &reported, others: &others}).Drop(b)
	if reported != 0 || others != 1 {
		t.Errorf("the reports are dropped %d times, other files %d", reported, others)
	}
}
