package nodeservice

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

func joins(node string, ranks ...uint32) *nodepb.ToNode {
	return &nodepb.ToNode{Say: &nodepb.ToNode_Join{Join: &nodepb.Join{Node: &nodepb.NodeOfJob{Node: node, Ranks: ranks}}}}
}

// A process that replaces another one learns its number, and all replacements so far.
func TestReplacement(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("echo $ISTHMUS_RANK $ISTHMUS_SIZE $ISTHMUS_SPARES $ISTHMUS_REPLACEMENTS", func(s *nodepb.Start) {
		s.Size, s.Spares, s.Replacements, s.Processes = 3, 4, []uint32{2, 0}, []*nodepb.Process{{Rank: 4}}
		s.Environment = nodepb.Bytes([]string{"ISTHMUS_SPARES=9"})
	})
	for {
		if m := c.hear(); m.GetOutput() != nil {
			if got := string(m.GetOutput().Data); got != "4 3 4 2,0\n" || m.GetOutput().Process.Rank != 4 {
				t.Errorf("process %v prints %q", m.GetOutput().Process, got)
			}
			break
		}
	}
	c.listen()
	for what, s := range map[string]*nodepb.Start{
		"rank 1, replica 0 of a job of 1 ranks":        {Spares: 1, Processes: []*nodepb.Process{{Rank: 1}}},
		"processes with 1 spare numbers replace [1]":   {Spares: 1, Replacements: []uint32{1}},
		"processes with 1 spare numbers replace [0 0]": {Spares: 1, Replacements: []uint32{0, 0}},
		"2 spare numbers replace [2]":                  {Spares: 2, Replicas: 2, Replacements: []uint32{2}},
		"rank 3, replica 0 of a job of 1 ranks":        {Spares: 2, Replicas: 2, Replacements: []uint32{1}, Processes: []*nodepb.Process{{Rank: 3}}},
		"rank 2, replica 1 of a job of 1 ranks":        {Spares: 2, Replicas: 2, Replacements: []uint32{1}, Processes: []*nodepb.Process{{Rank: 2, Copy: 1}}},
		"rank 1, replica 0 of a job of 1 ranks.":       {Spares: 2, Replicas: 2, Replacements: []uint32{1}, Processes: []*nodepb.Process{{Rank: 1}}},
		"4294967295 spare numbers for 1 ranks":         {Spares: 1<<32 - 1},
	} {
		c := h.talk().booked()
		s.Argv = nodepb.Bytes([]string{"true"})
		if m := c.start(s); !strings.Contains(string(m.GetRefused().GetText()), strings.TrimSuffix(what, ".")) {
			t.Errorf("the node says %v, want %s", m, what)
		}
		c.cancel()
	}
}

// A process that comes in place of a lost replica is that replica, for itself and for who lists jobs, and has a number besides.
func TestNewcomer(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("echo $ISTHMUS_RANK $ISTHMUS_SIZE $ISTHMUS_COPY $ISTHMUS_COPIES $ISTHMUS_SPARES ${ISTHMUS_REPLACEMENTS-none} $ISTHMUS_PROCESS; sleep 1000", func(s *nodepb.Start) {
		s.Size, s.Replicas, s.Spares, s.Replacements, s.Processes = 3, 2, 4, []uint32{2, 4}, []*nodepb.Process{{Rank: 7}}
		s.Environment = nodepb.Bytes([]string{"ISTHMUS_PROCESS=9"})
	})
	for {
		if m := c.hear(); m.GetOutput() != nil {
			if got := string(m.GetOutput().Data); got != "1 3 1 2 4 none 7\n" || m.GetOutput().Process.Rank != 7 {
				t.Errorf("process %v prints %q", m.GetOutput().Process, got)
			}
			break
		}
	}
	all, err := h.list(Asker{})
	if err != nil || len(all.Jobs) != 1 || fmt.Sprint(all.Jobs[0].Places) != fmt.Sprint([]*nodepb.Process{{Rank: 1, Copy: 1}}) {
		t.Errorf("the job is listed as %v, %v", all, err)
	}
	c.cancel()
}

