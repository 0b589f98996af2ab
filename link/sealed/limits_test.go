package sealed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"testing"
)

// Both directions at once, several writers each: no write is torn apart.
func TestConcurrentWriters(t *testing.T) {
	a, b := sealedPair(t)
	const writers, rounds, size = 4, 30, 40_000
	var all sync.WaitGroup
	for _, c := range []*Conn{a, b} {
		for id := range writers {
			all.Go(func() {
				block := bytes.Repeat([]byte{byte(id)}, size)
				for range rounds {
					if _, err := c.WriteVec(block[:7], block[7:]); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Go(func() {
			block := make([]byte, size)
			for range writers * rounds {
				if _, err := io.ReadFull(c, block); err != nil {
					t.Error(err)
					return
				}
				if bytes.Count(block, block[:1]) != size {
					t.Error("two writes are mixed")
					return
				}
			}
		})
	}
	all.Wait()
}

// A stream makes the reader use a large buffer; small messages make it return that; and nothing is
// lost in either case.
func TestReadBufferFollowsTraffic(t *testing.T) {
	a, b := sealedPair(t)
	exchange(t, a, b, random(1, 1000), []int{10}, []int{10})
	if b.r.buf.pool != smallBuffers {
		t.Error("a large buffer for small messages")
	}
	exchange(t, a, b, random(2, 4<<20), []int{1 << 20}, []int{1 << 20})
	if b.r.buf.pool != largeBuffers {
		t.Error("a small buffer for a stream")
	}
	p := make([]byte, 100)
	for range modestReads + 1 { // one at a time: each is a read into an empty buffer
		if _, err := a.Write(p); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(b, p); err != nil {
			t.Fatal(err)
		}
	}
	if b.r.buf.pool != smallBuffers {
		t.Error("the large buffer was kept")
	}
	exchange(t, a, b, random(3, 100_000), []int{100_000}, []int{100_000})
}

// send seals a record of any kind, as a peer that violates the protocol would.
func send(t *testing.T, c *Conn, kind contentType, content []byte) {
	t.Helper()
	if _, err := c.conn.Write(c.w.half.appendRecord(nil, kind, &cursor{bufs: [][]byte{content}}, len(content))); err != nil {
		t.Fatal(err)
	}
}

// Protocol violations of an authenticated peer end the connection.
func TestBrokenPeers(t *testing.T) {
	padded := func(content []byte, kind contentType, zeros int) []byte {
		return append(append(bytes.Clone(content), byte(kind)), make([]byte, zeros)...)
	}
	for name, c := range map[string]struct {
		send func(t *testing.T, a *Conn)
		want error
	}{
		"too many empty records": {func(t *testing.T, a *Conn) {
			for range maxUseless + 1 {
				send(t, a, typeApplication, nil)
			}
		}, errUseless},
		"too many changes of keys": {func(t *testing.T, a *Conn) {
			for range maxUseless + 1 {
				send(t, a, typeHandshake, keyUpdate[:])
				if err := a.w.half.update(); err != nil {
					t.Fatal(err)
				}
			}
		}, errUseless},
		"another handshake message": {func(t *testing.T, a *Conn) { send(t, a, typeHandshake, []byte{4, 0, 0, 1, 0}) }, errMessage},
		"a request of no meaning":   {func(t *testing.T, a *Conn) { send(t, a, typeHandshake, []byte{24, 0, 0, 1, 2}) }, errMessage},
		"half an alert":             {func(t *testing.T, a *Conn) { send(t, a, typeAlert, []byte{1}) }, errAlertForm},
		"unknown content":           {func(t *testing.T, a *Conn) { send(t, a, 77, []byte{1}) }, errUnexpected},
		"nothing but zeros":         {func(t *testing.T, a *Conn) { send(t, a, 0, make([]byte, 100)) }, errEmpty},
		"too much in a record": {func(t *testing.T, a *Conn) {
			send(t, a, 0, padded(make([]byte, maxContent+1), typeApplication, 3))
		}, errOverflow},
		"too short to be sealed": {func(t *testing.T, a *Conn) {
			if _, err := a.conn.Write(append([]byte{23, 3, 3, 0, 16}, make([]byte, 16)...)); err != nil {
				t.Fatal(err)
			}
		}, errEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := sealedPair(t)
			send(t, a, typeApplication, []byte("before"))
			c.send(t, a)
			got, err := io.ReadAll(b)
			if string(got) != "before" || !errors.Is(err, c.want) {
				t.Errorf("%q, %v; want %v", got, err, c.want)
			}
			b.Close()
			if _, err := io.ReadAll(a); err == nil {
				t.Error("the peer takes it for a proper end")
			}
		})
	}
}

// Padding (RFC 8446, section 5.4) is removed, whether or not the record fits into the caller's
// buffer.
func TestPadding(t *testing.T) {
	a, b := sealedPair(t)
	for _, content := range []int{1, 100, maxContent} {
		data := random(1, content)
		for _, zeros := range []int{1, 200} {
			for _, piece := range []int{1, content, content + 1, maxSealed} {
				if content+1+zeros+tagLen > maxSealed {
					continue
				}
				send(t, a, 0, append(append(bytes.Clone(data), byte(typeApplication)), make([]byte, zeros)...))
				p, got := make([]byte, piece), []byte(nil)
				for len(got) < content {
					n, err := b.Read(p)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, p[:n]...)
				}
				if !bytes.Equal(got, data) {
					t.Fatalf("%d bytes with %d zeros into %d: wrong", content, zeros, piece)
				}
			}
		}
	}
}

// No record number is used twice, and none under old keys after a renewal.
func TestNonces(t *testing.T) {
	s, err := suiteOf(0x1301)
	if err != nil {
		t.Fatal(err)
	}
	var h half
	if err := h.init(s, make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	seen := map[[12]byte]bool{}
	for i := range uint64(1000) {
		n := [12]byte(h.next())
		if seen[n] {
			t.Fatalf("number %d again", i)
		}
		seen[n] = true
		if got := binary.BigEndian.Uint64(n[4:]) ^ binary.BigEndian.Uint64(h.iv[4:]); got != i || !bytes.Equal(n[:4], h.iv[:4]) {
			t.Fatalf("record %d has number %d", i, got)
		}
	}
	old := h.iv
	if err := h.update(); err != nil || h.seq != 0 || h.iv == old {
		t.Errorf("%v; seq %d", err, h.seq)
	}
}
