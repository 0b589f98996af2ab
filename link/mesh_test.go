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
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/local"
	"github.com/isthmus-grid/isthmus/overlay"
)

// end is one process's mesh and the links it was handed.
type end struct {
	mesh  *Mesh
	conn  overlay.Connector
	links chan *Link
	stop  context.CancelFunc
	done  chan error
}

func newEnd(t *testing.T, dir string, rank, size uint32) *end {
	return newEndThat(t, dir, rank, size, false)
}

// newEndThat makes one that wants its carriers encrypted, or does not.
func newEndThat(t *testing.T, dir string, rank, size uint32, seal bool) *end {
	t.Helper()
	id := identity(t, rank)
	conn, err := local.Listen(dir, id.Process)
	if err != nil {
		t.Fatal(err)
	}
	return startEnd(id, size, sealing{conn, seal})
}

// sealing is a connector of a site that wants all encrypted, or nothing.
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
	e := &end{conn: conn, links: make(chan *Link, 16), done: make(chan error, 1)}
	e.mesh = NewMesh(Config{Self: id, Size: size, Connector: conn, Up: func(l *Link) { e.links <- l }})
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

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "isl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Two processes that connect to each other at the same instant end with
// exactly one link, over which every message arrives once.
func TestBothDialAtOnce(t *testing.T) {
	for _, seal := range [][2]bool{{}, {true, true}, {true, false}, {false, true}} {
		t.Run(fmt.Sprintf("sealed by %v", seal), func(t *testing.T) { bothDialAtOnce(t, seal) })
	}
}

func bothDialAtOnce(t *testing.T, seal [2]bool) {
	for i := range 50 {
		dir := shortDir(t)
		ends := []*end{newEndThat(t, dir, 0, 2, seal[0]), newEndThat(t, dir, 1, 2, seal[1])}
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
		a, b := linked(t, ends[0].links), linked(t, ends[1].links)
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

// The lower rank's own dial fails while the higher's carrier is parked: that
// one becomes the link, and Connect succeeds.
func TestParkedCarrierIsTaken(t *testing.T) {
	dir := shortDir(t)
	conn, err := local.Listen(dir, identity(t, 0).Process)
	if err != nil {
		t.Fatal(err)
	}
	fail := make(chan struct{})
	low := startEnd(identity(t, 0), 2, oneWay{conn, func(context.Context) error { <-fail; return overlay.ErrNoPath }})
	high := newEnd(t, dir, 1, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	results := make(chan error, 2)
	go func() { results <- low.mesh.Connect(ctx, 1) }()
	waitFor(t, low.mesh, 1, func(p pair) bool { return p.dialling })
	go func() { results <- high.mesh.Connect(ctx, 0) }()
	waitFor(t, low.mesh, 1, func(p pair) bool { return p.parked != 0 })
	close(fail)
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	low.close(t)
	high.close(t)
}

// waitFor polls a pair until it is as the test needs it.
func waitFor(t *testing.T, m *Mesh, rank uint32, ok func(pair) bool) {
	t.Helper()
	for range 2000 {
		m.mu.Lock()
		a := m.pairs[rank]
		good := a != nil && ok(a.pair)
		m.mu.Unlock()
		if good {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the pair did not come to the expected state")
}

func TestDialFailure(t *testing.T) {
	dir := shortDir(t)
	conn, err := local.Listen(dir, identity(t, 0).Process)
	if err != nil {
		t.Fatal(err)
	}
	e := startEnd(identity(t, 0), 2, oneWay{conn, func(context.Context) error { return fmt.Errorf("rank 1: %w", overlay.ErrNoPath) }})
	for range 2 { // a second Connect tries anew
		if err := e.mesh.Connect(context.Background(), 1); !errors.Is(err, overlay.ErrNoPath) {
			t.Errorf("got %v", err)
		}
	}
	e.close(t)
	if err := e.mesh.Connect(context.Background(), 1); err == nil || !strings.Contains(err.Error(), "the mesh is closed") {
		t.Errorf("after the end: %v", err)
	}
}

// A second carrier of a pair that has its link is refused, and says so.
func TestSecondLinkIsRefused(t *testing.T) {
	dir := shortDir(t)
	a, b := newEnd(t, dir, 0, 2), newEnd(t, dir, 1, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := b.mesh.Connect(ctx, 0); err != nil {
		t.Fatal(err)
	}
	linked(t, a.links).Conn.Close()
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
}

// A thousand links opened and closed leave no goroutine and no descriptor.
func TestNothingIsLeftBehind(t *testing.T) {
	nothingIsLeftBehind(t, 10, false)
	nothingIsLeftBehind(t, 2, true)
}

func nothingIsLeftBehind(t *testing.T, rounds int, seal bool) {
	dir := shortDir(t)
	goroutines, files := runtime.NumGoroutine(), countFiles()
	for range rounds {
		const size = 15 // 105 links
		var ends []*end
		for rank := range uint32(size) {
			ends = append(ends, newEndThat(t, dir, rank, size, seal))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		var all sync.WaitGroup
		for i, e := range ends {
			for j := range uint32(size) {
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
			if len(e.links) != size-1 {
				t.Errorf("%d links, want %d", len(e.links), size-1)
			}
			e.close(t)
		}
	}
	for range 400 { // goroutines that have nothing left to do need a moment to be gone
		if runtime.NumGoroutine() <= goroutines && countFiles() <= files {
			return
		}
		time.Sleep(5 * time.Millisecond)
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
