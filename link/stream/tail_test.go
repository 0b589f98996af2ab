package stream

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/wire"
)

// ledger is a connection that records what each WriteVec was given, and receives nothing.
type ledger struct {
	net.Conn
	writes chan []byte
	closed chan struct{}
}

func (l *ledger) WriteVec(bufs ...[]byte) (int, error) {
	all := slices.Concat(bufs...)
	l.writes <- all
	return len(all), nil
}

func (l *ledger) ReadVec(...[]byte) (int, error) {
	<-l.closed
	return 0, io.EOF
}

func (l *ledger) Close() error { close(l.closed); return nil }

// TestTail: what an envelope adds to a frame goes out with the frame.
func TestTail(t *testing.T) {
	for _, c := range []struct {
		name   string
		bufs   []int   // lent at once
		frames [][]int // of each write
	}{
		{"an envelope and as much as a frame", []int{24, wire.MaxLinkData}, [][]int{{wire.MaxLinkData, 24}}},
		{"a frame", []int{wire.MaxLinkData}, [][]int{{wire.MaxLinkData}}},
		{"a large rest", []int{smallData + 1, wire.MaxLinkData}, [][]int{{wire.MaxLinkData}, {smallData + 1}}},
		{"two frames and an envelope", []int{24, 2 * wire.MaxLinkData}, [][]int{{wire.MaxLinkData}, {wire.MaxLinkData, 24}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &ledger{writes: make(chan []byte, 8), closed: make(chan struct{})}
			s := New(Options{Peer: "a ledger", Lost: func(*Carrier, error, int) error { return io.EOF }, Silent: func(bool) {}, Ended: func() {}})
			carrier, err := s.Attach(l, nil, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			carrier.frame = maxFrame // as after some writes
			s.mu.Unlock()
			defer func() { s.Fail(net.ErrClosed); s.Wait() }()
			var bufs [][]byte
			var sent, came []byte
			for i, n := range c.bufs {
				b := make([]byte, n)
				for k := range b {
					b[k] = byte(k>>10 + k + i)
				}
				bufs = append(bufs, b)
				sent = append(sent, b...)
			}
			if _, _, err := s.Lend(bufs); err != nil {
				t.Fatal(err)
			}
			for i, want := range c.frames {
				var frames []int
				var b []byte
				select {
				case b = <-l.writes:
				case <-time.After(30 * time.Second):
					t.Fatalf("no write %d within 30 s", i)
				}
				for len(b) > 0 {
					h, err := wire.ParseLinkHeader(b)
					if err != nil || h.Kind != wire.LinkData || h.Offset != uint64(len(came)) {
						t.Fatalf("write %d: %+v, %v, behind %d bytes", i, h, err, len(came))
					}
					b = b[h.Size():]
					came = append(came, b[:h.Length]...)
					b = b[h.Length:]
					frames = append(frames, int(h.Length))
				}
				if !slices.Equal(frames, want) {
					t.Errorf("write %d has frames of %v bytes, want %v", i, frames, want)
				}
			}
			if !slices.Equal(came, sent) {
				t.Error("other bytes were sent than lent")
			}
		})
	}
}
