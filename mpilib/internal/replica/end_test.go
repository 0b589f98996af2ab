package replica

import (
	"slices"
	"testing"
)

// kinds returns the kinds of the effects of a Process, and to whom Done is told.
func kinds(p *Process) (all []EffectKind, done []int) {
	for _, e := range p.Effects(nil) {
		all = append(all, e.Kind)
		if e.Kind == SendControl && e.Message.Kind == Done {
			done = append(done, e.Process)
		}
	}
	return all, done
}

func receive(t *testing.T, p *Process, from int, m Message) {
	t.Helper()
	if err := p.Receive(from, m); err != nil {
		t.Fatal(err)
	}
}

// A process ends when all live replicas of its rank have drained; who has left needs nothing, is not
// reported as failed, and makes a rank lost only with the last of its replicas.
func TestEnd(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 2, Replicas: 3}, MaxKept: 1 << 20}) // replica 0 of rank 0: the others are 2 and 4, the other rank is 1, 3, 5
	p.Send(&Send{Context: 4, To: 1, Digest: 9})
	p.Drain()
	p.Effects(nil)
	if p.Ended() {
		t.Fatal("ended with a message that nobody has acknowledged")
	}
	p.Leave(3)
	ack := Message{Kind: Ack, Acks: []AckEntry{{Context: 4, Count: 1, Digest: mix(0, 9)}}}
	receive(t, p, 1, ack)
	if p.Drained() {
		t.Fatal("drained, and process 5 has acknowledged nothing")
	}
	receive(t, p, 5, ack)
	p.Effects(nil)
	if p.Ended() {
		t.Fatal("ended before the other replicas")
	}
	if _, done := kinds(p); !slices.Equal(done, []int{2, 4}) {
		t.Errorf("Done is told to %v", done)
	}
	receive(t, p, 4, Message{Kind: Done})
	if p.Ended() {
		t.Error("ended before replica 1")
	}
	p.Fail(2)
	if !p.Ended() {
		t.Error("not ended, and replica 1 has failed")
	}
	if f := failures(p); !slices.Equal(f, []int{2}) {
		t.Errorf("reported as failed: %v", f)
	}
	p.Effects(nil)
	p.Leave(1)
	if all, _ := kinds(p); slices.Contains(all, Lost) || p.Lost(1) {
		t.Error("a rank is lost that has a live replica")
	}
	p.Leave(5)
	if all, _ := kinds(p); !slices.Contains(all, Lost) {
		t.Error("a rank without replicas is not lost")
	}
}

// A process that leaves has acknowledged all that it has: a replica of the source that is behind the one that sent it, and
// sends something else, must still find that out.
func TestEndAcknowledges(t *testing.T) {
	layout := Layout{Ranks: 2, Replicas: 2}
	p, source := New(Config{Layout: layout, Process: 1}), New(Config{Layout: layout, Process: 2, SendDeterministic: true})
	a, verdict := p.Arrive(0, 4, 0, 1)
	if verdict != Fresh {
		t.Fatal(verdict)
	}
	p.Delivered(0, 4, 0, a, 9)
	p.Fail(0, 3)
	source.Fail(0, 3)
	p.Drain()
	if !p.Ended() {
		t.Fatal("not ended")
	}
	for _, e := range p.Effects(nil) {
		if e.Kind == SendControl && e.Process == 2 {
			receive(t, source, 1, e.Message)
		}
	}
	source.Leave(1)
	source.Send(&Send{Context: 4, To: 1, Digest: 8})
	if all, _ := kinds(source); !slices.Contains(all, Diverge) {
		t.Errorf("the other replica's message goes unnoticed: %v", all)
	}
}

// A process that leaves has sent less than a dead replica of its rank: who has received more finds that out, since nobody else does.
func TestLeftWithLess(t *testing.T) {
	for _, more := range []bool{false, true} {
		p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 1, AckEvery: 2})
		for range 2 {
			a, _ := p.Arrive(0, 4, 7, 1)
			p.Delivered(0, 4, 7, a, 9)
		}
		if more {
			a, _ := p.Arrive(0, 4, 7, 1)
			p.Delivered(0, 4, 7, a, 9)
		}
		if more { // the server lives still, and may be ahead
			q := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 1, AckEvery: 2})
			a, _ := q.Arrive(0, 4, 7, 1)
			q.Delivered(0, 4, 7, a, 9)
			q.Leave(2)
			if d := divergence(q); d != nil {
				t.Errorf("the server lives: %v", d)
			}
		}
		p.Fail(0)
		p.Leave(2)
		d := divergence(p)
		if (d != nil) != more || more && d.Error() != "rank 0: replicas 1 and 0 differ, in messages to rank 1: the other sent more" {
			t.Errorf("more %v: %v", more, d)
		}
	}
}

