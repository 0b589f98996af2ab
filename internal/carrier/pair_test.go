package carrier

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// pair returns the two ends of a connection.
func pair(t testing.TB) (dialled, accepted *net.TCPConn) {
	t.Helper()
	ln, err := ListenIn(context.Background(), loopback, overlay.Ports{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialled, err = DialTCP(context.Background(), ln.Addr().String(), HTTPProxy{})
	if err != nil {
		t.Fatal(err)
	}
	accepted, err = ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	dialled.SetDeadline(time.Now().Add(2 * time.Minute)) // a bound, never reached
	return dialled, accepted
}

// joined is a join under test: what is written to left arrives at right.
type joined struct {
	left, right *net.TCPConn
	meter       *Meter
	result      chan outcome
}

type outcome struct {
	stats Stats
	err   error
}

func startJoin(t testing.TB, ctx context.Context, o Options) *joined {
	t.Helper()
	left, a := pair(t)
	right, b := pair(t)
	if o.Meter == nil {
		o.Meter = new(Meter)
	}
	j := &joined{left, right, o.Meter, make(chan outcome, 1)}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		s, err := Join(ctx, a, b, o)
		j.result <- outcome{s, err}
	}()
	t.Cleanup(func() { cancel(); left.Close(); right.Close() })
	return j
}

// wait returns how the join ended, within a bound.
func (j *joined) wait(t testing.TB) outcome {
	t.Helper()
	select {
	case r := <-j.result:
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("the join did not end")
		panic("unreachable")
	}
}
