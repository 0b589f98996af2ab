package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/link/internal/memnet"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// end is one process's mesh and the links it was handed.
type end struct {
	mesh  *Mesh
	conn  overlay.Connector
	links chan *Link
	stop  context.CancelFunc
	done  chan error
}

// newNode returns roads between the processes of one node.
func newNode(t *testing.T) *roads {
	r := newRoads(t)
	r.node = true
	return r
}

// newEnd makes an end on a node.
func newEnd(t *testing.T, r *roads, rank, size uint32) *end {
	return startEnd(identity(t, rank), size, r.end(rank))
}

// listening makes an end on this node, at a Unix socket, that wants its carriers encrypted, or does not.
func listening(t *testing.T, dir string, rank, size uint32, seal bool) *end {
	t.Helper()
	id := identity(t, rank)
	conn, err := local.Listen(dir, id.Process)
	if err != nil {
		t.Fatal(err)
	}
	return startEnd(id, size, sealing{conn, seal})
}

// sealing is a connector of a site that wants everything encrypted, or nothing.
type sealing struct {
	overlay.Connector
	seal bool
}

func (s sealing) Dial(ctx context.Context, peer overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	c, err := s.Connector.Dial(ctx, peer, ways)
	c.Seal = s.seal
	return c, err
}

func (s sealing) Accept(ctx context.Context) (overlay.Carrier, error) {
	c, err := s.Connector.Accept(ctx)
	c.Seal = s.seal
	return c, err
}

func startEnd(id Identity, size uint32, conn overlay.Connector) *end {
	return startEndThat(id, size, conn, 0)
}

func startEndThat(id Identity, size uint32, conn overlay.Connector, patience time.Duration) *end {
	e := &end{conn: conn, links: make(chan *Link, 16), done: make(chan error, 1)}
	e.mesh = NewMesh(Config{Self: id, Size: size, Connector: conn, Patience: patience, Up: func(l *Link) { e.links <- l }})
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	go func() { e.done <- e.mesh.Serve(ctx) }()
	return e
}

func (e *end) close(t *testing.T) {
	t.Helper()
	e.stop()
	select {
	case err := <-e.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("Serve does not return")
	}
	e.conn.Close()
	for {
		select {
		case l := <-e.links:
			l.Conn.Close()
		default:
			return
		}
	}
}

// Two processes that connect to each other at the same time end with exactly one link, over which
// every message arrives once.
func TestBothDialAtOnce(t *testing.T) {
	for _, seal := range [][2]bool{{}, {true, true}, {true, false}, {false, true}} {
		t.Run(fmt.Sprintf("sealed by %v", seal), func(t *testing.T) { bothDialAtOnce(t, seal) })
	}
}

func bothDialAtOnce(t *testing.T, seal [2]bool) {
	repeats := 4
	if testload.Full() {
		repeats = 50
	}
	for i := range repeats {
		dir := testkit.ShortDir(t)
		ends := []*end{listening(t, dir, 0, 2, seal[0]), listening(t, dir, 1, 2, seal[1])}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		var start, connected sync.WaitGroup
		start.Add(1)
		for rank, e := range ends {
			connected.Go(func() {
				start.Wait()
				if err := e.mesh.Connect(ctx, uint32(1-rank)); err != nil {
					t.Errorf("repeat %d, rank %d: %v", i, rank, err)
				}
			})
		}
		start.Done()
		connected.Wait()
		cancel()
		if t.Failed() {
			return
		}
		a, b := linked(ends[0].links), linked(ends[1].links)
		if a.Dialled == b.Dialled {
			t.Fatalf("repeat %d: the ends hold different carriers", i)
		}
		for _, l := range []*Link{a, b} {
			fmt.Fprintf(l.Conn, "to rank %d", l.Peer.Rank)
			l.Conn.CloseWrite()
		}
		for rank, l := range []*Link{a, b} {
			l.Conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			got, err := io.ReadAll(l.Conn)
			if want := fmt.Sprintf("to rank %d", rank); string(got) != want || err != nil {
				t.Fatalf("repeat %d: %q, %v", i, got, err)
			}
			l.Conn.Close()
		}
		for _, e := range ends {
			e.close(t)
			if len(e.links) != 0 {
				t.Fatalf("repeat %d: a second link", i)
			}
		}
	}
}

// oneWay is a connector through which only others dial.
type oneWay struct {
	overlay.Connector
	dial func(ctx context.Context) error
}

func (o oneWay) Dial(ctx context.Context, _ overlay.ProcessName, _ overlay.Ways) (overlay.Carrier, error) {
	return overlay.Carrier{}, o.dial(ctx)
}

