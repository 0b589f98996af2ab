package stream

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/link/internal/memnet"
	"github.com/isthmus-grid/isthmus/link/resume"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// lone returns a stream whose only carrier leads to the returned connection, and ends with it.
func lone(t testing.TB) (*end, net.Conn) {
	w := newWorld(t)
	w.lasts()
	a, b := w.pair("unix")
	t.Cleanup(func() { b.Close() })
	if _, err := w.ends[0].Attach(a, nil, 0, 0); err != nil {
		t.Fatal(err)
	}
	return w.ends[0], b
}

// TestFaultsOfThePeer: what no correct peer sends ends the stream with an error that names it.
func TestFaultsOfThePeer(t *testing.T) {
	for _, tc := range []struct {
		name, frames string // hex
		class        error
		text         string
	}{
		{"an unknown kind", "08000000000000000000000000000000 0000000000000000", wire.ErrMalformed, "kind 8"},
		{"flags that are none", "02800000000000000000000000000000 0000000000000000", wire.ErrMalformed, "flags"},
		{"a window beyond all", "02004001000000000000000000000000 0000000000000000", wire.ErrMalformed, "window of 16385"},
		{"data of nothing", "01000000000000000000000000000000 0000000000000000", wire.ErrMalformed, "no bytes"},
		{"data of too much", "01000000001000010000000000000000 0000000000000000", wire.ErrMalformed, "at most 1048576"},
		{"an acknowledgement of what was not sent", "02000000000000000000000000000000 0000000000000004", resume.ErrProtocol, "acknowledgement of 4, but only 3"},
		{"data beyond the window", "01000000000000010000000001000000 0000000000000000", resume.ErrProtocol, "beyond the window"},
		{"data beyond all streams", "01000000000000017fffffffffffffff 0000000000000000", resume.ErrProtocol, "do not fit"},
		{"two ends", "05000000000000000000000000000005 0000000000000000 05000000000000000000000000000006 0000000000000000", resume.ErrProtocol, "an end at 5 was told before"},
		{"an end before what came", "010000000000000200000000000000000000000000000000 6162 05000000000000000000000000000001 0000000000000000", resume.ErrProtocol, "came before"},
		{"data behind the end", "05000000000000000000000000000001 0000000000000000 01000000000000020000000000000000 0000000000000000 6162", resume.ErrProtocol, "the stream ends at 1"},
		{"a last word that is too long", "07000000000004010000000000000000 0000000000000000", wire.ErrMalformed, "at most 1024"},
		{"a last word", "07000000000000030000000000000000 0000000000000000 627965", overlay.ErrRefused, "gave it up: bye"},
		{"the last word of who has closed", "07000000000000000000000000000000 0000000000000000", net.ErrClosed, "the peer has closed it"},
		{"half a header", "0100", errLast, "the peer closed it"},
		{"half the data", "01000000000000050000000000000000 0000000000000000 6162", errLast, "the peer closed it"},
		{"half a last word", "07000000000000030000000000000000 0000000000000000 6279", errLast, "the peer closed it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			frames, err := hex.DecodeString(strings.ReplaceAll(tc.frames, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			for _, large := range []bool{false, true} {
				e, peer := lone(t)
				if _, err := e.Write([]byte("abc")); err != nil {
					t.Fatal(err)
				}
				if _, err := peer.Write(frames); err != nil {
					t.Fatal(err)
				}
				peer.(*memnet.Conn).CloseWrite()
				buf := make([]byte, 1)
				if large {
					buf = make([]byte, 1<<20)
				}
				for err = nil; err == nil; {
					_, err = e.Read(buf)
				}
				if !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) || tc.class != errLast && !strings.Contains(err.Error(), "end 1") {
					t.Errorf("%v (wanted %v: %s)", err, tc.class, tc.text)
				}
				<-e.over
				if _, again := e.Write([]byte("x")); !errors.Is(again, tc.class) {
					t.Errorf("later calls say %v", again)
				}
			}
		})
	}
}

// FuzzCarrier: whatever a carrier brings, nothing panics or hangs, the stream is over when the
// carrier is, and no more is kept than a window.
func FuzzCarrier(f *testing.F) {
	var all []byte
	for _, h := range []wire.LinkHeader{
		{Kind: wire.LinkUse, Offset: 1}, {Kind: wire.LinkPing, Offset: 7}, {Kind: wire.LinkPong, Offset: 1},
		{Kind: wire.LinkAck, Ack: 2, Flags: wire.AckSoon}, {Kind: wire.LinkData, Length: 3, Offset: 0}, {Kind: wire.LinkFin, Offset: 3}, {Kind: wire.LinkAbort, Length: 2},
	} {
		b := make([]byte, h.Size(), h.Size()+3)
		h.Put(b)
		if h.Length > 0 {
			b = append(b, "abc"[:h.Length]...)
		}
		f.Add(b, uint16(1))
		all = append(all, b...)
	}
	f.Add(all, uint16(5000))
	f.Add(all[:len(all)-30], uint16(65535))
	f.Fuzz(func(t *testing.T, in []byte, size uint16) {
		e, peer := lone(t)
		if _, err := e.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
		go func() { // ends with the connection
			peer.Write(in)
			peer.(*memnet.Conn).CloseWrite()
			io.Copy(io.Discard, peer)
		}()
		buf := make([]byte, 1+int(size))
		total := 0
		for {
			n, err := e.Read(buf)
			total += n
			e.Watch()
			if err == io.EOF { // the peer's stream has ended, and the carrier may continue
				e.Close()
				break
			}
			if err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("there was no deadline: %v", err)
				}
				break
			}
		}
		if total > len(in) {
			t.Errorf("%d bytes came out of %d", total, len(in))
		}
		e.Fail(errLast)
		e.Wait()
	})
}

// The error of a stream that is lost because of a timeout does not match that of its owner's own
// deadline.
func TestLostByTimeout(t *testing.T) {
	e, _ := lone(t)
	e.Fail(fmt.Errorf("not restored: %w: %w", overlay.ErrUnreachable, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}))
	_, read := e.Read(make([]byte, 1))
	_, write := e.Write([]byte("a"))
	for op, err := range map[string]error{"read": read, "write": write} {
		var cause *net.OpError
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(err, overlay.ErrUnreachable) || !errors.As(err, &cause) {
			t.Errorf("%s: %v", op, err)
		}
	}
}
