package jobagent

import (
	"bytes"
	"testing"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

func output(n int) *nodepb.ToSubmitter {
	return &nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Output{Output: &nodepb.Output{Data: make([]byte, n)}}}
}

// Events are numbered from 1 and kept until acknowledged; Add blocks at the bound, Force does not.
func TestEvents(t *testing.T) {
	e := NewEvents()
	for n := 0; n+sizeOf(output(Piece))+64 <= MaxUnacked; n += sizeOf(output(Piece)) {
		e.Add(output(Piece))
	}
	for e.bytes+sizeOf(output(Piece)) <= MaxUnacked {
		e.Add(output(0))
	}
	added := make(chan struct{})
	go func() {
		e.Add(output(Piece))
		close(added)
	}()
	e.Force(output(MaxUnacked))
	var last uint64
	for m, _ := e.Next(0); m != nil; m, _ = e.Next(last) {
		if m.Event != last+1 {
			t.Fatalf("event %d comes after %d", m.Event, last)
		}
		last = m.Event
	}
	select {
	case <-added:
		t.Fatal("an event was added beyond the bound")
	default:
	}
	_, more := e.Next(last)
	e.Ack(last)
	<-added
	<-more
	if m, _ := e.Next(last); m.GetEvent() != last+1 {
		t.Errorf("after an acknowledgement of %d comes %v", last, m.GetEvent())
	}
	if e.Finished() {
		t.Error("an event Over that has not come counts as acknowledged")
	}
	e.Force(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Over{Over: &nodepb.Over{}}})
	if e.Ack(last + 1); e.Finished() {
		t.Error("the event Over counts as acknowledged")
	}
	if e.Ack(1 << 60); !e.Finished() {
		t.Error("the event Over does not count as acknowledged")
	}
	if e.bytes != 0 || len(e.queue) != 0 || e.first != last+3 {
		t.Errorf("after all was acknowledged, %d bytes are kept, and the next is %d", e.bytes, e.first)
	}
	e.Silence()
	for range 2 * MaxUnacked / Piece {
		e.Add(output(Piece))
	}
	if m, _ := e.Next(0); m != nil {
		t.Error("an event was added to a log that is mute")
	}
	e.Force(output(1))
	if m, _ := e.Next(0); m == nil {
		t.Error("what must be said was not")
	}
}

// A copy of an agent's events is bounded in memory, even if the events are tiny.
func TestTinyEvents(t *testing.T) {
	e := NewEvents()
	for n := uint64(1); ; n++ {
		if n > maxCopied/eventCost+1 {
			t.Fatalf("%d events are kept", len(e.queue))
		}
		m := &nodepb.ToSubmitter{Event: n, Say: &nodepb.ToSubmitter_Exited{Exited: &nodepb.Exited{}}}
		if e.Put(m) != nil {
			break
		}
	}
}

// Input continues where it ended, whatever is repeated.
func TestInput(t *testing.T) {
	in := newInput()
	for _, m := range []*nodepb.Input{
		{Data: []byte("abc")}, {Offset: 1, Data: []byte("bcd")}, {Offset: 0, Data: []byte("ab")}, {Offset: 4, Data: []byte("e"), End: true},
	} {
		if err := in.put(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.put(&nodepb.Input{Offset: 6}); err == nil {
		t.Error("input with a hole is taken")
	}
	var got sink
	in.feed(&got, nil, func(uint64) {})
	if taken, wants := in.taken(); got.String() != "abcde" || taken != 5 || wants {
		t.Errorf("fed %q, %d bytes taken, wants more: %t", got.String(), taken, wants)
	}
}

type sink struct{ bytes.Buffer }

func (*sink) Close() error { return nil }
