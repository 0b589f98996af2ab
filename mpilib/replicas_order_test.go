package mpilib

import (
	"context"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

// A stall has nothing that one process sends to another arrive from some moment on: it is lost, or waits.
type stall struct {
	from, to    int
	begun, over chan struct{} // closed then; over is nil for what is lost
}

// stalled is a connection between the two.
type stalled struct {
	net.Conn
	stall *stall
}

func (s *stalled) Write(b []byte) (int, error) {
	select {
	case <-s.stall.begun:
		if s.stall.over == nil {
			return len(b), nil
		}
		<-s.stall.over
	default:
	}
	return s.Conn.Write(b)
}

func (s *stalled) CloseWrite() error { return s.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// A race is two workers who both send to a master, which tells each whether it was the first. In each replica another one
// is first. The master's first replica dies with what it has seen, which the second does not hear.
type race struct {
	*fuse
	trusted         bool          // the master's sends do not wait until the other replica hears it
	ready           chan struct{} // the master's replicas are connected
	begun           chan struct{} // nothing goes from the first one to the second any more
	told            chan struct{} // worker 1's first replica knows that it is the first
	second, changed chan struct{} // the slower worker of each replica may send
	change          func()        // closes changed
	places          [2]int        // of the workers, as they tell the master
}

func (a *race) run(ctx context.Context, c *Comm) error {
	w, me := c.World(), c.Rank()
	replica := w.Replica()
	if me != 0 {
		return a.work(ctx, c, me == 1+replica)
	}
	if _, err := w.Now(ctx); err != nil { // connects the replicas
		return err
	}
	if replica == 1 {
		defer a.change()
		close(a.ready)
	} else {
		<-a.ready
		close(a.begun)
	}
	for place := range 2 {
		st, err := Recv(ctx, c, []int{0}, AnySource, 2)
		if err != nil {
			return err
		}
		if err := Send(ctx, c, []int{place}, st.Source, 1); err != nil {
			return err
		}
		if place == 1 {
			break
		}
		if replica == 0 {
			if a.trusted {
				<-a.told
			}
			a.blow()
			close(a.second)
			return nil
		}
		a.change()
	}
	for i := range a.places {
		if _, err := Recv(ctx, c, a.places[i:i+1], 1+i, 3); err != nil {
			return err
		}
	}
	return nil
}

// work is a worker's part.
func (a *race) work(ctx context.Context, c *Comm, first bool) error {
	wait := a.begun
	if !first {
		wait = [...]chan struct{}{a.second, a.changed}[c.World().Replica()]
	}
	select {
	case <-wait:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := Send(ctx, c, []int{1}, 0, 2); err != nil {
		return err
	}
	place := []int{0}
	if _, err := Recv(ctx, c, place, 0, 1); err != nil {
		return err
	}
	if first && c.World().Replica() == 0 {
		close(a.told)
	}
	return Send(ctx, c, place, 0, 3)
}

// runRace runs a race, and returns the places of the workers and the errors of the processes.
func runRace(t *testing.T, table replica.Table, trusted bool) ([2]int, string) {
	t.Helper()
	dir := testkit.ShortDir(t)
	begun, changed := make(chan struct{}), make(chan struct{})
	m := newMeeting(t, dir, way{name: "race", path: alike(0), apart: true, copies: true, table: table})
	defer m.close()
	a := &race{
		fuse: &fuse{left: math.MaxInt, worlds: map[int]*World{}}, trusted: trusted, begun: begun, changed: changed, change: sync.OnceFunc(func() { close(changed) }),
		ready: make(chan struct{}), told: make(chan struct{}), second: make(chan struct{}),
	}
	m.fuse, m.stalls = a.fuse, []*stall{{from: 0, to: 3, begun: begun}}
	if table == replica.Primary { // the first replicas of the workers serve both of the master
		m.stalls = append(m.stalls, &stall{from: 1, to: 3, begun: begun, over: changed})
	}
	c := &collected{T: t}
	testWorld(c, 3, m.join, a.among(a.run), WithoutSharedMemory(), withReplicas(2, table), WithConnectTimeout(30*time.Second), func(cfg *config) {
		cfg.replicas.SendDeterministic, cfg.killed = trusted, a.killed
	})
	a.dying.Wait()
	return a.places, c.text.String()
}

// A program whose sends depend on the order of arrivals runs as it could without replicas, also if the replica that has seen that
// order dies with it. If it was started with the claim that they do not depend on it, it fails with a report of that, by the
// master or by the worker, of whose second message there are two then, too.
func TestReplicatedRace(t *testing.T) {
	for _, table := range tables {
		t.Run(table.String(), func(t *testing.T) {
			places, got := runRace(t, table, false)
			if places != [2]int{1, 0} || got != "" {
				t.Errorf("the sends wait: places %v, %s", places, got)
			}
			places, got = runRace(t, table, true)
			if !strings.Contains(got, ": replicas 1 and 0 differ in call 2, Send to rank ") || !strings.Contains(got, "omit that") {
				t.Errorf("the sends do not wait: places %v, %s", places, got)
			}
		})
	}
}
