package local

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A helper that supports reserve relays is told for which links, and asked for them; one that does
// not gets no such frames.
func TestReserve(t *testing.T) {
	socket := filepath.Join(testkit.ShortDir(t), "h")
	for _, keeps := range []bool{false, true} {
		h := startHelper(t, socket)
		h.mu.Lock()
		if keeps {
			h.features |= wire.FeatureReserve
		}
		h.mu.Unlock()
		c, _ := startClient(t, socket)
		ctx := testContext(t)
		if _, err := c.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		peer := overlay.ProcessName{Job: c.cfg.Process.Job, Rank: 4}
		c.Reserve(peer, 99)
		if keeps {
			if f, ok := h.next(t).(*wire.LocalReserve); !ok || *f != (wire.LocalReserve{Rank: 4, Generation: 99}) {
				t.Errorf("the helper was told %+v", f)
			}
			go func() {
				if f, ok := h.next(t).(*wire.LocalDial); ok && f.Ways == overlay.Reserved {
					h.send(t, &wire.LocalFailed{Request: f.Request, Code: wire.CodeTimeout, Text: "it is asked"}, nil)
				}
			}()
		}
		want := overlay.ErrNoRelay
		if keeps {
			want = overlay.ErrTimeout
		}
		if _, err := c.Dial(ctx, peer, overlay.Reserved); !errors.Is(err, want) {
			t.Errorf("keeps %v: %v", keeps, err)
		}
		c.Close()
		if f := h.next(t); f.Type() != wire.TypeLocalLeave {
			t.Errorf("keeps %v: the helper was told %v", keeps, f.Type())
		}
		h.stop()
	}
}

// Requests beyond the bound are dropped: they will be repeated.
func TestReservesAreBounded(t *testing.T) {
	c := NewClient(ClientConfig{})
	c.conn, c.keeps = new(Conn), true
	for i := range uint32(maxReserves + 10) {
		c.Reserve(overlay.ProcessName{Rank: i}, 1)
	}
	if len(c.wanted) != maxReserves {
		t.Errorf("%d wishes", len(c.wanted))
	}
}
