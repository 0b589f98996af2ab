//go:build system

package faults

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

const (
	// freezesKey is the environment variable with the number of times that TestBrokerStops stops
	// the current broker; without it, freezes.
	freezesKey = "ISTHMUS_TEST_FREEZES"
	freezes    = 1
	// leftWithin bounds the time from a broker's stop until a new link.
	leftWithin = 5 * time.Second
)

// A broker whose process is stopped, so that its host's kernel still acknowledges data, is replaced
// by the other one under load: a link that needs a signalling request is set up within leftWithin.
// When the broker continues it has all state again. Without another broker, callers get an error
// within that time.
func TestBrokerStops(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, grid.Config{Standby: "public/stranger"})
	n := freezes
	if text := os.Getenv(freezesKey); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	flows := []*labtest.Flow{w.StartFlow(w.LinkPair("closed/n1", "shut/n1"))}
	more, stopLoad := w.load("closed/n2", "shut/n1", 2)
	var took []time.Duration
	for range n {
		took = append(took, w.stopBroker(t)...)
		more() // or one dial might use the stopped broker each time, for longer than dials are retried
	}
	stopLoad()
	slices.Sort(took)
	last := took[len(took)-1]
	t.Logf("%d stops: new links again after %v in the median, %v at most", n, took[n].Round(time.Millisecond), last.Round(time.Millisecond))
	if last > leftWithin {
		t.Errorf("%v until a new link, want %v", last, leftWithin)
	}
	w.stopLastBroker(t)
	w.AwaitFlows("at last", flows)
}

// stopBroker stops the current broker, and returns the time until the other one has made a link
// between already registered processes, and one between new ones.
func (w *world) stopBroker(t *testing.T) []time.Duration {
	t.Helper()
	broker := "broker"
	if w.Figure("frontal closed", "broker", "name") != broker {
		broker = "broker 2"
	}
	known := w.JoinPair("closed/n1", "shut/n1") // over a relay, which the broker assigns
	if err := w.Daemon(broker).Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	var took []time.Duration
	w.Connect(known)
	took = append(took, time.Since(stopped))
	w.Exchange(known)
	fresh := w.JoinPair("closed/n1", "shut/n1")
	w.Connect(fresh)
	took = append(took, time.Since(stopped))
	t.Logf("%s: a link of known processes after %v, of new ones after %v", broker, took[0].Round(time.Millisecond), took[1].Round(time.Millisecond))
	known.End(t)
	fresh.End(t)
	w.resume(t, broker)
	return took
}

// stopLastBroker stops the only remaining one, and dials during the stop and after it.
func (w *world) stopLastBroker(t *testing.T) {
	t.Helper()
	j := w.JoinPair("closed/n1", "shut/n1")
	if err := w.Daemon("broker 2").Stop(); err != nil {
		t.Fatal(err)
	}
	if err := w.Daemon("broker").Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	said := func(err error) bool {
		return errors.Is(err, overlay.ErrUnreachable) && strings.Contains(err.Error(), "the process is stopped, or is not scheduled")
	}
	err := w.dialError(j.A.Rank, 1, leftWithin)
	if !said(err) && errors.Is(err, overlay.ErrTimeout) { // on a busy machine it is noticed later
		err = w.dialError(j.A.Rank, 1, leftWithin)
	}
	if !said(err) {
		t.Errorf("while no broker runs: %v", err)
	}
	w.resume(t, "broker")
	w.Connect(j)
	w.Exchange(j)
	j.End(t)
}

// resume continues stopped daemons, and waits until they have all state again.
func (w *world) resume(t *testing.T, daemons ...string) {
	t.Helper()
	for _, d := range daemons {
		if err := w.Daemon(d).Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	again := time.Now()
	if err := w.Settled(w.Ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("all is settled %v after %v went on", time.Since(again).Round(time.Millisecond), daemons)
}

// load makes pairs of ranks set up links continuously until it is stopped: none may fail. more
// returns when each pair has set up another one.
func (w *world) load(from, to string, pairs int) (more, stop func()) {
	w.T.Helper()
	key := labtest.NewKey(w.T, "load")
	ctx, cancel := context.WithCancel(w.Ctx)
	var loops sync.WaitGroup
	links := make([]atomic.Int64, pairs)
	for i := range pairs {
		var ranks [2]*probe.Rank
		for k, node := range []string{from, to} {
			r, err := probe.Join(w.Ctx, w.Grid, node, key, uint32(2*i+k))
			if err != nil {
				w.T.Fatal(err)
			}
			ranks[k] = r
		}
		loops.Go(func() {
			defer ranks[0].Leave()
			defer ranks[1].Leave()
			for ctx.Err() == nil {
				near, far, _, err := probe.Pair(ctx, ranks[0], ranks[1])
				if err != nil {
					if ctx.Err() == nil {
						w.T.Errorf("a link of the load: %v", err)
					}
					continue
				}
				loops.Go(func() { far.Conn.Close() })
				near.Conn.Close()
				links[i].Add(1)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		loops.Wait()
		all := int64(0)
		for i := range links {
			all += links[i].Load()
		}
		w.T.Logf("%d links of the load", all)
	})
	w.T.Cleanup(stop)
	more = func() {
		for i := range links {
			from := links[i].Load()
			w.Until("another link of the load", func() bool { return links[i].Load() > from })
		}
	}
	return more, stop
}
