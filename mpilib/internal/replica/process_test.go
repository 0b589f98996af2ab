package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// costs plays a program of rounds around a ring without failures, and counts.
func costs(t *testing.T, cfg Config, rounds int) (w *world, logical int) {
	t.Helper()
	programs := make([]program, cfg.Ranks)
	for rank := range programs {
		for i := range rounds {
			programs[rank] = append(programs[rank],
				op{kind: sends, sends: []message{{(rank + 1) % cfg.Ranks, 10, i % 5, false}}},
				op{kind: receives, recvs: []want{{(rank + cfg.Ranks - 1) % cfg.Ranks, 10, i % 5}}})
		}
	}
	w = newWorld(cfg, programs)
	w.drains = false // what the end of a job costs does not depend on its length
	r := rand.New(rand.NewPCG(1, 2))
	for {
		events := w.events()
		if len(events) == 0 {
			break
		}
		if err := w.happen(events[r.IntN(len(events))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.finished(); err != nil {
		t.Fatal(err)
	}
	return w, rounds * cfg.Ranks
}

// In both tables r data messages go for each message of the program, and few acknowledgements.
func TestCosts(t *testing.T) {
	for _, table := range []Table{Parallel, Primary} {
		for replicas := 1; replicas <= 3; replicas++ {
			cfg := Config{Layout: Layout{Ranks: 3, Replicas: replicas}, Table: table, MaxKept: 1 << 30}
			w, logical := costs(t, cfg, 400)
			acks := w.controls[Ack] + w.controls[Flush]
			t.Logf("%v, %d replicas: %d messages of the program, %d sent, %d acknowledgements", table, replicas, logical, w.data, acks)
			if w.data != replicas*logical {
				t.Errorf("%v, %d replicas: %d messages sent for %d of the program", table, replicas, w.data, logical)
			}
			if share := float64(acks) / float64(w.data); share > .05 {
				t.Errorf("%v, %d replicas: %.1f %% acknowledgements", table, replicas, 100*share)
			}
			if table == Parallel && w.crossed != 0 {
				t.Errorf("%d replicas: %d messages between sets of replicas", replicas, w.crossed)
			}
		}
	}
}

// divergence returns the first divergence among the effects of all processes.
func divergence(p *Process) *Divergence {
	for _, e := range p.Effects(nil) {
		if e.Kind == Diverge {
			return &e.Divergence
		}
	}
	return nil
}

// Replicas that send other content differ at the acknowledgement, whether they sent before or after it.
func TestContentDiverges(t *testing.T) {
	for _, late := range []bool{false, true} {
		p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 2, MaxKept: 1 << 20}) // replica 1 of rank 0
		ack := Message{Kind: Ack, Acks: []AckEntry{{Context: 4, Tag: 1, Count: 3, Digest: mix(mix(mix(0, 10), 11), 12)}}}
		send := func(call, digest uint64) {
			p.Send(&Send{Context: 4, To: 1, Tag: 1, Digest: digest, Call: call, Name: []string{"Send", "Isend"}[call/9], Line: fmt.Sprint("a.go:", call), InOrder: true})
		}
		send(7, 10)
		send(8, 11)
		if late {
			if err := p.Receive(1, ack); err != nil {
				t.Fatal(err)
			}
			if d := divergence(p); d != nil {
				t.Fatalf("too early: %v", d)
			}
		}
		send(9, 13)
		if !late {
			if err := p.Receive(1, ack); err != nil {
				t.Fatal(err)
			}
		}
		d := divergence(p)
		if d == nil || d.Rank != 0 || d.Replicas != [2]int{1, 0} || d.First != 7 || d.Last != 9 {
			t.Fatalf("late %v: %+v", late, d)
		}
		if got, want := d.Error(), "rank 0: replicas 1 and 0 differ in call 7 to 9, Send and Isend to rank 1, tag 1, a.go:7 to a.go:9: messages of different content"; got != want {
			t.Errorf("late %v: %s, want %s", late, got, want)
		}
	}
}

// A replica that sends fewer messages than another, or others before a point, differs.
func TestSendsDiverge(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 2, MaxKept: 1 << 20})
	if err := p.Receive(1, Message{Kind: Ack, Acks: []AckEntry{{Context: 4, Tag: 1, Count: 1}}}); err != nil {
		t.Fatal(err)
	}
	if d := divergence(p); d != nil {
		t.Fatalf("too early: %v", d)
	}
	p.Drain()
	if d := divergence(p); d == nil || d.Error() != "rank 0: replicas 1 and 0 differ, in messages to rank 1: the other sent more" {
		t.Errorf("the program ends, and another replica has sent more: %v", d)
	}

	leader := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 0, MaxKept: 1 << 20})
	follower := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 2, MaxKept: 1 << 20})
	leader.Send(&Send{Context: 4, To: 1, Tag: 5, InOrder: true})
	follower.Send(&Send{Context: 4, To: 1, Tag: 6, InOrder: true})
	leader.Decide(leader.Begin(3, ""), Outcome{Data: "x"})
	for _, e := range leader.Effects(nil) {
		if e.Kind == SendControl && e.Process == 2 {
			if err := follower.Receive(0, e.Message); err != nil {
				t.Fatal(err)
			}
		}
	}
	follower.Outcome(follower.Begin(3, "a.go:1"))
	if d := divergence(follower); d == nil || d.Point != 1 || d.Lines[0] != "a.go:1" || d.Replicas != [2]int{1, 0} {
		t.Errorf("messages of other tags before a point: %+v", d)
	}
}

