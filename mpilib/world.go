package mpilib

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/overlay"
)

// World is a process's membership of a job: MPI_COMM_WORLD and what moves its
// messages. Safe for concurrent use.
type World struct {
	comm   *Comm
	engine *engine.Engine
	config config
	comms  comms
	watch  *debug.Watcher // of the debug mode; else nil
	guests guests         // ports, and worlds that this one has with other jobs
	host   *World         // of a world with another job: this job's; else nil

	connector overlay.Connector // nil in a world of one
	mesh      *link.Mesh
	leave     func()             // ends the mesh, and waits
	stop      context.CancelFunc // ends what serving waits for
	serving   sync.WaitGroup
	meshErr   error // of mesh.Serve; read after leave

	life context.Context // of calls that go on by themselves; ends with the engine
	die  context.CancelCauseFunc

	once     sync.Once
	finalErr error
}

type config struct {
	lookup         func(string) (string, bool)
	place          *place
	connector      overlay.Connector
	reach          func(overlay.ProcessName) (overlay.Connector, error) // of further jobs that this process joins; nil: as place says
	limit          int                                                  // of what is kept for receives to come, of one peer
	maxLimit       int                                                  // that it grows to
	unshared       bool
	connectTimeout time.Duration
	byeTimeout     time.Duration
	where          func(rank int) overlay.NodeID // WithPlace; nil: the helper says
	groups         *string                       // WithGroups; nil: the environment says
	layout         jobgroups.Layout
	log            *slog.Logger
	signs          bool // messages carry the signature of their type
	debug          debug.Parts
	debugOut       io.Writer
	patience       time.Duration // of the debug mode
	trace          string        // where timelines go; empty: nowhere
	orders         orders
	explain        io.Writer // where choices of algorithms are told; nil: nowhere
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
// for receives to come (64 KiB at least). The default is 16 MiB, which grows up to 64 MiB, and by
// 256 MiB for all peers together, where more is under way on a long path.
func WithUnexpectedLimit(bytes int) Option {
	return func(cfg *config) { cfg.limit, cfg.maxLimit = bytes, bytes }
}

// WithConnectTimeout bounds each attempt to reach a peer, waiting for it to
// start included (default 60 s). What waits for the peer then fails.
func WithConnectTimeout(d time.Duration) Option { return func(cfg *config) { cfg.connectTimeout = d } }

// WithFinalizeTimeout bounds Finalize (default 60 s).
func WithFinalizeTimeout(d time.Duration) Option { return func(cfg *config) { cfg.byeTimeout = d } }

// WithoutSharedMemory has messages to processes of the same node go over links, as
// ISTHMUS_SHARED=off does.
func WithoutSharedMemory() Option { return func(cfg *config) { cfg.unshared = true } }

// WithLog has the world write to log what its user may want to know of it: which
// other sites its messages go to encrypted, one line for each. Without it the
// world is silent.
func WithLog(log *slog.Logger) Option { return func(cfg *config) { cfg.log = log } }

// Init joins the world that the environment describes (MPI_Init): that of
// `isthmus run` (ISTHMUS_RANK and _SIZE), else of PMI or PMIx, else of Slurm,
// else a world of one. With more than one rank ISTHMUS_JOB_KEY and either
// ISTHMUS_HELPER or ISTHMUS_DIR must say how to reach the others. ISTHMUS_GROUPS
// may name groups of ranks. ctx bounds the joining, not the world.
func Init(ctx context.Context, opts ...Option) (*World, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("mpilib: Init: %w", ctx.Err())
	}
	cfg := config{lookup: os.LookupEnv, limit: 16 << 20, maxLimit: 64 << 20, connectTimeout: time.Minute, byeTimeout: time.Minute}
	for _, opt := range opts {
		opt(&cfg)
	}
	if err := cfg.readDebug(); err != nil {
		return nil, err
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
	if err := cfg.readGroups(); err != nil {
		return nil, err
	}
	if err := cfg.readOrders(); err != nil {
		return nil, err
	}
	cfg.place.unshared = cfg.place.unshared || cfg.unshared
	return newWorld(ctx, cfg)
}

// newWorld joins the world of a complete config.
func newWorld(ctx context.Context, cfg config) (*World, error) {
	w := &World{config: cfg}
	w.life, w.die = context.WithCancelCause(context.Background())
	w.engine = engine.New(engine.Config{Rank: cfg.place.rank, Size: cfg.place.size, Unexpected: cfg.limit, MaxUnexpected: cfg.maxLimit, SharedMemory: !cfg.place.unshared, Connect: w.connect, Unmade: w.unmade, OnNews: w.told})
	if err := w.firstComms(); err != nil {
		return nil, fmt.Errorf("mpilib: Init: %w", err)
	}
	if err := w.watched(); err != nil {
		return nil, fmt.Errorf("mpilib: Init: %w", err)
	}
	if cfg.place.size > 1 || cfg.connector != nil {
		if err := w.join(ctx); err != nil {
			w.endWatch()
			return nil, fmt.Errorf("mpilib: Init: rank %d of %d: %w", cfg.place.rank, cfg.place.size, err)
		}
	}
	w.watch.Serve()
	return w, nil
}

// join starts what reaches the other ranks and is reached by them.
func (w *World) join(ctx context.Context) error {
	p := w.config.place
	serving, stop := context.WithCancel(context.Background())
	w.stop = stop
	life, err := w.openConnector(ctx, serving)
	if err != nil {
		stop()
		w.serving.Wait()
		return err
	}
	self := link.NewIdentity(p.key, uint32(p.rank), life)
	w.mesh = link.NewMesh(link.Config{Self: self, Size: uint32(p.size), Connector: w.connector, Carriers: p.carriers, Log: w.config.log, Up: w.engine.Attach})
	w.leave = serveMesh(serving, w.mesh, &w.meshErr)
	return nil
}

// serveMesh serves a mesh until life ends or leave is called, which waits. To be
// called before the connector is closed: the mesh's last words go through it.
func serveMesh(life context.Context, m *link.Mesh, err *error) (leave func()) {
	ctx, cancel := context.WithCancel(life)
	var serving sync.WaitGroup
	serving.Go(func() { *err = m.Serve(ctx) })
	return func() {
		cancel()
		serving.Wait()
	}
}

// connect returns when there is a link to rank, or why there is none.
func (w *World) connect(ctx context.Context, rank int) error {
	ctx, cancel := context.WithTimeout(ctx, w.config.connectTimeout)
	defer cancel()
	return w.mesh.Connect(ctx, uint32(rank))
}

// openConnector takes the connector that was given, or opens one, and returns in
// which of its lives this process is.
func (w *World) openConnector(ctx, serving context.Context) (overlay.Generation, error) {
	if w.config.connector != nil {
		w.connector = w.config.connector
		return startLife(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.config.connectTimeout)
	defer cancel()
	p := w.config.place
	o, err := w.open(ctx, serving, &w.serving, uint32(p.rank), p.key, w.dead)
	if err != nil {
		return 0, err
	}
	if w.config.where == nil {
		w.comms.here = o.here
	}
	w.connector = o.connector
	return o.life, nil
}

// startLife is the generation of a process that no helper gives one.
func startLife() overlay.Generation { return overlay.NewGeneration(time.Now(), 0) }

// opened is what reaches the processes of a job.
type opened struct {
	connector overlay.Connector
	here      overlay.NodeID     // where this process is, if anybody knows
	life      overlay.Generation // of this process
}

// dead hears from the helper that processes have died with their node, which may be
// long before their links are given up.
func (w *World) dead(ranks []uint32, why string) {
	for _, rank := range ranks {
		if int64(rank) < int64(w.engine.Size()) && int(rank) != w.engine.Rank() {
			w.engine.Fail(int(rank), errors.New(why))
		}
	}
}

// open returns what reaches the other processes of a job, which this process is rank
// of, its own or another that it joins: the helper, or sockets in a directory. It has
// work wait for what it starts, which ends with life. dead, if not nil, is told of the
// job's processes that died with their node.
func (w *World) open(ctx, life context.Context, work *sync.WaitGroup, rank uint32, key jobkey.Key, dead func([]uint32, string)) (opened, error) {
	p := w.config.place
	self := overlay.ProcessName{Job: key.ID(), Rank: rank}
	switch {
	case w.config.reach != nil:
		c, err := w.config.reach(self)
		return opened{c, w.comms.here, startLife()}, err
	case p.dir != "":
		d, err := local.Listen(p.dir, self)
		if err != nil {
			return opened{}, err // not a nil *Directory in a Connector
		}
		return opened{connector: d, life: startLife()}, nil
	case p.helper == "":
		return opened{}, fmt.Errorf("%w: this process has no helper; start the job with `isthmus run --helper SOCKET`, or set %s", ErrEnv, EnvHelper)
	}
	var shown []byte
	if key == p.key {
		shown = p.grant // which is for this job
	}
	client := local.NewClient(local.ClientConfig{Socket: p.helper, Process: self, Auth: key.Auth(), Grant: shown, Dead: dead})
	work.Go(func() { client.Serve(life) }) // what ends it, Ready and Dial report
	here, err := client.Ready(ctx)
	if err != nil {
		client.Close()
		return opened{}, err
	}
	return opened{client, here, client.Generation()}, nil
}

func littleEndian() bool {
	b, _ := buffer.View([]uint16{1})
	return b[0] == 1
}

// Comm returns the communicator of all processes (MPI_COMM_WORLD).
func (w *World) Comm() *Comm { return w.comm }

// Finalize leaves the world (MPI_Finalize). It returns when every peer this
// process has a link with has read everything that was sent to it, which needs
// no call there, and writes the report that ISTHMUS_REPORT asks for. Messages
// that nobody here received are dropped; requests that are not complete fail
// with ErrFinalized. It is bounded by ctx and WithFinalizeTimeout; its error
// names who did not confirm. In every case all goroutines and sockets of the
// world are gone when it returns. A second call does nothing.
func (w *World) Finalize(ctx context.Context) error {
	w.once.Do(func() { w.finalErr = w.finalize(ctx) })
	return w.finalErr
}

func (w *World) finalize(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.config.byeTimeout)
	defer cancel()
	guestErr := w.guests.end(ctx)
	if w.host != nil {
		defer w.host.guests.left(w)
	}
	if w.watch != nil {
		w.watch.Finalize(ctx)
	}
	errs := []error{guestErr, w.comms.end(), w.engine.Goodbye(ctx)}
	links := w.Links()
	w.engine.Close()
	w.die(ErrFinalized)
	errs = append(errs, w.endWatch())
	if w.leave != nil {
		w.leave()
	}
	if w.connector != nil {
		errs = append(errs, w.connector.Close())
	}
	if w.stop != nil {
		w.stop()
	}
	w.serving.Wait()
	w.comms.background.Wait()
	errs = append(errs, w.meshErr)
	if name, ok := w.config.lookup(EnvReport); ok && name != "" {
		errs = append(errs, writeReport(name, w.engine.Rank(), links))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("mpilib: Finalize: rank %d: %w", w.engine.Rank(), err)
	}
	return nil
}
