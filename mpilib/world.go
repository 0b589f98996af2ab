package mpilib

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/isthmus-grid/isthmus/internal/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
)

// World is a process's membership of a job: MPI_COMM_WORLD and what moves its
// messages. Safe for concurrent use.
type World struct {
	comm   *Comm
	engine *engine
	config config
}

type config struct {
	lookup         func(string) (string, bool)
	place          *place
	connector      overlay.Connector
	generation     overlay.Generation
	limit          int
	connectTimeout time.Duration
	byeTimeout     time.Duration
}

// Option changes how Init joins the world.
type Option func(*config)

// WithConnector joins as rank of size of the job whose key is given (as
// jobkey.Key prints it), reaching the others through c. Init then ignores the
// environment. The world owns c from then on.
func WithConnector(c overlay.Connector, key jobkey.Key, rank, size int) Option {
	return func(cfg *config) {
		cfg.connector = c
		cfg.place = &place{rank: rank, size: size, key: key}
	}
}

// WithUnexpectedLimit sets how many bytes of messages from one peer are kept
// for receives to come (default 64 MiB).
func WithUnexpectedLimit(bytes int) Option { return func(cfg *config) { cfg.limit = bytes } }

// WithConnectTimeout bounds each attempt to reach a peer, waiting for it to
// start included (default 60 s). What waits for the peer then fails.
func WithConnectTimeout(d time.Duration) Option { return func(cfg *config) { cfg.connectTimeout = d } }

// WithFinalizeTimeout bounds Finalize (default 60 s).
func WithFinalizeTimeout(d time.Duration) Option { return func(cfg *config) { cfg.byeTimeout = d } }

// Init joins the world that the environment describes (MPI_Init): that of
// `isthmus run` (ISTHMUS_RANK and _SIZE), else of PMI or PMIx, else of Slurm,
// else a world of one. With more than one rank ISTHMUS_JOB_KEY and either
// ISTHMUS_HELPER or ISTHMUS_DIR must say how to reach the others. ctx bounds
// the joining, not the world.
func Init(ctx context.Context, opts ...Option) (*World, error) {
	cfg := config{lookup: os.LookupEnv, limit: 64 << 20, connectTimeout: time.Minute, byeTimeout: time.Minute,
		generation: overlay.Generation(time.Now().UnixMicro())}
	for _, opt := range opts {
		opt(&cfg)
	}
	if !littleEndian() {
		return nil, errors.New("mpilib: Init: this machine is big-endian; elements travel as they lie in memory, so every process must be little-endian")
	}
	if cfg.place == nil {
		p, err := placeFrom(cfg.lookup)
		if err != nil {
			return nil, err
		}
		cfg.place = &p
	}
	w := &World{engine: newEngine(cfg.place.rank, cfg.place.size, cfg.limit), config: cfg}
	ranks := make([]int, cfg.place.size)
	for r := range ranks {
		ranks[r] = r
	}
	w.comm = newComm(w, "world", ranks, 0)
	w.engine.nextContext(2)
	return w, nil
}

func littleEndian() bool {
	b, _ := view([]uint16{1})
	return b[0] == 1
}

// Comm returns the communicator of all processes (MPI_COMM_WORLD).
func (w *World) Comm() *Comm { return w.comm }

// Finalize leaves the world (MPI_Finalize).
func (w *World) Finalize(ctx context.Context) error {
	w.engine.cancel()
	w.engine.wg.Wait()
	return nil
}
