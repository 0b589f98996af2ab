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

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/dynproc"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/join"
	"github.com/isthmus-grid/isthmus/mpilib/internal/plan"
	"github.com/isthmus-grid/isthmus/mpilib/internal/report"
	"github.com/isthmus-grid/isthmus/overlay"
)

// World is a process's membership of a job: MPI_COMM_WORLD and the transport of its messages. Safe
// for concurrent use.
type World struct {
	comm      *Comm
	engine    *engine.Engine
	config    config
	comms     comms
	watch     *debug.Watcher      // of the debug mode; otherwise nil
	otherJobs dynproc.Connections // ports, and joint worlds of this one and other jobs
	host      *World              // of a world with another job: this job's; otherwise nil

	calls  calls.World
	member join.Member   // empty in a world of one
	joined chan struct{} // closed once member is set, or will not be

	die context.CancelCauseFunc // ends background calls

	once     sync.Once
	finalErr error
}

type config struct {
	computed       uint32 // contexts that all processes compute in place of asking; a peer may send in them from the start
	lookup         func(string) (string, bool)
	place          *join.Place
	openPMIx       func(context.Context) (join.Manager, error) // WithPMIx
	connector      overlay.Connector
	reach          func(overlay.ProcessName) (overlay.Connector, error) // of further jobs that this process joins; nil: as place names
	limit          int                                                  // of unexpected messages of one peer
	maxLimit       int                                                  // up to which it grows
	unshared       bool
	connectTimeout time.Duration
	byeTimeout     time.Duration
	where          func(rank int) overlay.NodeID // WithPlace; nil: as the helper says
	groups         *string                       // WithGroups; nil: as the environment says
	layout         jobgroups.Layout
	log            *slog.Logger
	signs          bool // messages carry the signature of their type
	debug          debug.Parts
	debugOut       io.Writer
	patience       time.Duration // of the debug mode
	trace          string        // destination of timelines; empty for none
	orders         plan.Orders
	explain        io.Writer              // destination of the choices of algorithms; nil for none
	replicas       join.Place             // of a TestWorld: Replica, Replicas, Table, SendDeterministic and Places
	spares         join.Place             // of WithSpares: Spares and Replacements
	killed         func(process int) bool // of a TestWorld: whether the test has killed it; nil: none
}

// Option modifies how Init joins the world.
type Option func(*config)

// WithConnector joins as rank of size of the job with the given key (as jobkey.Key prints it), and
// reaches the other ranks through c. Init then ignores the environment. The world owns c from then
// on.
func WithConnector(c overlay.Connector, key jobkey.Key, rank, size int) Option {
	return func(cfg *config) {
		cfg.connector = c
		cfg.place = &join.Place{Rank: rank, Size: size, Key: key}
	}
}

// A ProcessManager is a connection to the launcher that has started this process, by which the processes of its job leave texts for each other. Only
// Abort may be called during another call.
type ProcessManager = join.Manager

// WithPMIx lets Init use a client of PMIx, which is a library in C: it opens it where a launcher with PMIx has started the processes, on several
// hosts, say. The world closes it.
func WithPMIx(open func(context.Context) (ProcessManager, error)) Option {
	return func(cfg *config) { cfg.openPMIx = open }
}

// WithUnexpectedLimit sets how many bytes of unexpected messages from one peer are buffered (64 KiB
// at least). The default is 16 MiB, which grows up to 64 MiB, and by 256 MiB for all peers
// together, if more is in transit on a long path.
func WithUnexpectedLimit(bytes int) Option {
	return func(cfg *config) { cfg.limit, cfg.maxLimit = bytes, bytes }
}

// WithConnectTimeout bounds each attempt to reach a peer, including the wait for its start (default
// 60 s). Calls that wait for the peer then fail.
func WithConnectTimeout(d time.Duration) Option { return func(cfg *config) { cfg.connectTimeout = d } }

// WithFinalizeTimeout bounds Finalize (default 60 s).
func WithFinalizeTimeout(d time.Duration) Option { return func(cfg *config) { cfg.byeTimeout = d } }

// WithoutSharedMemory makes messages to processes of the same node use links, like
// ISTHMUS_SHARED=off.
func WithoutSharedMemory() Option { return func(cfg *config) { cfg.unshared = true } }