// The lower rank's own dial fails while the higher's carrier is parked: that carrier becomes the
// link, and Connect succeeds.
func TestParkedCarrierIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNode(t)
		conn := r.end(0)
		fail := make(chan struct{})
		low := startEnd(identity(t, 0), 2, oneWay{conn, func(context.Context) error { <-fail; return overlay.ErrNoPath }})
		high := newEnd(t, r, 1, 2)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		results := make(chan error, 2)
		go func() { results <- low.mesh.Connect(ctx, 1) }()
		waitFor(t, low.mesh, 1, func(p *attempt) bool { return p.dialling })
		go func() { results <- high.mesh.Connect(ctx, 0) }()
		waitFor(t, low.mesh, 1, func(p *attempt) bool { return p.parked != 0 })
		close(fail)
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		low.close(t)
		high.close(t)
	})
}

// refusing is a connector whose dials reach a peer that reports it has a link already, until block
// is closed: from then on they do not end.
type refusing struct {
	overlay.Connector
	peer  Identity
	takes time.Duration // duration of a dial
	dials atomic.Int32
	block chan struct{}
}

func (r *refusing) Dial(ctx context.Context, peer overlay.ProcessName, _ overlay.Ways) (overlay.Carrier, error) {
	r.dials.Add(1)
	time.Sleep(r.takes)
	select {
	case <-r.block:
		<-ctx.Done()
		return overlay.Carrier{}, ctx.Err()
	default:
	}
	ours, theirs := memnet.Pair(memnet.Options{Delay: delay})
	go Establish(ctx, overlay.Carrier{Conn: theirs}, r.peer, nil, func(*wire.Hello) error { return errKept }) // ends with its handshake
	return overlay.Carrier{Conn: ours}, nil
}

// For a peer that has a link which this end lacks, the dial waits as long as links are kept without
// a carrier, from when the peer reports it: what came before may have taken long.
func TestPeerHasALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refusing{Connector: newNode(t).end(0), peer: identity(t, 1), takes: 2 * time.Second, block: make(chan struct{})}
		low := startEndThat(identity(t, 0), 2, r, time.Second)
		err := low.mesh.Connect(t.Context(), 1)
		if n := r.dials.Load(); !errors.Is(err, overlay.ErrDuplicate) || n != 2 {
			t.Errorf("after %d dials, want 2: %v", n, err)
		}
		low.close(t)
	})
}

// A Connect whose context ends while a pair still tries says why the latest carrier broke.
func TestConnectGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refusing{Connector: newNode(t).end(0), peer: identity(t, 1), block: make(chan struct{})}
		low := startEndThat(identity(t, 0), 2, r, time.Minute)
		ctx := timed{t.Context(), make(chan struct{})}
		result := make(chan error, 1)
		go func() { result <- low.mesh.Connect(ctx, 1) }()
		waitFor(t, low.mesh, 1, func(a *attempt) bool { return a.broke != nil })
		close(ctx.over)
		err := <-result
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "tried again after") || !strings.Contains(err.Error(), "it has one already") {
			t.Error(err)
		}
		low.close(t)
	})
}

// When that peer dials, its carrier does not wait for a dial that cannot succeed.
func TestPeerComesForItsLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		r := &refusing{Connector: node.end(0), peer: identity(t, 1), block: make(chan struct{})}
		low := startEnd(identity(t, 0), 2, r)
		result := make(chan error, 1)
		go func() { result <- low.mesh.Connect(t.Context(), 1) }()
		for !toldOfALink(low.mesh, 1) {
			time.Sleep(time.Millisecond)
		}
		close(r.block)
		for n := r.dials.Load(); r.dials.Load() == n; {
			time.Sleep(time.Millisecond)
		}
		high := newEnd(t, node, 1, 2)
		began := time.Now()
		if err := errors.Join(high.mesh.Connect(t.Context(), 0), <-result); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took >= patience {
			t.Errorf("it took %v, as long as one that waits for a dial", took)
		}
		low.close(t)
		high.close(t)
	})
}

func toldOfALink(m *Mesh, rank uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pairs[rank] != nil && m.pairs[rank].refused
}

