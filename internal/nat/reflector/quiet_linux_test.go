package reflector

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A quiet port accepts two connections, is silent to the next, and calls the address it was kept
// for, once.
func TestQuietPort(t *testing.T) {
	p, _ := newPoint(t, 0)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	to := later(ln.Addr(), false, 0)
	to.Quiet = true
	r := p.CallBack(t.Context(), to)
	if r.Outcome != controlpb.CallBackResponse_PROMISED || r.Port == 0 {
		t.Fatalf("%v", r)
	}
	at := fmt.Sprintf("127.0.0.1:%d", r.Port)
	for range 2 {
		defer dial(t, at).Close()
	}
	c, err := net.DialTimeout("tcp", at, 200*time.Millisecond)
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("the third: %v, %v; want silence", c, err)
	}

	to.Quiet, to.Port = false, uint16(r.Port)
	other := to
	other.To = netip.MustParseAddrPort("127.0.0.2:9")
	if r := p.CallBack(t.Context(), other); r.Outcome != controlpb.CallBackResponse_UNKNOWN {
		t.Errorf("for another: %v", r)
	}
	from := make(chan net.Addr, 1)
	go func() { // ends with ln
		if c, err := ln.Accept(); err == nil {
			from <- c.RemoteAddr()
			c.Close()
		}
		close(from)
	}()
	if got := p.CallBack(t.Context(), to); got.Outcome != controlpb.CallBackResponse_CONNECTED {
		t.Errorf("%v", got)
	}
	if a := <-from; a == nil || addrPort(a).Port() != to.Port {
		t.Errorf("it called from %v, want port %d", a, to.Port)
	}
	if r := p.CallBack(t.Context(), to); r.Outcome != controlpb.CallBackResponse_UNKNOWN {
		t.Errorf("again: %v", r)
	}

	to.Quiet, to.Port = true, 0
	for range maxQuiet {
		if _, err := p.Observer.keepQuiet(to.To); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Observer.keepQuiet(to.To); !errors.Is(err, overlay.ErrOverloaded) {
		t.Errorf("one more than the limit: %v", err)
	}
}
