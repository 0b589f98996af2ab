package debug

import (
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// receive is a request of the program.
type receive struct {
	handle engine.Handle
	seen   *Observation
}

func (r *receive) Handle() *engine.Handle        { return &r.handle }
func (r *receive) Transfer() comm.Transfer       { return comm.Transfer{} }
func (r *receive) Observation() *Observation     { return r.seen }
func (r *receive) SetObservation(s *Observation) { r.seen = s }

// alone is the group of rank 0.
type alone struct{}

func (alone) Member(int) bool       { return true }
func (alone) Whole() bool           { return false }
func (alone) Acknowledged(int) bool { return false }

// A wait for any of several requests is part of a deadlock only where all of them belong to this world: the ranks
// that decide know nothing of another.
func TestWaitOfTwoWorldsIsNotBlocked(t *testing.T) {
	e := engine.New(engine.Config{Size: 1})
	t.Cleanup(e.Close)
	w, err := New(Config{Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	r := &receive{seen: &Observation{w: w}}
	e.StartRecv(&r.handle, alone{}, 0, 0, 1, nil)
	for _, elsewhere := range []bool{false, true} {
		over := w.WaitingAny([]Request{r}, elsewhere)
		if len(w.waits) != 1 {
			t.Fatalf("%d waits are recorded, want 1", len(w.waits))
		}
		for x := range w.waits {
			if x.blocked() == elsewhere {
				t.Errorf("with a request of another world %t: blocked %t", elsewhere, !elsewhere)
			}
		}
		over()
	}
}