// A peer that looks for a carrier in two ways at once, for a link that this end does not know, gets
// it by whichever carrier is proven first, even if this end heard of the other later.
func TestTwoCarriersForOneLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNode(t)
		a := newEnd(t, r, 0, 2)
		peer, b := identity(t, 0).Process, identity(t, 1)
		conn := r.end(1)
		defer conn.Close()
		id := wire.ID{1}
		dial := func(admit func(ctx context.Context) error) (overlay.Carrier, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			c, err := conn.Dial(ctx, peer, overlay.AllWays)
			if err != nil {
				return c, err
			}
			c, _, err = runHandshake(ctx, c, b, &peer, terms{link: id, admit: func(*wire.Hello) (uint64, error) { return 0, admit(ctx) }})
			return c, err
		}
		first, second, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() {
			<-first
			if _, err := dial(func(context.Context) error { close(second); <-over; return errKept }); !errors.Is(err, overlay.ErrDuplicate) {
				t.Errorf("the second: %v", err)
			}
		})
		c, err := dial(func(ctx context.Context) error {
			close(first)
			select {
			case <-second:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		l := linked(a.links)
		close(over)
		others.Wait()
		if l.id != id {
			t.Errorf("link %v", l.id)
		}
		c.Conn.Close()
		l.Conn.Close()
		a.close(t)
	})
}

// waitFor polls a pair until it is in the state that the test needs.
func waitFor(t *testing.T, m *Mesh, rank uint32, ok func(*attempt) bool) {
	t.Helper()
	for range 2000 {
		m.mu.Lock()
		a := m.pairs[rank]
		good := a != nil && ok(a)
		m.mu.Unlock()
		if good {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the pair did not come to the expected state")
}

func TestDialFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startEnd(identity(t, 0), 2, oneWay{newNode(t).end(0), func(context.Context) error { return fmt.Errorf("rank 1: %w", overlay.ErrNoPath) }})
		for range 2 { // a second Connect tries again
			if err := e.mesh.Connect(context.Background(), 1); !errors.Is(err, overlay.ErrNoPath) {
				t.Errorf("got %v", err)
			}
		}
		e.close(t)
		if err := e.mesh.Connect(context.Background(), 1); err == nil || !strings.Contains(err.Error(), "the mesh is closed") {
			t.Errorf("after the end: %v", err)
		}
	})
}

// A second carrier of a pair that has its link is refused with the reason.
func TestSecondLinkIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNode(t)
		a, b := newEnd(t, r, 0, 2), newEnd(t, r, 1, 2)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := b.mesh.Connect(ctx, 0); err != nil {
			t.Fatal(err)
		}
		linked(a.links).Conn.Close()
		for _, tc := range []struct {
			life  overlay.Generation
			class error
			text  string
		}{
			{7, overlay.ErrDuplicate, "it says: another link of the pair was kept"},
			{6, overlay.ErrStale, "was replaced by a newer one"},
			{8, overlay.ErrRefused, "has had a link with an earlier life of that rank"},
		} {
			again := identity(t, 1)
			again.Generation = tc.life
			peer := identity(t, 0).Process
			c, err := b.conn.Dial(ctx, peer, overlay.AllWays)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Establish(ctx, c, again, &peer, admitAll)
			if !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("life %d: %v, want %q", tc.life, err, tc.text)
			}
		}
		a.close(t)
		b.close(t)
	})
}

// Links opened and closed, a thousand of them in full, leak no goroutine and no descriptor.
func TestNothingIsLeftBehind(t *testing.T) {
	for _, seal := range []bool{false, true} {
		size, rounds := uint32(6), 1
		if testload.Full() {
			size, rounds = 15, 6 // 105 links each
		}
		nothingIsLeftBehind(t, size, rounds, seal)
	}
}

func nothingIsLeftBehind(t *testing.T, size uint32, rounds int, seal bool) {
	dir := testkit.ShortDir(t)
	goroutines, files := runtime.NumGoroutine(), countFiles()
	for range rounds {
		var ends []*end
		for rank := range size {
			ends = append(ends, listening(t, dir, rank, size, seal))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		var all sync.WaitGroup
		for i, e := range ends {
			for j := range size {
				if uint32(i) != j {
					all.Go(func() {
						if err := e.mesh.Connect(ctx, j); err != nil {
							t.Error(err)
						}
					})
				}
			}
		}
		all.Wait()
		cancel()
		for _, e := range ends {
			if len(e.links) != int(size)-1 {
				t.Errorf("%d links, want %d", len(e.links), size-1)
			}
			e.close(t)
		}
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // goroutines that are ending need a moment
		if runtime.NumGoroutine() <= goroutines && countFiles() <= files {
			return
		}
	}
	t.Errorf("%d goroutines and %d descriptors before, %d and %d after", goroutines, files, runtime.NumGoroutine(), countFiles())
}

// countFiles counts this process's descriptors where the system lists them.
func countFiles() int {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if entries, err := os.ReadDir(dir); err == nil {
			return len(entries)
		}
	}
	return 0
}