// WithLog makes the world log information for the user: the other sites to which its messages are
// encrypted, one line for each. Without it the world logs nothing.
func WithLog(log *slog.Logger) Option { return func(cfg *config) { cfg.log = log } }

// Init joins the world that the environment describes (MPI_Init): that of `isthmus run`
// (ISTHMUS_RANK and _SIZE), or else of PMI or PMIx, or else of Slurm, or else a world of one. With
// more than one rank ISTHMUS_JOB_KEY and either ISTHMUS_HELPER or ISTHMUS_DIR must specify how to
// reach the others, unless PMI, or PMIx (WithPMIx) or its folder on one host, lets the processes agree on that. ISTHMUS_GROUPS may name groups of ranks. ctx bounds the joining, not the world.
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
		p, err := join.FromEnvironment(cfg.lookup)
		if err != nil {
			return nil, err
		}
		p.OpenPMIx = cfg.openPMIx
		cfg.place = &p
	}
	if err := cfg.place.Complete(ctx, cfg.connectTimeout); err != nil {
		return nil, err
	}
	if err := cfg.readGroups(); err != nil {
		return nil, err
	}
	if err := cfg.readOrders(); err != nil {
		return nil, err
	}
	cfg.place.Unshared = cfg.place.Unshared || cfg.unshared
	if err := cfg.readReplicas(); err != nil {
		return nil, err
	}
	cfg.readSpares()
	return newWorld(ctx, cfg)
}

// newWorld joins the world of a complete config.
func newWorld(ctx context.Context, cfg config) (*World, error) {
	w := &World{config: cfg, joined: make(chan struct{})}
	w.calls.Life, w.die = context.WithCancelCause(context.Background())
	w.calls.Plans = w.planning()
	w.calls.Contexts.Init(cfg.place.Rank, cfg.place.Size+cfg.place.Spares)
	if cfg.place.Spares > 0 && cfg.place.Rank == 0 {
		w.calls.Contexts.Skip(1) // comm.Numbers
	}
	w.calls.Contexts.Skip(cfg.computed)
	w.otherJobs.Init(dynproc.Config{
		Reacher: w.reacher(), Connector: func() overlay.Connector { return w.member.Connector }, Timeout: cfg.connectTimeout, Log: cfg.log,
	})
	w.engine = engine.New(engine.Config{
		Rank: cfg.place.Rank, Size: cfg.place.Size + cfg.place.Spares, Spares: cfg.place.Spares, Unexpected: cfg.limit, MaxUnexpected: cfg.maxLimit, SharedMemory: !cfg.place.Unshared,
		Connect: w.connect, Unallocated: w.calls.Contexts.Unallocated, OnEvent: w.comms.agreements.HandleEvent, Replication: cfg.replication(),
	})
	w.calls.Engine, w.comms.agreements.Engine = w.engine, w.engine
	if err := w.firstComms(); err != nil {
		return nil, fmt.Errorf("mpilib: Init: %w", err)
	}
	if err := w.watched(); err != nil {
		return nil, fmt.Errorf("mpilib: Init: %w", err)
	}
	if cfg.place.Processes() > 1 || cfg.connector != nil {
		if err := w.join(ctx); err != nil {
			w.endWatch()
			return nil, fmt.Errorf("mpilib: Init: rank %d of %d: %w", cfg.place.Rank, cfg.place.Size, err)
		}
	}
	w.watch.Serve()
	return w, nil
}

// reacher reaches the processes of this job, and of others that this process joins.
func (w *World) reacher() join.Reacher {
	return join.Reacher{Place: w.config.place, Reach: w.config.reach, Here: func() overlay.NodeID { return w.comms.node }}
}

// join opens the connector to the other ranks and accepts their links.
func (w *World) join(ctx context.Context) error {
	defer close(w.joined)
	p := w.config.place
	err := w.member.Join(ctx, w.reacher(), join.Job{
		Key: p.Key, Rank: uint32(p.Process()), Size: uint32(p.Processes()), Carriers: p.Carriers, Given: w.config.connector,
		Timeout: w.config.connectTimeout, Log: w.config.log, Up: w.engine.Attach, Dead: w.dead,
	})
	if err == nil && w.config.connector == nil && w.config.where == nil && !w.replicated() {
		w.comms.node = w.member.Here
	}
	return err
}

var errNotJoined = errors.New("this process has not joined its job")

