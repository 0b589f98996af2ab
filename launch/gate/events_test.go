package gate

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
)

func output(n int) *gatepb.ToSubmitter {
	return &gatepb.ToSubmitter{Say: &gatepb.ToSubmitter_Output{Output: &gatepb.Output{Data: make([]byte, n)}}}
}

// Events are numbered from 1 and kept until acknowledged; whoever has more to say than
// is kept waits, but for what must be said.
func TestEvents(t *testing.T) {
	e := newEvents()
	for n := 0; n+piece+64 <= maxUnacked; n += proto.Size(output(piece)) {
		e.add(output(piece))
	}
	e.add(output(0))
	added := make(chan struct{})
	go func() {
		e.add(output(piece))
		close(added)
	}()
	e.force(output(maxUnacked))
	var last uint64
	for m, _ := e.next(0); m != nil; m, _ = e.next(last) {
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
	_, more := e.next(last)
	e.ack(last)
	receive(t, "room for an event", added)
	receive(t, "word of it", more)
	if m, _ := e.next(last); m.GetEvent() != last+1 {
		t.Errorf("after an acknowledgement of %d comes %v", last, m.GetEvent())
	}
	if e.acked(last+1) || !e.acked(last) {
		t.Error("what was acknowledged is not known")
	}
	e.ack(1 << 60)
	if e.bytes != 0 || len(e.queue) != 0 || e.first != last+2 {
		t.Errorf("after all was acknowledged, %d bytes are kept, and the next is %d", e.bytes, e.first)
	}
	e.silence()
	for range 2 * maxUnacked / piece {
		e.add(output(piece))
	}
	if m, _ := e.next(0); m != nil {
		t.Error("an event was added to a log that is mute")
	}
	e.force(output(1))
	if m, _ := e.next(0); m == nil {
		t.Error("what must be said was not")
	}
}

// Input goes on where it ended, whatever is said twice.
func TestInput(t *testing.T) {
	in := newInput()
	for _, m := range []*gatepb.Input{
		{Data: []byte("abc")}, {Offset: 1, Data: []byte("bcd")}, {Offset: 0, Data: []byte("ab")}, {Offset: 4, Data: []byte("e"), End: true},
	} {
		if err := in.put(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.put(&gatepb.Input{Offset: 6}); err == nil {
		t.Error("input with a hole is taken")
	}
	var got sink
	in.feed(&got, nil, func(uint64) {})
	if got.String() != "abcde" || in.taken() != 5 {
		t.Errorf("fed %q, %d bytes taken", got.String(), in.taken())
	}
}

type sink struct{ bytes.Buffer }

func (*sink) Close() error { return nil }
