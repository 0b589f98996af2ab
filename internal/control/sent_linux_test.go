package control_test

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
)

// TestAcknowledged: data that the far kernel accepted counts, even if no process reads it.
func TestAcknowledged(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := control.SentOn(c)
	acked := func() uint64 { n, _ := sent(); return n }
	before, total := sent()
	if total != before {
		t.Errorf("%d bytes written, of which %d are acknowledged, before any was", total, before)
	}
	if _, err := c.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for acked() < before+100 {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes before, %d after 100 more were written", before, acked())
		}
		runtime.Gosched()
	}
	if _, total := sent(); total != before+100 {
		t.Errorf("%d bytes written, want %d", total, before+100)
	}
}
