package slot

import (
	"encoding/binary"
	"testing"

	"github.com/isthmus-grid/isthmus/wire"
)

// A value that was looked at, but not taken, as happens while a ring has no room, is replaced too.
func TestNewestPiece(t *testing.T) {
	s := &Out{Max: 100, next: make([]byte, 0, 16), taken: make([]byte, 0, 16)}
	var v Queue
	put := func(number uint64) {
		s.Replace(binary.BigEndian.AppendUint64(nil, number))
		v.Update(s)
	}
	if closed := new(Out); closed.Replace(make([]byte, 8)) == nil {
		if v.Update(closed); len(v.due) > 0 || v.Pending() {
			t.Error("a value is to be sent that the peer does not take")
		}
	}
	put(1)
	for number := range uint64(3) {
		env, b := v.NextPiece(6)
		if got := binary.BigEndian.Uint64(append(b[:6:6], byte(number+1)>>4, byte(number+1))); env.Flags != 0 || got != number+1 {
			t.Errorf("with value %d: %+v of value %d", number+1, env, got)
		}
		put(number + 2)
	}
	if _, b := v.NextPiece(8); b[7] != 4 {
		t.Errorf("value %d is sent in place of value 4", b[7])
	}
	v.Taken(4)
	put(5)
	if env, b := v.NextPiece(8); len(b) != 4 || b[3] != 4 || env.ID != 4 || env.Flags != wire.EnvelopeLast {
		t.Errorf("the rest of value 4: %+v, %v", env, b)
	}
	if v.Taken(4); v.now != nil || len(v.due) != 1 || s.Counts != (PutCounts{Put: 5, Overwritten: 3, Sent: 1}) {
		t.Errorf("%d slots are due, %+v", len(v.due), s.Counts)
	}
}
