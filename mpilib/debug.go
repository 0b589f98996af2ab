package mpilib

import (
	"fmt"
	"io"
	"os"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/overlay"
)

// EnvDebug is a comma-separated list of the checks that the library makes while the program runs,
// at a cost; "1" or "all" means all of them. All processes of a job must have the same value.
//
//   - "leaks": Finalize reports requests that were never waited for, communicators that
//     were never freed, and messages that were never received, with the source lines of
//     the calls. It then waits a while for the other ranks to enter Finalize.
//   - "collectives": ranks that are in different collective calls of a communicator, or
//     give a different root, count, type or operation, get ErrMismatch, which lists the
//     calls of the ranks with their lines. Every call then waits until all ranks have entered it.
//   - "deadlocks": after 5 s without progress, reports which ranks wait for which at which line.
//   - "types": checks that the type of a receive matches the type of the send (ErrSignature).
//
// With any of them errors name the line of their call. Reports go to standard error, or to the
// writer of WithDebug. Ranks exchange the necessary data by messages of their own, for which they
// set up links that the program would not have needed.
const EnvDebug = "ISTHMUS_DEBUG"

// WithDebug enables everything that EnvDebug lists, and writes reports to out, each in one Write;
// nil is standard error.
func WithDebug(out io.Writer) Option {
	return func(cfg *config) { cfg.debug, cfg.debugOut = debug.All, out }
}

// EnvTrace makes every rank write a timeline of its calls, messages and links, which
// chrome://tracing and ui.perfetto.dev show: to the file rank-N.json if it names a folder, and
// otherwise appended to the file of that name, so that all ranks of a machine may share it.
// Arrows lead from sends to receives. Times are those of rank 0's clock, which the other ranks
// query at the start; a rank that gets no answer uses its own clock and notes that in the file. Either all
// processes of a job have it set, or none.
//
// The timeline is written every 200 ms in whole lines, so that it is readable even after the
// process has died. A process writes at most 512 MiB. To merge the files of several
// machines: (echo [; grep -hv '^\[' FILE...) > all.json
const EnvTrace = "ISTHMUS_TRACE"

// WithTrace writes a timeline as EnvTrace does.
func WithTrace(name string) Option { return func(cfg *config) { cfg.trace = name } }

// debugFrom reads the environment.
func debugFrom(lookup func(string) (string, bool)) (debug.Parts, error) {
	list, set := lookup(EnvDebug)
	if !set {
		return 0, nil
	}
	parts, err := debug.Parse(list)
	if err != nil {
		return 0, fmt.Errorf("mpilib: %w: %s=%q: %w", ErrEnv, EnvDebug, list, err)
	}
	return parts, nil
}

// readDebug adds the environment's settings to those of the options.
func (cfg *config) readDebug() error {
	parts, err := debugFrom(cfg.lookup)
	if err != nil {
		return err
	}
	cfg.debug |= parts
	cfg.signs = cfg.signs || cfg.debug&debug.Types != 0
	if name, ok := cfg.lookup(EnvTrace); ok && cfg.trace == "" {
		cfg.trace = name
	}
	if cfg.debugOut == nil {
		cfg.debugOut = os.Stderr
	}
	if cfg.patience == 0 {
		cfg.patience = debug.DefaultPatience
	}
	return nil
}

// watched creates a watcher if there is something to watch; it is for Init. Otherwise World.watch
// is nil and Requests have no sighting, which are the only checks needed.
func (w *World) watched() (err error) {
	if w.config.debug&^debug.Types == 0 && w.config.trace == "" {
		return nil
	}
	cfg := debug.Config{
		Engine: w.engine, Parts: w.config.debug, Out: w.config.debugOut, Patience: w.config.patience, Trace: w.config.trace,
		Context: comm.Debug, Head: w.comm.head(), Here: func() overlay.NodeID { return w.comms.node }, Links: w.watchedLinks,
		Program: func(context uint32) bool {
			return context%comm.ContextsPerComm == comm.PointToPoint && context != comm.Debug
		},
	}
	for _, c := range []*Comm{w.comm, w.comms.self, w.comms.allPlaces.comm} {
		cfg.Comms = append(cfg.Comms, &c.core.Core)
	}
	if w.watch, err = debug.New(cfg); err != nil {
		return fmt.Errorf("%s: %w", EnvTrace, err)
	}
	w.calls.Watch = w.watch
	return nil
}

// endWatch ends what watched started.
func (w *World) endWatch() error {
	if err := w.watch.End(); err != nil {
		return fmt.Errorf("%s: %w", EnvTrace, err)
	}
	return nil
}

func (w *World) watchedLinks() []debug.LinkState {
	var links []debug.LinkState
	for _, l := range w.Links() {
		links = append(links, debug.LinkState{
			Peer: l.Peer, PeerNode: l.PeerNode, Technique: l.Technique, Proxy: l.Proxy, Carriers: l.Carriers,
			Reason: l.Reason, RTTMS: l.RTTMS, SetupMS: l.SetupMS,
		})
	}
	return links
}

// watchedRequest is a request as a watcher sees it.
type watchedRequest Request

func (r *watchedRequest) Handle() *engine.Handle              { return &r.core }
func (r *watchedRequest) Transfer() comm.Transfer             { return (*Request)(r).transfer().watched() }
func (r *watchedRequest) Observation() *debug.Observation     { return r.seen }
func (r *watchedRequest) SetObservation(s *debug.Observation) { (*Request)(r).ownExtra().seen = s }

// watched describes t for a watcher, and in errors.
func (t transfer) watched() comm.Transfer {
	return comm.Transfer{Comm: &t.comm.core.Core, Send: t.send, Call: t.call, Peer: t.peer, Tag: t.tag}
}

// line returns, for an error, where the call was made, if known.
func (r *Request) line() string { return r.seen.Line() }

// callEnded notifies the watcher, if there is one, that a call on c ends.
func (c *Comm) callEnded() {
	w := c.world.watch
	if w == nil {
		return
	}
	w.Left(&c.core.Core)
	if c.inner != nil {
		w.Left(&c.inner.core.Core)
	}
}

// unwatched notifies the watcher, if there is one, that the program has freed c.
func (c *Comm) unwatched() {
	w := c.world.watch
	if w == nil {
		return
	}
	w.Freed(c.core.Context)
	if c.inner != nil {
		w.Freed(c.inner.core.Context)
	}
}
