package nodeservice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// farther simulates the paths to other nodes: n3 is 3 ms away, and farther at first.
type farther struct {
	mu    sync.Mutex
	pings map[string]int
	lost  bool // no node answers
	most  int  // maximum of concurrent pings
	now   int

	carries  map[string]int // measurements of bandwidth
	carrying int            // concurrent ones
}

// carry takes two seconds, and fails for n9.
func (f *farther) carry(_ context.Context, node overlay.NodeID) (float64, error) {
	f.mu.Lock()
	f.carries[node.Name]++
	f.carrying++
	if f.carrying > 1 || f.now > 0 {
		f.carries["at once"]++
	}
	f.mu.Unlock()
	time.Sleep(2 * time.Second)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.carrying--
	if node.Name == "n9" {
		return 0, errors.New("cut")
	}
	return 1e6, nil
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
		d := newDistances(far.ping, far.carry)
		ask := func(names ...string) (got []string) {
			r, err := d.measureAll(t.Context(), &nodepb.MeasureRequest{Nodes: names})
			if err != nil {
				return []string{err.Error()}
			}
			for _, e := range r.Distances {
				got = append(got, fmt.Sprint(e.Node, " ", time.Duration(e.LatencyNs), string(e.Fault)))
			}
			return got
		}
		const first = "[s/n3 3.333333ms s/n8 8.333333ms]"
		var both sync.WaitGroup
		for range 5 { // together they share one ping
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
			if _, err := d.measureAll(t.Context(), &nodepb.MeasureRequest{Nodes: wrong}); err == nil {
				t.Errorf("%d nodes are measured: %.50s", len(wrong), wrong)
			}
		}
		for i := range maxDistances + 10 {
			if e, first := d.latency.entry(overlay.NodeID{Site: "s", Name: fmt.Sprintf("x%d", i)}, time.Now()); first {
				close(e.ready)
			}
		}
		if len(d.latency.entries) > maxDistances {
			t.Errorf("%d figures are kept", len(d.latency.entries))
		}
	})
}

// Bandwidths are requested separately, and measured one after the other when all latencies are
// known; those that do not fit into the time are unknown until a later call.
func TestMeasureBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &farther{pings: map[string]int{}, carries: map[string]int{}}
		d := newDistances(far.ping, far.carry)
		known, faults := 0, ""
		ask := func(names ...string) {
			t.Helper()
			r, err := d.measureAll(t.Context(), &nodepb.MeasureRequest{Nodes: names, Bandwidth: true})
			if err != nil {
				t.Fatal(err)
			}
			known, faults = 0, ""
			for _, m := range r.Distances {
				if m.LatencyNs == 0 {
					t.Errorf("%s has no latency: %s", m.Node, m.Fault)
				}
				if m.Bandwidth == 1e6 {
					known++
				}
				faults += string(m.Fault)
			}
		}
		ask("s/n1", "s/n2", "s/n9", "s/n4") // 3 s for pings leave 5 s: two measurements, and the third is in progress
		if known > 3 || known < 1 {
			t.Errorf("%d bandwidths are known after %v", known, measureTime)
		}
		ask("s/n1", "s/n2", "s/n9", "s/n4")
		if known != 3 || faults != "cut" {
			t.Errorf("%d bandwidths are known; the fault is %q", known, faults)
		}
		time.Sleep(measureKeep + time.Second)
		ask("s/n1", "s/n2", "s/n9", "s/n4")
		if got := fmt.Sprint(far.carries); known != 3 || got != "map[n1:1 n2:1 n4:1 n9:2]" {
			t.Errorf("%d bandwidths are known, measurements %s", known, got)
		}
		time.Sleep(carryKeep)
		if ask("s/n1"); far.carries["n1"] != 2 {
			t.Error("an old bandwidth is taken for good")
		}
	})
}
