package control

import (
	"bytes"
	"net"
	"testing"
)

// recorder records its writes.
type recorder struct {
	net.Conn
	writes [][]byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.writes = append(r.writes, bytes.Clone(b))
	return len(b), nil
}

func TestGather(t *testing.T) {
	header := func(kind, length byte) []byte { return []byte{0, kind, 0, 0, 0, 0, 0, 1, 0, 0, 0, length} }
	r := &recorder{}
	g := &gather{Conn: r}
	for _, w := range [][]byte{
		header(1, 9),            // a window update is separate, whatever its length field
		header(0, 0),            // data without a body, too
		header(0, 3), {1, 2, 3}, // a header and its body are joined
		header(0, 12), header(1, 1), // a body that looks like a header is a body
	} {
		if n, err := g.Write(w); n != len(w) || err != nil {
			t.Fatalf("wrote %d of %d, %v", n, len(w), err)
		}
	}
	want := [][]byte{header(1, 9), header(0, 0), append(header(0, 3), 1, 2, 3), append(header(0, 12), header(1, 1)...)}
	if len(r.writes) != len(want) {
		t.Fatalf("%d writes, want %d: %x", len(r.writes), len(want), r.writes)
	}
	for i := range want {
		if !bytes.Equal(r.writes[i], want[i]) {
			t.Errorf("write %d is %x, want %x", i, r.writes[i], want[i])
		}
	}
}
