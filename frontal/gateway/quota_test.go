package gateway

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// stream is a connection that the kernel cannot copy from, like those of hole punching.
type stream struct{ *net.TCPConn }

// TestQuotaOfStreams: traffic that passes through this process's memory waits, too.
func TestQuotaOfStreams(t *testing.T) {
	k, err := ratelimit.New(quota.Rules{Rate: 2e6}, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() { k.Serve(ctx) })
	defer served.Wait()
	defer cancel()

	ln := testkit.Listen(t)
	var ends [2][2]net.Conn // inside and outside: of the node or peer, of the frontal
	for i := range ends {
		c, err := carrier.DialTCP(ctx, ln.Addr().String(), carrier.HTTPProxy{})
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		ends[i] = [2]net.Conn{c, accepted}
	}
	m := meterOf(ends[0][1].(*net.TCPConn), stream{ends[1][1].(*net.TCPConn)}, nil)
	l, err := k.Admit(quota.Owner{Job: job}, func() uint64 { return m.Stats().Total() })
	if err != nil {
		t.Fatal(err)
	}
	run := m.joining(l)
	carried := make(chan error, 1)
	go func() {
		defer l.Close()
		carried <- run(ctx)
	}()
	testkit.Exchange(t, ends[0][0], ends[1][0])
	if err := testkit.Receive(t, "the end of the link", carried); err != nil {
		t.Error(err)
	}
	if st := m.Stats(); st.AToB != 300_000 || st.BToA != 300_000 {
		t.Errorf("counted %+v", st)
	}
	if k.Status().Waits == 0 {
		t.Error("600 kB at 2 Mbit/s, and nothing had to wait")
	}
}
