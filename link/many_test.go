package link

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/overlay"
)

// crowd is processes that all have links with each other.
type crowd struct {
	roads *roads
	links [][2]*Link // both ends of each
	stop  context.CancelFunc
	work  sync.WaitGroup
}

func newCrowd(t *testing.T, size uint32) *crowd {
	h := &crowd{roads: newRoads(t)}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	var mu sync.Mutex
	links := map[[2]uint32]*Link{}
	var meshes []*Mesh
	for rank := range size {
		m := NewMesh(Config{Self: identity(t, rank), Size: size, Connector: h.roads.end(rank), Up: func(l *Link) {
			mu.Lock()
			defer mu.Unlock()
			links[[2]uint32{rank, l.Peer.Rank}] = l
		}})
		meshes = append(meshes, m)
		h.work.Go(func() { m.Serve(ctx) })
	}
	for a := range size {
		for b := range a {
			for _, err := range []error{meshes[a].Connect(ctx, b), meshes[b].Connect(ctx, a)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			h.links = append(h.links, [2]*Link{links[[2]uint32{a, b}], links[[2]uint32{b, a}]})
		}
	}
	return h
}

// outstanding is the maximum of unacknowledged data per direction of a link in this test: a writer
// waits until the peer has taken enough.
const outstanding = 64 << 10

// TestManyLinks: many links in one process, more than 500 in full, carry data both ways while 1 % of the
// carriers are cut each second. Every byte arrives once and in order; memory stays within the formula in
// package stream.
//
// ISTHMUS_SOAK=60s sets the duration.
func TestManyLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		size, lasts := uint32(7), 10*time.Second
		if testload.Full() {
			size = 33
		}
		if s := os.Getenv("ISTHMUS_SOAK"); s != "" {
			var err error
			if lasts, err = time.ParseDuration(s); err != nil {
				t.Fatal(err)
			}
		}
		before := heap()
		h := newCrowd(t, size)
		pairs := len(h.links)
		defer h.work.Wait()
		defer h.stop()
		idle := heap() - before
		ends := int64(2 * pairs)
		if most := ends * (carrierMemory + streamMemory + linkMemory); idle > most && !raceEnabled { // the race detector needs memory of its own
			t.Errorf("%d ends without data have %d KiB of memory, %d each; the formula allows %d", ends, idle>>10, idle/ends, most/ends)
		}

		stop := make(chan struct{})
		var bytes atomic.Int64
		const rest = time.Second // at most, between two messages: what the links carry is to be computed soon
		var traffic sync.WaitGroup
		for i, l := range h.links {
			for k := range 2 {
				from, to, seed := l[k], l[1-k], uint64(2*i+k)
				traffic.Go(func() {
					if err := babble(from.Conn, seed, rest, stop); err != nil {
						t.Errorf("link %d, end %d: %v", i, k, err)
					}
				})
				traffic.Go(func() {
					n, err := listen(to.Conn, seed)
					if bytes.Add(n); err != nil {
						t.Errorf("link %d, end %d: %v", i, 1-k, err)
					}
				})
			}
		}
		cuts, most := h.harass(lasts, pairs)
		close(stop)
		traffic.Wait()
		perEnd := int64(2*(outstanding+128<<10)+2*carrierMemory+streamMemory+linkMemory) + testMemory
		if most -= before; testload.Full() && most > ends*perEnd && !raceEnabled { // of fewer links it depends on when the collector ran
			t.Errorf("%d ends had %d KiB of memory, %d each; the formula allows %d", ends, most>>10, most/ends, perEnd)
		}
		if cuts < max(pairs/100, 1)*int(lasts/time.Second-1) {
			t.Errorf("only %d carriers were cut", cuts)
		}
		t.Logf("%d links, %v: %d MiB, %d carriers cut, %d dialled, at most %d KiB of memory an end (allowed %d), %d idle",
			pairs, lasts, bytes.Load()>>20, cuts, h.roads.count(overlay.Direct)+h.roads.count(overlay.Relay), most/ends>>10, perEnd>>10, idle/ends>>10)
	})
}

// In bytes: by package stream's formula, of a link's supervisor and mesh, and of the test's own buffers
// for an end.
const (
	carrierMemory = 68 << 10
	streamMemory  = 12 << 10
	linkMemory    = 11 << 10
	testMemory    = 3 * maxMessage
	maxMessage    = 32 << 10
)

// heap returns the memory in use, without what is free between: how much that is depends on what ran at
// the same time.
func heap() int64 {
	runtime.GC()
	runtime.GC() // empties pools too
	return liveHeap()
}

// liveHeap returns what heap would, as of the last collection that the program has made by itself: one for
// this alone would hold up all links, on a busy machine for seconds.
func liveHeap() int64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())
}

// harass cuts a hundredth of the carriers each second, at least one, and returns how many and the maximum memory
// in use.
func (h *crowd) harass(lasts time.Duration, pairs int) (cuts int, most int64) {
	rng := rand.New(rand.NewPCG(7, 7))
	var look time.Duration
	for start, t := time.Now(), time.Duration(0); t < lasts; time.Sleep(10 * time.Millisecond) {
		t = min(time.Since(start), lasts)
		for due := int(t.Seconds() * max(float64(pairs)/100, 1)); cuts < due && h.roads.cutOne(rng); {
			cuts++
		}
		if t > look {
			most = max(most, liveHeap())
			look = t + lasts/10
		}
	}
	return cuts, most
}

// cutOne resets one of the connections.
func (r *roads) cutOne(rng *rand.Rand) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) == 0 {
		return false
	}
	n := rng.IntN(len(r.open))
	for w := range r.open {
		if n--; n < 0 {
			w.close()
			break
		}
	}
	return true
}

// babble writes until it is stopped, then ends its direction. Before each write of about outstanding it
// rests for up to rest, or longer where the last one took long to be acknowledged.
func babble(c Conn, seed uint64, rest time.Duration, stop <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	pause := func(least time.Duration) {
		select {
		case <-time.After(max(time.Duration(rng.Int64N(int64(rest))), least)):
		case <-stop:
		}
	}
	pause(0)
	source := rand.NewChaCha8(seedOf(seed))
	buf := make([]byte, maxMessage)
	var mark, settled uint64
	for {
		select {
		case <-stop:
			return c.CloseWrite()
		default:
		}
		piece := buf[:1+rng.IntN(1<<(1+rng.IntN(15)))]
		source.Read(piece)
		n, err := c.Write(piece)
		if err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		mark += uint64(n)
		if mark-settled > outstanding-maxMessage {
			since := time.Now()
			if err := c.(interface{ Await(uint64) error }).Await(mark); err != nil {
				return fmt.Errorf("awaiting: %w", err)
			}
			settled = mark
			pause(4 * time.Since(since))
		}
	}
}

// listen reads to the end and compares each byte with what was sent.
func listen(c Conn, seed uint64) (total int64, err error) {
	source := rand.NewChaCha8(seedOf(seed))
	got, want := make([]byte, maxMessage), make([]byte, maxMessage)
	for {
		n, err := c.Read(got)
		source.Read(want[:n])
		if string(got[:n]) != string(want[:n]) {
			return total, fmt.Errorf("the bytes behind the %d-th are not those that were sent", total)
		}
		total += int64(n)
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, fmt.Errorf("reading: %w", err)
		}
	}
}

func seedOf(n uint64) (s [32]byte) {
	for i := range s {
		s[i] = byte(n >> (8 * (i % 8)))
	}
	return s
}