// connect returns when there is a link to a process, or an error if there can be none. It waits for the start of a
// process with a spare number for as long as it takes.
func (w *World) connect(ctx context.Context, process int) error {
	for {
		err := w.connectOnce(ctx, process)
		if !w.startsLater(process) || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

func (w *World) connectOnce(ctx context.Context, process int) error {
	ctx, cancel := context.WithTimeout(ctx, w.config.connectTimeout)
	defer cancel()
	select { // the engine may want a link as soon as the helper says who has died, before it has said where this process is
	case <-w.joined:
	case <-ctx.Done():
		return ctx.Err()
	}
	if w.member.Mesh == nil {
		return errNotJoined
	}
	return w.member.Mesh.Connect(ctx, uint32(process))
}

// dead handles the helper's notification that processes have died with their node, which may come
// long before their links are given up.
func (w *World) dead(processes []uint32, why string) {
	for _, q := range processes {
		if p := w.config.place; int64(q) < int64(p.Processes()) && int(q) != p.Process() {
			w.engine.MarkFailed(int(q), errors.New(why))
		}
	}
}

func littleEndian() bool {
	b, _ := buffer.View([]uint16{1})
	return b[0] == 1
}

// Comm returns the communicator of all processes (MPI_COMM_WORLD).
func (w *World) Comm() *Comm { return w.comm }

// Finalize leaves the world (MPI_Finalize). It returns when every peer with which this process has
// a link has read everything that was sent to it, for which the peer needs no call, and writes the
// report that ISTHMUS_REPORT requests. Unreceived messages are dropped; incomplete requests fail
// with ErrFinalized. It is bounded by ctx and WithFinalizeTimeout; its error names the peers that
// did not confirm, but not those that are lost in a job that has replicas or replaces processes. In every case
// all goroutines and sockets of the world are gone when it returns. A second call does nothing.
func (w *World) Finalize(ctx context.Context) error {
	w.once.Do(func() { w.finalErr = w.finalize(ctx) })
	return w.finalErr
}

// sayGoodbyeToPeers says goodbye to the peers, and lets the connector know if that was possible.
func (w *World) sayGoodbyeToPeers(ctx context.Context) error {
	err := w.engine.Goodbye(ctx)
	if d, ok := w.member.Connector.(interface{ Finalized() }); ok && err == nil {
		d.Finalized()
	}
	return err
}

func (w *World) finalize(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.config.byeTimeout)
	defer cancel()
	otherErr := w.otherJobs.End(ctx)
	if w.host != nil {
		defer w.host.otherJobs.Left(w)
	}
	if w.watch != nil {
		w.watch.Finalize(ctx)
	}
	errs := []error{otherErr, w.endBackground(), w.sayGoodbyeToPeers(ctx)}
	links := w.Links()
	w.engine.Close()
	w.die(ErrFinalized)
	errs = append(errs, w.endWatch())
	closing, mesh := w.member.Leave()
	leaving := w.config.place.Leave(ctx)
	w.calls.Wait()
	errs = append(errs, closing, mesh, leaving)
	if name, ok := w.config.lookup(EnvReport); ok && name != "" {
		errs = append(errs, report.Write(name, w.engine.Rank(), links))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("mpilib: Finalize: rank %d: %w", w.engine.Rank(), err)
	}
	return nil
}

// Abort asks the process manager of another launcher that has started this process (PMI, PMIx) to end all processes of the
// job with an exit status (MPI_Abort), and returns whether there is one: it then ends this process, too. Otherwise the caller does so:
// `isthmus run` ends a job when one of its processes fails.
func (w *World) Abort(status int) (asked bool, err error) { return w.config.place.Abort(status) }

// endBackground runs before the world closes: the attributes of Self are deleted first (MPI-4.1,
// section 11.2.4).
func (w *World) endBackground() error {
	var err error
	if self := w.comms.self; self != nil {
		err = self.attributes.DeleteAll(self)
	}
	w.calls.End()
	return err
}

// planning is w's contribution to the plans of its communicators.
func (w *World) planning() plan.Config {
	return plan.Config{
		Here: func() overlay.NodeID { return w.comms.node }, Orders: w.config.orders, Explain: w.config.explain,
		Shares: func() bool { return !w.config.place.Unshared && w.watch == nil }, Replicated: w.replicated(),
	}
}
