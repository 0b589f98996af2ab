package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// farther plays the ways to other nodes: n3 is 3 ms away, and longer at first.
type farther struct {
	mu    sync.Mutex
	pings map[string]int
	lost  bool // nobody answers
	most  int  // pings at a time
	now   int
}

func (f *farther) ping(ctx context.Context, node overlay.NodeID) (time.Duration, error) {
	f.mu.Lock()
	f.pings[node.Name]++
	f.now++
	f.most = max(f.most, f.now)
	n, lost := f.pings[node.Name], f.lost
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}()
	if lost {
		<-ctx.Done()
		return 0, errors.New("nobody there")
	}
	var away time.Duration
	fmt.Sscanf(node.Name, "n%d", &away)
	time.Sleep(time.Second)
	return away*time.Millisecond + time.Millisecond/time.Duration(n), nil
}

func TestMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &farther{pings: map[string]int{}}
		d := newDistances(far.ping)
		ask := func(names ...string) (got []string) {
			r, err := d.measureAll(t.Context(), names)
			if err != nil {
				return []string{err.Error()}
			}
			for _, e := range r.Distances {
				got = append(got, fmt.Sprint(e.Node, " ", time.Duration(e.LatencyNs), e.Fault))
			}
			return got
		}
		const first = "[s/n3 3.333333ms s/n8 8.333333ms]"
		var both sync.WaitGroup
		for range 5 { // together they ping as one
			both.Go(func() {
				if got := fmt.Sprint(ask("s/n3", "s/n8")); got != first {
					t.Errorf("got %s, want %s", got, first)
				}
			})
		}
		both.Wait()
		time.Sleep(measureKeep - time.Second)
		if got := fmt.Sprint(ask("s/n3", "s/n8")); got != first || far.pings["n3"] != measurePings || far.pings["n8"] != measurePings {
			t.Errorf("got %s with %v pings", got, far.pings)
		}
		time.Sleep(2 * time.Second)
		if ask("s/n3"); far.pings["n3"] != 2*measurePings {
			t.Errorf("%d pings when the figure is old", far.pings["n3"])
		}

		far.lost = true
		start := time.Now()
		if got := fmt.Sprint(ask("s/n1", "s/n3")); got != "[s/n1 0snobody there s/n3 3.166666ms]" || time.Since(start) != measureTime {
			t.Errorf("got %s after %v", got, time.Since(start))
		}
		if ask("s/n1"); far.pings["n1"] != 1 {
			t.Error("a node that did not answer is asked at once again")
		}
		far.lost = false
		time.Sleep(faultKeep)
		time.Sleep(time.Second)
		if got := fmt.Sprint(ask("s/n1")); got != "[s/n1 1.25ms]" {
			t.Errorf("got %s", got)
		}

		var many []string
		for i := range maxMeasured + 1 {
			many = append(many, fmt.Sprintf("s/m%d", i))
		}
		ask(many[1:]...)
		if far.most != measureRoom {
			t.Errorf("%d pings at a time, want %d", far.most, measureRoom)
		}
		for _, wrong := range [][]string{many, {"no node"}} {
			if _, err := d.measureAll(t.Context(), wrong); err == nil {
				t.Errorf("%d nodes are measured: %.50s", len(wrong), wrong)
			}
		}
		for i := range maxDistances + 10 {
			if e, first := d.entry(overlay.NodeID{Site: "s", Name: fmt.Sprintf("x%d", i)}, time.Now()); first {
				close(e.ready)
			}
		}
		if len(d.known) > maxDistances {
			t.Errorf("%d figures are kept", len(d.known))
		}
	})
}