// What may depend on an outcome waits for the other replicas, unless the program says that nothing does.
func TestSendDeterministic(t *testing.T) {
	for _, free := range []bool{false, true} {
		p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, MaxKept: 1 << 20, SendDeterministic: free})
		p.Decide(p.Begin(3, ""), Outcome{})
		p.Send(&Send{Context: 4, To: 1})
		if sent := transmitted(p); sent != free || isCommitted(p) != free {
			t.Errorf("send deterministic %v: sent %v, committed %v", free, sent, isCommitted(p))
		}
		if err := p.Receive(2, Message{Kind: Committed, Count: 1}); err != nil {
			t.Fatal(err)
		}
		if sent := transmitted(p); sent == free || !isCommitted(p) {
			t.Errorf("send deterministic %v: then sent %v, committed %v", free, sent, isCommitted(p))
		}
	}
}

// isCommitted reports whether all live replicas have what a message that is sent now may depend on.
func isCommitted(p *Process) bool { return p.dependsOn() <= p.log.committed }

func transmitted(p *Process) (any bool) {
	for _, e := range p.Effects(nil) {
		any = any || e.Kind == Transmit
	}
	return any
}

// What a replica had of another leader's log says nothing of this one's.
func TestCommittedOfAnotherLeader(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 1, Replicas: 3}, Process: 1, MaxKept: 1 << 20})
	hear := func(m Message) {
		t.Helper()
		if err := p.Receive(2, m); err != nil {
			t.Fatal(err)
		}
	}
	hear(Message{Kind: Committed, Leader: 0, Count: 1})
	p.Fail(0)
	p.Decide(p.Begin(3, ""), Outcome{})
	if isCommitted(p) {
		t.Error("committed, and the other has what the last leader decided")
	}
	hear(Message{Kind: Committed, Leader: 1, Count: 1})
	if !isCommitted(p) {
		t.Error("not committed, and the other has it")
	}
}

// A rank is lost with the last of its replicas, whichever these are.
func TestLost(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 2, Replicas: 3}, MaxKept: 1 << 20})
	p.Send(&Send{Context: 4, To: 1, Bytes: 10})
	p.Effects(nil)
	for i, q := range []int{3, 1, 5} {
		p.Fail(q, q)
		lost, released := 0, 0
		for _, e := range p.Effects(nil) {
			switch e.Kind {
			case Lost:
				lost++
			case Release:
				released++
			}
		}
		if last := i == 2; (lost == 1) != last || (released == 1) != last || p.Lost(1) != last {
			t.Errorf("after %d failures: lost %d times, released %d times", i+1, lost, released)
		}
	}
}

// A send that waits for a rank that is lost fails, unless a replica was known to have received the message, or had left.
func TestUndelivered(t *testing.T) {
	ack := func(p *Process) error {
		return p.Receive(1, Message{Kind: Ack, Acks: []AckEntry{{Context: 4, Tag: 1, Count: 1}}})
	}
	leave := func(p *Process) error {
		p.Leave(1)
		return nil
	}
	for name, c := range map[string]struct {
		before func(*Process) error
		want   EffectKind
	}{"nobody has it": {nil, Undelivered}, "received": {ack, Complete}, "left": {leave, Complete}} {
		p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, MaxKept: 1 << 20})
		p.Send(&Send{Context: 4, To: 1, Tag: 1, Synchronous: true})
		if c.before != nil {
			if err := c.before(p); err != nil {
				t.Fatal(err)
			}
		}
		var ends []EffectKind
		for _, q := range []int{1, 3} {
			if len(ends) > 0 {
				t.Errorf("%s: the send ends while a replica lives that has not received it", name)
			}
			p.Fail(q)
			for _, e := range p.Effects(nil) {
				if e.Kind == Complete || e.Kind == Undelivered {
					ends = append(ends, e.Kind)
				}
			}
		}
		if len(ends) != 1 || ends[0] != c.want {
			t.Errorf("%s: the send ends with effects %v, want %v", name, ends, c.want)
		}
	}
}

