package engine

import (
	"bytes"
	"errors"
	"testing"
)

// Memory is used again for messages of about the same size, and only once nothing refers to it.
func TestRelease(t *testing.T) {
	whole := func() *Request {
		r := new(Request)
		r.State = complete
		return r
	}
	failed := whole()
	failed.Err = errors.New("lost")
	u, _ := logged(t)
	p := new(peer)
	p.transport.link.l, p.transport.link.mu = u.link.l, u.link.mu
	held := begun(1000, Standard)
	held.e.peers, held.uncopied, held.mark = []*peer{nil, p}, true, 1000
	for _, tc := range []struct {
		name  string
		sent  []*Request
		bytes int // of the next message
		again bool
	}{
		{"same size", []*Request{whole(), whole()}, 1000, true},
		{"smaller", []*Request{whole()}, 513, true},
		{"larger", []*Request{whole()}, 2000, false},
		{"lent to a link", []*Request{held}, 1000, true},
		{"being written", []*Request{whole(), new(Request)}, 1000, false},
		{"to a process that is lost", []*Request{failed}, 1000, false},
	} {
		var s replicas
		x := &sending{buf: s.copies.Clone(bytes.Repeat([]byte{1}, 1000)), sent: tc.sent}
		old := &x.buf[0]
		s.release(x)
		next := bytes.Repeat([]byte{2}, tc.bytes)
		b := s.copies.Clone(next)
		if !bytes.Equal(b, next) || (&b[0] == old) != tc.again {
			t.Errorf("%s: %d bytes, used again %t", tc.name, len(b), &b[0] == old)
		}
	}
}
