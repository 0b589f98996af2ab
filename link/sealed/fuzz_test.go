package sealed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
)

// scripted is a carrier on which the peer sends what is in a script, and then nothing more.
type scripted struct {
	net.Conn // nil: nothing else may be called
	script   *bytes.Reader
	chunk    int // bytes at a time
}

func (s *scripted) Read(p []byte) (int, error)       { return s.script.Read(p[:min(len(p), s.chunk)]) }
func (s *scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (s *scripted) Close() error                     { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }
func (s *scripted) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func script(b []byte, chunk int) *scripted {
	return &scripted{script: bytes.NewReader(b), chunk: chunk}
}

// FuzzBeforeHandshake: whatever an unauthenticated peer sends, both roles end with an error.
func FuzzBeforeHandshake(f *testing.F) {
	k, err := jobkey.New("demo")
	if err != nil {
		f.Fatal(err)
	}
	creds := member(f, k, 0)
	for _, role := range []bool{false, true} {
		r := &relay{}
		a, b := r.between(f)
		sealedOver(f, a, b)
		f.Add(role, r.saw(0))
		f.Add(role, r.saw(1))
	}
	f.Add(true, []byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(false, []byte{22, 3, 3, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, server bool, said []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var err error
		if server {
			_, err = Server(ctx, script(said, 1<<20), creds, nil, []byte("early"), Around{})
		} else {
			_, err = Client(ctx, script(said, 1<<20), creds, nil, Around{})
		}
		if err == nil || ctx.Err() != nil {
			t.Errorf("%v (%v)", err, ctx.Err())
		}
	})
}

// FuzzRecords: a peer that holds the keys and sends anything, in any pieces: records of any type
// and content, damaged in any place, read into memory of any size. The reader delivers what was
// written and intact, in order, then a permanent error.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{23, 5, 23, 0, 21, 2}, uint16(0), uint16(1000), uint16(100))
	f.Add([]byte{23, 255, 22, 5, 23, 255}, uint16(0), uint16(1), uint16(3))
	f.Add([]byte{23, 255, 23, 255, 23, 9}, uint16(700), uint16(64), uint16(20000))
	f.Fuzz(func(t *testing.T, plan []byte, damage, chunk, piece uint16) {
		s, err := suiteOf(tls.TLS_AES_128_GCM_SHA256)
		if err != nil {
			t.Fatal(err)
		}
		var seal half
		c := &Conn{}
		secret := sha256.Sum256(plan)
		if err := errors.Join(seal.init(s, secret[:]), c.r.half.init(s, secret[:]), c.w.half.init(s, secret[:])); err != nil {
			t.Fatal(err)
		}
		var wire, want []byte
		intact := true // only data and changes of keys so far
		for ; len(plan) >= 2; plan = plan[2:] {
			kind, n := contentType(plan[0]), int(plan[1])*70
			content := random(uint64(n), n)
			if kind == typeHandshake {
				content = keyUpdate[:]
			}
			wire = seal.appendRecord(wire, kind, &cursor{bufs: [][]byte{content}}, len(content))
			switch {
			case kind == typeHandshake:
				if err := seal.update(); err != nil {
					t.Fatal(err)
				}
			case kind != typeApplication:
				intact = false
			case intact:
				want = append(want, content...)
			}
		}
		damaged := damage > 0 && int(damage) <= len(wire)
		if damaged {
			wire[damage-1] ^= 1
		}
		carrier := script(wire, int(chunk)+1)
		c.conn, c.r.conn, c.w.conn, c.r.asked = carrier, carrier, carrier, &c.w.asked
		p := make([]byte, int(piece)+1)
		var got []byte
		for {
			n, err := c.Read(p)
			got = append(got, p[:n]...)
			if err != nil {
				if err == io.EOF && (damaged || intact) {
					t.Error("taken for a proper end")
				}
				if errors.Is(err, ErrTruncated) && !damaged && !bytes.Equal(got, want) {
					t.Errorf("%d of %d bytes", len(got), len(want))
				}
				if _, again := c.Read(p); again != err {
					t.Errorf("%v, then %v", err, again)
				}
				break
			}
			if n == 0 {
				t.Fatal("no byte and no error")
			}
		}
		if !bytes.HasPrefix(want, got) {
			t.Errorf("read %d bytes that were not written so", len(got))
		}
	})
}