// A node that joins a job with spares is watched from then on, also by the next node service; deaths of processes
// with spare numbers are reported; other jobs take neither.
func TestJoin(t *testing.T) {
	said := make(chan string, 2)
	h := newHost(t, func(o *Options) {
		o.Dead = func(_ overlay.JobID, ranks []uint32, why string) { said <- fmt.Sprint(ranks) }
		o.Forget = func(overlay.JobID) {}
	})
	refused := func(c *talk, m *nodepb.ToNode, why string) {
		t.Helper()
		c.say(m)
		for {
			switch m := c.hear(); {
			case m.GetFault() == nil:
			case !strings.Contains(string(m.GetFault().GetText()), why):
				t.Errorf("the node says %v, want %s", m, why)
				return
			default:
				return
			}
		}
	}
	plain := h.talk().booked()
	refused(plain, joins("there/n1", 2), "no job with spares was committed here")
	plain.cancel()
	c := h.talk().booked()
	c.runs("sleep 1000", func(s *nodepb.Start) {
		s.Size, s.Spares, s.Processes = 2, 2, []*nodepb.Process{{}}
		s.Nodes = []*nodepb.NodeOfJob{{Node: here.String(), Ranks: []uint32{0}}, {Node: "there/n1", Ranks: []uint32{1}}}
	})
	for c.hear().GetCommitted() == nil {
	}
	c.say(joins("there/n2", 2))
	c.say(joins("there/n2", 2))
	refused(c, joins("nowhere", 2), "nowhere")
	h.do(func(time.Time) {
		for _, b := range h.bookings {
			if len(b.Joined) != 1 || b.Joined[0].Node != (overlay.NodeID{Site: "there", Name: "n2"}) || len(b.Joined[0].Ranks) != 1 {
				t.Errorf("%v have joined", b.Joined)
			}
		}
	})
	dead := func(n uint32) *nodepb.ToNode {
		return &nodepb.ToNode{Say: &nodepb.ToNode_Dead{Dead: &nodepb.Dead{Processes: []uint32{n}}}}
	}
	refused(c, dead(4), "the death of process 4 of 4")
	c.say(dead(3))
	if got := testkit.Receive(t, "the death", said); got != "[3]" {
		t.Errorf("the node service reported %s", got)
	}
	c.cancel()
}

// What the failure detector here takes for dead its submitter hears, and all of it again on another stream. A job that is
// over leaves no record behind, whatever is still heard of it.
func TestTakenForDead(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("sleep 1000", func(s *nodepb.Start) { s.Size, s.Spares, s.Processes = 3, 1, []*nodepb.Process{{}} })
	for c.hear().GetCommitted() == nil {
	}
	var b *booking
	h.do(func(time.Time) { b = h.bookings[reserve.Key(c.id)] })
	hears := func(want ...string) {
		t.Helper()
		for {
			if m := c.hear(); m == nil || m.GetTakenForDead() != nil {
				if got := m.GetTakenForDead().GetNodes(); !slices.Equal(got, want) {
					t.Errorf("the node says that it takes %q for dead, want %q", got, want)
				}
				return
			}
		}
	}
	b.takeForDead(overlay.NodeID{Site: "there", Name: "n1"})
	hears("there/n1")
	c.hang()
	b.takeForDead(overlay.NodeID{Site: "there", Name: "n2"})
	c.open()
	if m := c.attach(c.last); m.GetAttached() == nil {
		t.Fatalf("the node says %v", m)
	}
	hears("there/n1", "there/n2")
	c.cancel()
	for c.hear().GetCancelled() == nil {
	}
	b.takeForDead(overlay.NodeID{Site: "there", Name: "n3"})
	if err := b.join(&nodepb.Join{Node: &nodepb.NodeOfJob{Node: "there/n4"}}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.recordFile(b.agent.name)); !os.IsNotExist(err) {
		t.Errorf("the record of a job that is gone: %v", err)
	}
}
