//go:build system

package attack

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
	"github.com/isthmus-grid/isthmus/wire"
)

// A rank that sends a GiB beyond its credit, over a real link, loses its link: its peer keeps no
// more than was granted, names the rank and the violation, and continues with the others.
func TestRankExceedsItsCredit(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteOpen, grid.Config{})
	key := labtest.NewKey(t, "hostile")
	honest := map[int]*mpilib.World{}
	for rank, node := range map[int]string{0: "closed/n1", 2: "closed/n2"} {
		r, err := probe.Join(w.Ctx, w.Grid, node, key, uint32(rank))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Leave)
		m, err := mpilib.Init(w.Ctx, mpilib.WithConnector(r.Connector(), key, rank, 3), mpilib.WithFinalizeTimeout(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Finalize(w.Ctx) }) // it may report that a rank has failed
		honest[rank] = m
	}
	hostile := w.Join(key, "open/n1", 1, 3)
	if err := hostile.Mesh.Connect(w.Ctx, 0); err != nil {
		t.Fatal(err)
	}
	l := w.NextLink(hostile)
	rounds := make(chan int, 1) // of the others, throughout the attack
	ctx, stop := context.WithCancel(w.Ctx)
	var others sync.WaitGroup
	others.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-rounds:
			default:
			}
			rounds <- n
			if err := w.pingPong(honest[0], honest[2]); err != nil {
				t.Errorf("round %d of the others: %v", n, err)
				stop()
			}
			if ctx.Err() != nil {
				return
			}
		}
	})
	defer others.Wait()
	defer stop()

	before := heapInUse()
	message := append(wire.Envelope{Kind: wire.EnvelopeEager, Tag: 9, Length: 64 << 10}.Append(nil), make([]byte, 64<<10)...)
	sent := 0
	for ; sent < 1<<30; sent += len(message) {
		if _, err := l.Conn.Write(message); err != nil {
			break
		}
	}
	_, err := mpilib.Recv(w.Ctx, honest[0].Comm(), make([]byte, 1), 1, 5)
	if !errors.Is(err, mpilib.ErrProcFailed) || !strings.Contains(err.Error(), "rank 1 of the world") || !strings.Contains(err.Error(), "bytes eagerly beside") {
		t.Errorf("its peer says: %v", err)
	}
	grown := heapInUse() - before
	t.Logf("it sent %d MiB, and memory grew by %d MiB", sent>>20, grown>>20)
	if grown > 64<<20 {
		t.Error("that is too much")
	}
	for seen := range 3 { // the others continue
		select {
		case <-rounds:
		case <-w.Ctx.Done():
			t.Fatalf("the others stopped after %d more rounds: %v", seen, context.Cause(w.Ctx))
		}
	}
}

// pingPong sends a message from one rank to another and back.
func (w *world) pingPong(a, b *mpilib.World) error {
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		var got [1]int
		if _, err := mpilib.Recv(w.Ctx, b.Comm(), got[:], a.Comm().Rank(), 1); err == nil {
			mpilib.Send(w.Ctx, b.Comm(), got[:], a.Comm().Rank(), 1)
		}
	})
	if err := mpilib.Send(w.Ctx, a.Comm(), []int{1}, b.Comm().Rank(), 1); err != nil {
		return err
	}
	_, err := mpilib.Recv(w.Ctx, a.Comm(), make([]int, 1), b.Comm().Rank(), 1)
	return err
}

// heapInUse returns the size of this process's heap in use, in bytes.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
