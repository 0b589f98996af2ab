package mpilib

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib/internal/join"
	"github.com/isthmus-grid/isthmus/overlay"
)

// TB is the part of *testing.T and *testing.B that TestWorld uses.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// testTimeout bounds a TestWorld.
const testTimeout = 2 * time.Minute

// TestWorld runs f as each of n ranks of one world within this process, over real sockets, and
// returns when all have returned and finalized. An error of f fails the test, names the rank and
// ends ctx for the others.
func TestWorld(t TB, n int, f func(ctx context.Context, comm *Comm) error, opts ...Option) {
	t.Helper()
	dir, err := os.MkdirTemp("", "isthmus") // t.TempDir's path may be too long for a socket
	if err != nil {
		t.Fatalf("TestWorld: %v", err)
	}
	defer os.RemoveAll(dir)
	testWorld(t, n, func(self overlay.ProcessName) (overlay.Connector, error) { return local.Listen(dir, self) }, f, opts...)
}

// testWorld is TestWorld with a connector from connect for each rank.
func testWorld(t TB, n int, connect func(self overlay.ProcessName) (overlay.Connector, error), f func(context.Context, *Comm) error, opts ...Option) {
	t.Helper()
	key, err := jobkey.New("test")
	if err != nil {
		t.Fatalf("TestWorld: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	cfg := config{place: new(join.Place)} // for options that change it
	for _, opt := range opts {
		opt(&cfg)
	}
	var ranks sync.WaitGroup
	for process := range n * max(1, cfg.replicas.Replicas) {
		rank := process % n
		ranks.Go(func() {
			which := func(cfg *config) { cfg.replicas.Replica = process / n }
			if err := runRank(ctx, connect, key, process, n, f, append(opts[:len(opts):len(opts)], which)); err != nil && !(cfg.killed != nil && cfg.killed(process)) {
				t.Errorf("rank %d of %d: %v", rank, n, err)
				cancel()
			}
		})
	}
	ranks.Wait()
}

func runRank(ctx context.Context, connect func(overlay.ProcessName) (overlay.Connector, error), key jobkey.Key, process, size int, f func(context.Context, *Comm) error, opts []Option) error {
	conn, err := connect(overlay.ProcessName{Job: key.ID(), Rank: uint32(process)})
	if err != nil {
		return err
	}
	reach := func(cfg *config) { cfg.reach = connect }
	w, err := Init(ctx, append([]Option{WithConnector(conn, key, process%size, size), reach}, opts...)...)
	if err != nil {
		conn.Close()
		return err
	}
	err = f(ctx, w.Comm())
	if err != nil {
		// Leave at once: a goodbye would wait for ranks that wait for this one.
		gone, cancel := context.WithCancel(ctx)
		cancel()
		w.Finalize(gone)
		return err
	}
	if err := w.Finalize(ctx); err != nil {
		return fmt.Errorf("after it returned: %w", err)
	}
	return nil
}