// Of a process that was condemned nothing is accepted, and it is told so once.
func TestCondemned(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 1, MaxKept: 1 << 20})
	if err := p.Receive(2, Message{Kind: Query, Failed: []int{0}}); err != nil {
		t.Fatal(err)
	}
	list := p.Effects(nil)
	if len(list) != 2 || list[0].Kind != Condemn || list[0].Process != 0 || list[1].Kind != SendControl || list[1].Process != 2 || list[1].Message.Kind != Have {
		t.Fatalf("%+v", list)
	}
	for i := range 2 {
		if _, v := p.Arrive(0, 4, 1, 10); v != Stale {
			t.Errorf("verdict %d of a condemned process's message", v)
		}
		if told := len(p.Effects(nil)) == 1; told != (i == 0) {
			t.Errorf("message %d: told %v", i, told)
		}
	}
	if err := p.Receive(2, Message{Kind: Failures, Failed: []int{1}}); err != nil {
		t.Fatal(err)
	}
	if list := p.Effects(nil); len(list) != 1 || list[0].Kind != Expel {
		t.Errorf("%+v", list)
	}
}

// A message whose bytes were all here when its server failed, and which is delivered only after the next server has asked, is
// sent again, and dropped; the one behind it is not taken for it.
func TestDeliveredLate(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 2, Replicas: 2}, Process: 1, MaxKept: 1 << 20})
	old, _ := p.Arrive(0, 4, 1, 10)
	if err := p.Receive(2, Message{Kind: Query, Failed: []int{0}}); err != nil {
		t.Fatal(err)
	}
	p.Delivered(0, 4, 1, old, 1)
	for i, want := range []Verdict{Duplicate, Fresh} {
		if _, v := p.Arrive(2, 4, 1, 10); v != want {
			t.Errorf("message %d again: verdict %d, want %d", i, v, want)
		}
	}
}

// What no process of the job sends is refused.
func TestRefusals(t *testing.T) {
	p := New(Config{Layout: Layout{Ranks: 2, Replicas: 3}, Process: 2, MaxKept: 1 << 20})
	for name, c := range map[string]struct {
		from int
		m    Message
	}{
		"itself":                     {2, Message{Kind: Query}},
		"no process":                 {6, Message{Kind: Query}},
		"acks within a rank":         {0, Message{Kind: Ack}},
		"decisions of another rank":  {1, Message{Kind: Decisions}},
		"decisions of no leader":     {4, Message{Kind: Decisions}},
		"decisions after a gap":      {0, Message{Kind: Decisions, Count: 1}},
		"a server that is not to be": {1, Message{Kind: Query}},
		"an answer without a query":  {1, Message{Kind: Have}},
		"a leader beside another":    {4, Message{Kind: Lead}},
		"used more than is there":    {0, Message{Kind: Committed, Count: 1, Used: 2}},
	} {
		if err := p.Receive(c.from, c.m); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A process takes whatever others say without panicking, and tells nothing to itself or the failed.
func FuzzReceive(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		l := Layout{Ranks: 1 + r.IntN(3), Replicas: 1 + r.IntN(3)}
		p := New(Config{Layout: l, Process: r.IntN(l.Size()), MaxKept: 500, MaxAhead: 2, AckEvery: 2})
		for range 200 {
			disturb(p, r)
			for _, e := range p.Effects(nil) {
				if e.Kind == SendControl && (e.Process == p.cfg.Process || e.Process < 0 || e.Process >= l.Size()) {
					t.Fatalf("%+v", e)
				}
			}
		}
	})
}

// disturb has something happen to a process.
func disturb(p *Process, r *rand.Rand) {
	from := r.IntN(p.cfg.Size())
	small := func() uint64 { return uint64(r.IntN(4)) }
	switch r.IntN(6) {
	case 0:
		if to := r.IntN(p.cfg.Ranks); to != p.rank {
			p.Send(&Send{Context: uint32(small()), To: to, Tag: r.IntN(2), Bytes: r.IntN(300)})
		}
	case 1:
		if p.cfg.Rank(from) != p.rank {
			context, tag := uint32(small()), r.IntN(2)
			if a, v := p.Arrive(from, context, tag, 10); v <= Resumed && r.IntN(2) == 0 {
				p.Delivered(p.cfg.Rank(from), context, tag, a, 1)
			}
		}
	case 2:
		if at := p.Begin(1, ""); p.Answer(at) == Choose {
			p.Decide(at, Outcome{})
		}
	case 3:
		p.Post(&Receive{Context: uint32(small()), Source: AnySource})
	default:
		m := Message{Kind: Kind(1 + r.IntN(8)), Count: small(), Used: small(), Leader: r.IntN(p.cfg.Replicas)}
		for q := range p.cfg.Size() {
			if r.IntN(8) == 0 {
				m.Failed = append(m.Failed, q)
			}
		}
		for range r.IntN(3) {
			m.Acks = append(m.Acks, AckEntry{Context: uint32(small()), Tag: r.IntN(2), Count: 1 + uint32(small())})
			m.Entries = append(m.Entries, Entry{Point: 1 + small()})
		}
		p.Receive(from, m)
	}
}
