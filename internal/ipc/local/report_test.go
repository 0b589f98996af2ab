package local

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// The helper gets all reports on links before the process's leave; the next helper gets those that
// this one did not, and those of links that live on.
func TestReports(t *testing.T) {
	socket := filepath.Join(testkit.ShortDir(t), "h")
	h := startHelper(t, socket)
	c, _ := startClient(t, socket)
	if _, err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	traffic := func(link byte, sent uint64, over bool) overlay.Traffic {
		return overlay.Traffic{Link: [16]byte{link}, Rank: uint32(link), Technique: overlay.Direct, Sent: sent, Lasted: time.Second, Over: over}
	}
	told := func(want ...overlay.Traffic) {
		t.Helper()
		left := map[overlay.Traffic]bool{}
		for _, w := range want {
			left[w] = true
		}
		for len(left) > 0 {
			f, ok := h.next(t).(*wire.LocalTraffic)
			if !ok || !left[f.Traffic] {
				t.Fatalf("the helper was told %+v, want one of %+v", f, left)
			}
			delete(left, f.Traffic)
		}
	}
	c.Report(traffic(1, 10, false))
	told(traffic(1, 10, false))
	c.Report(traffic(2, 5, true))
	told(traffic(2, 5, true))
	h.stop()
	waitGone(t, c)
	c.Report(traffic(3, 7, true))
	c.Report(traffic(4, 1, false))
	c.Report(traffic(4, 8, false)) // replaces the earlier report
	h = startHelper(t, socket)
	defer h.stop()
	told(traffic(1, 10, false), traffic(3, 7, true), traffic(4, 8, false))

	c.Report(traffic(1, 11, true))
	c.Report(traffic(4, 9, true))
	c.Close()
	told(traffic(1, 11, true), traffic(4, 9, true))
	if f := h.next(t); f.Type() != wire.TypeLocalLeave {
		t.Errorf("then it says %v", f.Type())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.reports) != 0 {
		t.Errorf("it keeps %+v", c.reports)
	}
}

// Links beyond the bound are not reported, because the reports must be kept.
func TestReportsAreBounded(t *testing.T) {
	c := NewClient(ClientConfig{})
	for i := range maxReports + 10 {
		c.Report(overlay.Traffic{Link: [16]byte{byte(i), byte(i >> 8), byte(i >> 16)}})
	}
	if len(c.reports) != maxReports {
		t.Errorf("%d reports", len(c.reports))
	}
}

func waitGone(t *testing.T, c *Client) {
	t.Helper()
	for end := time.Now().Add(testWait); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		gone := c.conn == nil
		c.mu.Unlock()
		if gone {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the client did not see that its helper is gone")
		}
	}
}
