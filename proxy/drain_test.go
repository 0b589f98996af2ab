package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/wire"
)

// A draining proxy honours the outstanding tickets, ends when its links have ended, and moves them
// when there are other proxies.
func TestDrain(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		r := start(t, Settings{})
		r.elsewhere.Store(elsewhere)
		a, b := r.link()
		echoes(t, a, b)
		issued := r.tickets()
		var drain sync.WaitGroup
		drain.Go(func() { r.Drain(t.Context()) })
		r.until("it says so", func(st Status) bool { return st.Draining })
		late, later := r.show(issued[0]), r.show(issued[1])
		echoes(t, late, later)
		if elsewhere {
			for _, c := range []*net.TCPConn{a, b, late, later} {
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) && err != io.EOF {
					t.Errorf("an end of a moved link sees %v", err)
				}
			}
		} else {
			a.Close()
			b.Close()
			late.Close()
			later.Close()
		}
		if err := testkit.Receive(t, "the end of Serve", r.done); err != nil {
			t.Errorf("Serve = %v", err)
		}
		r.done <- nil
		drain.Wait()
	}
}

// A draining proxy waits neither for a peer that only observes, nor for one that leaves without
// having presented a ticket.
func TestDrainWaitsForNobody(t *testing.T) {
	r := start(t, Settings{})
	asks := r.dial(wire.Append(nil, &wire.Observe{}))
	if _, err := wire.Read(asks); err != nil {
		t.Fatal(err)
	}
	silent := r.dial(nil)
	r.until("somebody has come who shows nothing", func(st Status) bool { return st.Handshakes == 1 })
	var drain sync.WaitGroup
	drain.Go(func() { r.Drain(t.Context()) })
	r.until("it says so", func(st Status) bool { return st.Draining })
	silent.Close()
	select {
	case err := <-r.done:
		r.done <- err
	case <-time.After(30 * time.Second):
		t.Fatal("it has not ended")
	}
	drain.Wait()
}

// A successor passes on connections with a ticket of its predecessor, which joins them with earlier
// ones; what neither knows is refused, once.
func TestPassOn(t *testing.T) {
	returned := make(chan daemon.Returned)
	old := start(t, Settings{})
	next := start(t, Settings{PassOn: func(c *net.TCPConn, first []byte) error {
		returned <- daemon.Returned{Conn: c, First: first}
		return nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { old.serveReturned(ctx, returned) })
	defer serving.Wait()
	defer cancel()

	pair := old.tickets()
	a := old.show(pair[0])
	old.until("it waits", func(st Status) bool { return st.Waiting == 1 })
	b := next.show(pair[1])
	echoes(t, a, b)
	mine := next.tickets()
	c, d := next.show(mine[0]), next.show(mine[1])
	echoes(t, c, d)
	next.key[0]++ // of no proxy
	if no := testkit.Refused(next.t, next.show(next.tickets()[0])); no.By != "proxy p1" {
		t.Errorf("%+v", no)
	}
	if o, n := old.Status(), next.Status(); o.Links != 1 || n.Links != 1 || o.Refused["ticket-forged"] != 1 || n.Refused["ticket-forged"] != 0 {
		t.Errorf("old %+v\nnext %+v", o, n)
	}
	if no := testkit.Refused(next.t, next.show(pair[1])); no.Text != "the ticket was used before" { // the predecessor's answer
		t.Errorf("a ticket that was used: %+v", no)
	}
	if err := errors.Join(a.Close(), b.Close(), c.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}