// The same where the process that was ahead is found to be dead only after the other one has left, whether its message came
// before that or after it, and acknowledged already to nobody who could say that it sent less.
func TestLeftBeforeAFailure(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after int // messages delivered before the other one has left, and after it
		leaves        bool
		differ        bool
	}{
		{"equal", 2, 0, false, false},
		{"ahead before", 3, 0, false, true},
		{"ahead after", 2, 2, false, true}, // which is acknowledged: to those that live
		{"not dead", 3, 0, true, false},
	} {
		p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 1, AckEvery: 2})
		receives := func(n int) {
			for range n {
				a, _ := p.Arrive(0, 4, 7, 1)
				p.Delivered(0, 4, 7, a, 9)
			}
		}
		receives(c.before)
		p.Leave(2)
		receives(c.after)
		if d := divergence(p); d != nil {
			t.Errorf("%s: the server may live: %v", c.name, d)
		}
		p.Fail(3)
		if p.Drain(); p.Ended() != (c.name == "equal") { // then nobody would find it out
			t.Errorf("%s: ended %v, and the server may be dead", c.name, c.name != "equal")
		}
		if c.leaves {
			p.Leave(0)
		} else {
			p.Fail(0)
		}
		d := divergence(p)
		if !p.Ended() {
			t.Errorf("%s: not ended", c.name)
		}
		if (d != nil) != c.differ || c.differ && d.Error() != "rank 0: replicas 1 and 0 differ, in messages to rank 1: the other sent more" {
			t.Errorf("%s: %v", c.name, d)
		}
	}
}

// What a dead process sent is matched only after its failure is known, and the other replica has left before both.
func TestLeftBeforeAMatch(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 1, AckEvery: 2})
	a, _ := p.Arrive(0, 4, 7, 1)
	p.Leave(2)
	p.Fail(0)
	if d := divergence(p); d != nil {
		t.Errorf("nothing of it is delivered: %v", d)
	}
	p.Delivered(0, 4, 7, a, 9)
	if divergence(p) == nil {
		t.Error("it is delivered, and nobody says that the other replica has not sent it")
	}
}

// A replica that leads only because the leader has left tells nobody: others may not know that yet.
func TestNobodyLeadsAfterTheEnd(t *testing.T) {
	for _, left := range []bool{false, true} {
		p := New(Config{Layout: Layout{Ranks: 1, Replicas: 3}, Process: 1})
		if left {
			p.Leave(0)
		} else {
			p.Fail(0)
		}
		all, _ := kinds(p)
		if slices.Contains(all, SendControl) == left || !p.IsLeader() {
			t.Errorf("left %v: %v, leads: %v", left, all, p.IsLeader())
		}
	}
}

// A synchronous send is complete when it is acknowledged, which is asked for, and holds up no other one.
func TestSynchronous(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, MaxKept: 2 * SendCost})
	p.Send(&Send{Context: 4, To: 1, Tag: 1, Digest: 9, Synchronous: true})
	if all, _ := kinds(p); slices.Contains(all, Copy) || !slices.Contains(all, SendControl) {
		t.Errorf("a synchronous send: %v", all)
	}
	for i := range 3 { // the third finds no room
		p.Send(&Send{Context: 4, To: 1, Tag: 2, Digest: 9})
		if all, _ := kinds(p); slices.Contains(all, Copy) != (i < 2) {
			t.Errorf("send %d after it: %v", i, all)
		}
	}
	ack := func(tag int) Message {
		return Message{Kind: Ack, Acks: []AckEntry{{Context: 4, Tag: tag, Count: 1, Digest: mix(0, 9)}}}
	}
	receive(t, p, 1, ack(2))
	receive(t, p, 3, ack(2))
	if all, _ := kinds(p); !slices.Contains(all, Copy) {
		t.Errorf("with room for the third: %v", all)
	}
	receive(t, p, 1, ack(1))
	if all, _ := kinds(p); slices.Contains(all, Complete) {
		t.Error("complete before all have acknowledged it")
	}
	receive(t, p, 3, ack(1))
	if all, _ := kinds(p); !slices.Contains(all, Complete) || p.Blocked() {
		t.Errorf("acknowledged: %v", all)
	}
}

// A digest that is not known is not compared, and nor is what is acknowledged with it.
func TestUnknownDigest(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 1, MaxKept: 1 << 20, AckEvery: 3})
	for i, digest := range []uint64{7, 0, 7} {
		a, _ := p.Arrive(0, 4, 1, 10)
		p.Delivered(0, 4, 1, a, digest)
		if i < 2 {
			continue
		}
		for _, e := range p.Effects(nil) {
			if e.Kind != SendControl || e.Message.Acks[0].Count != 3 || e.Message.Acks[0].Digest != 0 {
				t.Errorf("%+v", e)
			}
		}
	}
	q := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, MaxKept: 1 << 20})
	q.Send(&Send{Context: 4, To: 1, Tag: 1, Digest: 5})
	receive(t, q, 1, Message{Kind: Ack, Acks: []AckEntry{{Context: 4, Tag: 1, Count: 1}}})
	if d := divergence(q); d != nil {
		t.Error(d)
	}
}

// Who waits for an acknowledgement gets it although most of what was sent before has no receive yet.
func TestAcknowledgedBeforeOthers(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, MaxKept: 1 << 20})
	for range 9 {
		p.Send(&Send{Context: 4, To: 1, Tag: 1, Digest: 9})
	}
	p.Send(&Send{Context: 4, To: 1, Tag: 2, Digest: 9, Synchronous: true})
	q := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 1, MaxKept: 1 << 20})
	a, _ := q.Arrive(0, 4, 2, 0)
	for _, e := range p.Effects(nil) {
		if e.Kind == SendControl && e.Process == 1 {
			receive(t, q, 0, e.Message)
		}
	}
	q.Delivered(0, 4, 2, a, 9)
	for _, e := range q.Effects(nil) {
		if e.Kind == SendControl && e.Process == 0 && e.Message.Kind == Ack {
			return
		}
	}
	t.Error("what was matched is not acknowledged, though it was asked for")
}
