package nearby

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/launch/latency"
	"github.com/isthmus-grid/isthmus/overlay"
)

// far is a grid whose node i is i+1 milliseconds away.
type far struct {
	mu    sync.Mutex
	down  map[overlay.NodeID]bool
	pings map[overlay.NodeID]int
	open  int // pings in flight
	most  int
}

func nodes(n int) (all []overlay.NodeID) {
	for i := range n {
		all = append(all, overlay.NodeID{Site: overlay.SiteID(fmt.Sprintf("s%03d", n-1-i)), Name: "n"}) // the last name is the nearest
	}
	return all
}

func (f *far) ping(all []overlay.NodeID) Ping {
	f.pings, f.down = map[overlay.NodeID]int{}, map[overlay.NodeID]bool{}
	at := map[overlay.NodeID]time.Duration{}
	for i, n := range all {
		at[n] = time.Duration(i+1) * time.Millisecond
	}
	return func(ctx context.Context, n overlay.NodeID) (time.Duration, error) {
		f.mu.Lock()
		f.pings[n]++
		f.open++
		f.most = max(f.most, f.open)
		down := f.down[n]
		f.mu.Unlock()
		defer func() { f.mu.Lock(); f.open--; f.mu.Unlock() }()
		if down {
			<-ctx.Done()
			return 0, errors.New("no answer")
		}
		time.Sleep(at[n])
		return at[n], nil
	}
}

func (f *far) count() (total int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.pings {
		total += n
	}
	return total
}

// run runs a test in virtual time.
func run(t *testing.T, f *far, all []overlay.NodeID, test func(n *Nearby)) {
	synctest.Test(t, func(t *testing.T) {
		n := New(f.ping(all), 4, latency.Config{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { n.Serve(ctx) })
		test(n)
		cancel()
		serving.Wait()
		if f.open != 0 {
			t.Errorf("%d pings are under way after Serve", f.open)
		}
	})
}

func TestOrder(t *testing.T) {
	all := nodes(100)
	var f far
	run(t, &f, all, func(n *Nearby) {
		for _, e := range n.Order(all) {
			if e.RTT != 0 {
				t.Errorf("%v is known from the start", e)
			}
		}
		time.Sleep(time.Minute)
		order := n.Order(all)
		for i, e := range order {
			if e.Node != all[i] || e.RTT != time.Duration(i+1)*time.Millisecond {
				t.Fatalf("place %d: %v", i, e)
			}
		}
		if f.most != 4 {
			t.Errorf("%d pings at a time, want 4", f.most)
		}
		if total := f.count(); total != 2000 {
			t.Errorf("%d pings, want 5 of each node, in four rounds", total)
		}
	})
}

// Without calls the measurements end, and a new call starts them again.
func TestInterestEnds(t *testing.T) {
	all := nodes(3)
	var f far
	run(t, &f, all, func(n *Nearby) {
		time.Sleep(time.Hour)
		if f.count() != 0 {
			t.Error("nobody asked, and nodes were pinged")
		}
		n.Order(all)
		time.Sleep(time.Hour)
		asked := f.count()
		if asked < 3*5*5 || asked > 3*5*7 { // four rounds at once, and one to three in the rest of 10 minutes
			t.Errorf("%d pings in an hour after one question", asked)
		}
		n.Order(all[:1])
		time.Sleep(time.Minute)
		if more := f.count() - asked; more != 5 {
			t.Errorf("%d pings of one node that is known, want 5", more)
		}
	})
}

// A node that does not answer is unknown after some tries, delays no other, and is measured when it
// is back.
func TestSilentNode(t *testing.T) {
	all := nodes(3)
	var f far
	run(t, &f, all, func(n *Nearby) {
		n.Order(all)
		time.Sleep(time.Second)
		f.mu.Lock()
		f.down[all[0]] = true
		f.mu.Unlock()
		for range 40 {
			n.Order(all)
			time.Sleep(time.Minute)
		}
		order := n.Order(all)
		if order[2].Node != all[0] || order[2].RTT != 0 || order[0].RTT != 2*time.Millisecond {
			t.Errorf("with a silent node: %v", order)
		}
		f.mu.Lock()
		f.down[all[0]] = false
		f.mu.Unlock()
		for range 10 {
			n.Order(all)
			time.Sleep(time.Minute)
		}
		if order = n.Order(all); order[0].Node != all[0] || order[0].RTT != time.Millisecond {
			t.Errorf("when it is back: %v", order)
		}
	})
}
