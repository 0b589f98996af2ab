package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/store"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// names2 is two brokers' view of published names in a shared store. Time is an argument; both
// brokers learn the content of the store by their watches.
type names2 struct {
	t        *testing.T
	store    *store.Memory
	brokers  [2]*sharedNames
	registry [2]*registry.Registry
	ctx      context.Context
}

const nameLease = time.Minute

func newNames2(t *testing.T) *names2 {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	n := &names2{t: t, store: store.NewMemory(), ctx: ctx}
	for i := range n.brokers {
		n.brokers[i] = newSharedNames(&storeManager{Store: n.store}, nameLease, slog.New(slog.DiscardHandler))
		n.registry[i] = registry.New(nameLease, DefaultConfig().Limits.registry())
		all.Go(func() { n.brokers[i].follow(ctx) })
	}
	return n
}

func (n *names2) publish(at int, name string, rank uint32, site overlay.SiteID) error {
	p := overlay.Publication{Name: name, Port: fmt.Sprint("port of ", rank), Process: overlay.ProcessName{Job: "job", Rank: rank}, Generation: 3}
	return n.brokers[at].publish(n.ctx, site, p)
}

func (n *names2) has(at int, name string) (rank uint32, ok bool) {
	p, w := n.brokers[at].lookup(name)
	if w != nil {
		n.brokers[at].leave(name, w)
	}
	return p.Process.Rank, w == nil
}

func TestSharedNamesAreOnes(t *testing.T) {
	n := newNames2(t)
	_, w := n.brokers[1].lookup("sum") // a lookup is pending at the other broker
	if w == nil {
		t.Fatal("it is there")
	}
	if err := n.publish(0, "sum", 1, "a"); err != nil {
		t.Fatal(err)
	}
	<-w.done
	n.brokers[1].leave("sum", w)
	if rank, ok := n.has(1, "sum"); !ok || rank != 1 {
		t.Errorf("at the other broker: rank %d, %v", rank, ok)
	}
	if err := n.publish(1, "sum", 1, "a"); err != nil {
		t.Errorf("the same at the other broker: %v", err)
	}
	for at := range n.brokers {
		if err := n.publish(at, "sum", 2, "b"); !errors.Is(err, overlay.ErrNameTaken) || !strings.Contains(err.Error(), "rank 1 of job job") {
			t.Errorf("another process, at broker %d: %v", at, err)
		}
	}

	// A process ends; reports about other processes, or an earlier generation, have no effect.
	n.brokers[1].ended("b", overlay.ProcessName{Job: "job", Rank: 1}, 3)
	n.brokers[1].ended("a", overlay.ProcessName{Job: "job", Rank: 1}, 2)
	n.brokers[1].ended("a", overlay.ProcessName{Job: "job", Rank: 2}, 3)
	n.brokers[1].deleteGone(n.ctx)
	if _, ok := n.has(0, "sum"); !ok {
		t.Error("it is gone too early")
	}
	n.store.Fail(errors.New("no space left on device"))
	if err := n.publish(0, "more", 1, "a"); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `"more" is not published`) {
		t.Errorf("on a full disk: %v", err)
	}
	n.brokers[1].ended("a", overlay.ProcessName{Job: "job", Rank: 1}, 3)
	n.brokers[1].deleteGone(n.ctx)
	if _, ok := n.has(1, "sum"); ok {
		t.Error("what ended is still there, on a full disk")
	}
	n.store.Fail(nil)
	n.brokers[1].deleteGone(n.ctx)
	testkit.Until(n.t, "the other broker forgets it", func() bool { _, ok := n.has(0, "sum"); return !ok })
	if err := n.publish(0, "sum", 2, "b"); err != nil {
		t.Errorf("the next process: %v", err)
	}
}

// If two processes want a name at the same time at two brokers, one gets it.
func TestSharedNamesHaveOneOwner(t *testing.T) {
	n := newNames2(t)
	for i := range 50 {
		var both sync.WaitGroup
		var errs [2]error
		for at := range errs {
			both.Go(func() { errs[at] = n.publish(at, fmt.Sprint("name", i), uint32(at), "a") })
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("%v and %v", errs[0], errs[1])
		}
	}
}

// Names outlive a broker and a session. They are deleted when no broker has had a session of their
// site for a lease, or when their frontal does not publish them again; while the store is
// unavailable, and for a lease after that, no name is deleted.
func TestSharedNamesLease(t *testing.T) {
	n := newNames2(t)
	now := time.Now()
	at := func(after time.Duration) time.Time { return now.Add(after) }
	holder := registry.Holder(7)
	join := func(broker int, when time.Time) {
		if _, err := n.registry[broker].Join(overlay.SiteProfile{Site: "a"}, holder, when); err != nil {
			t.Fatal(err)
		}
	}
	join(0, now)
	if err := n.publish(0, "sum", 1, "a"); err != nil {
		t.Fatal(err)
	}
	testkit.Until(n.t, "both know it", func() bool { _, ok := n.has(1, "sum"); return ok })
	sweep := func(broker int, after time.Duration) {
		n.brokers[broker].sweep(n.ctx, n.registry[broker], at(after).Add(time.Duration(broker)*10*nameLease)) // their clocks differ
		n.brokers[broker].deleteGone(n.ctx)
	}
	there := func(what string, want bool) {
		t.Helper()
		r, err := n.store.Get(n.ctx, keyName+"sum")
		if err != nil || (r.Version != 0) != want {
			t.Errorf("%s: it is there: %v (%v)", what, r.Version != 0, err)
		}
	}
	// Broker 1 has no session of the site; broker 0 has one, and renews.
	register := func() {
		p := overlay.AccessPoint{Process: overlay.ProcessName{Job: "job", Rank: 1}, Generation: 3, Node: overlay.NodeID{Site: "a", Name: "n"}}
		if err := errors.Join(n.registry[0].Register(holder, []overlay.AccessPoint{p})...); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(n.registry[0].Publish(holder, []overlay.Publication{{Name: "sum", Port: "x", Process: p.Process, Generation: 3}})...); err != nil {
			t.Fatal(err)
		}
	}
	register()
	for after := time.Duration(0); after < 4*nameLease; after += nameLease / 3 {
		sweep(0, after)
		sweep(1, after)
	}
	there("while one broker renews", true)

	// Its session ends; the store is unavailable for a while.
	n.registry[0].Leave(holder, at(4*nameLease))
	n.store.Fail(errors.New("away"))
	for after := 4 * nameLease; after < 8*nameLease; after += nameLease / 3 {
		sweep(0, after)
		sweep(1, after)
	}
	n.store.Fail(nil)
	n.store.Commit(n.ctx, store.Tx{}) // as the manager's probe does
	sweep(1, 8*nameLease)
	sweep(1, 8*nameLease+nameLease/2)
	there("just after the store was away", true)
	sweep(1, 9*nameLease+nameLease/2)
	there("a lease after the store was away", false)

	testkit.Until(n.t, "its broker forgets it", func() bool { _, ok := n.has(0, "sum"); return !ok }) // or the news of that arrives after it is published again

	// A frontal that rejoins and does not publish it again.
	join(0, at(10*nameLease))
	if err := n.publish(0, "sum", 1, "a"); err != nil {
		t.Fatal(err)
	}
	n.registry[0].Withdraw(holder, overlay.ProcessName{Job: "job", Rank: 1}, 3)
	sweep(0, 10*nameLease+nameLease/2)
	there("before its frontal had a lease's time", true)
	sweep(0, 11*nameLease)
	there("after its frontal had a lease's time", false)
}
