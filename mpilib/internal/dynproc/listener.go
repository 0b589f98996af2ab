// Package dynproc joins processes of separately started jobs (MPI-4.1, chapter 11): it opens ports,
// connects to the root of another job at one, and looks up names under which ports are published.
//
// It knows neither communicators nor worlds: two roots agree on the key of a job, which their
// processes join. Open ports and memberships are in Connections, until End.
package dynproc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/join"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A port is the key of a separate job, in which processes of two other jobs meet: the process that
// has opened the port is rank 0 there, and a process that connects to it takes a random rank.
const (
	Prefix     = "isthmus-port:" // of a port's text, before the key
	portSize   = 1 << 31         // ranks of a port's job
	maxCallers = 64              // callers that wait at a port for Accept; further ones are refused
)

// Listener is this process's membership of a port's job.
type Listener struct {
	port    string
	member  join.Member     // of the port's job
	callers chan *link.Link // links not accepted yet
	closed  chan struct{}   // closed when it is over
	once    sync.Once
	meshErr error // of the member; valid once it is over

	mu      sync.Mutex     // guards the fields below
	over    bool           // nothing is added to leaving any more
	leaving sync.WaitGroup // links that are closed but not over
}

// enter joins a port's job as rank. The caller closes the Listener.
func (g *Connections) enter(ctx context.Context, key jobkey.Key, rank uint32) (*Listener, error) {
	l := &Listener{port: Prefix + key.String(), callers: make(chan *link.Link, maxCallers), closed: make(chan struct{})}
	err := l.member.Join(ctx, g.cfg.Reacher, join.Job{
		Key: key, Rank: rank, Size: portSize, Carriers: 1, Timeout: g.cfg.Timeout, Log: g.cfg.Log, Up: l.onLink,
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// onLink queues a caller.
func (l *Listener) onLink(caller *link.Link) {
	caller.Conn.Calm()
	select {
	case l.callers <- caller:
	default:
		l.CloseLink(caller)
	}
}

// CloseLink closes a link, and makes Close wait until the other end has received what was written.
func (l *Listener) CloseLink(caller *link.Link) {
	caller.Conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.leaving.Go(func() { <-caller.Done() }) // a few seconds at most
	}
}

// Close leaves the port's job; waiting callers are refused. It returns when everything of it has
// ended.
func (l *Listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
		l.leaving.Wait()
		_, l.meshErr = l.member.Leave()
		for {
			select {
			case caller := <-l.callers:
				caller.Conn.Close()
				continue
			default:
			}
			break
		}
	})
	return l.meshErr
}

// ParsePort parses a port's key. The error does not contain it.
func ParsePort(port string) (jobkey.Key, error) {
	text, ok := strings.CutPrefix(port, Prefix)
	if !ok {
		return jobkey.Key{}, fmt.Errorf("%w: a port's text begins with %q, as OpenPort returns it", mpi.ErrPort, Prefix)
	}
	key, err := jobkey.Parse(text)
	if err != nil {
		return jobkey.Key{}, fmt.Errorf("%w: %w", mpi.ErrPort, err)
	}
	return key, nil
}

// Config is how a process reaches other processes.
type Config struct {
	Reacher   join.Reacher
	Connector func() overlay.Connector // of this process's own job; nil in a world of one
	Timeout   time.Duration            // timeout of each attempt to reach a process
	Log       *slog.Logger             // may be nil
}

// Joint is this process's membership of a job that two others have formed.
type Joint interface {
	Finalize(context.Context) error
}

// Connections holds a process's connections to other jobs.
type Connections struct {
	cfg Config

	mu     sync.Mutex // guards the fields below; never held while waiting
	ports  map[string]*Listener
	joints map[Joint]bool
	ended  bool
	names  *directory // of a process without a connector; nil until it is needed
}

// Init must be called first.
func (g *Connections) Init(cfg Config) { g.cfg = cfg }

// directory is a process's connection to its helper for names only.
type directory struct {
	connector overlay.Connector
	names     overlay.Names
	stop      context.CancelFunc
	serving   sync.WaitGroup
}

func (d *directory) close() {
	d.connector.Close()
	d.stop()
	d.serving.Wait()
}

// Add records a world with another job, unless this one has ended.
func (g *Connections) Add(j Joint) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	if g.joints == nil {
		g.joints = map[Joint]bool{}
	}
	g.joints[j] = true
	return true
}

// Left removes a world that has ended.
func (g *Connections) Left(j Joint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.joints, j)
}

// End closes all that is open, for Finalize.
func (g *Connections) End(ctx context.Context) error {
	g.mu.Lock()
	g.ended = true
	ports, joints, names := g.ports, g.joints, g.names
	var errs []error
	var mu sync.Mutex
	var all sync.WaitGroup
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	for _, l := range ports {
		all.Go(func() { note(l.Close()) })
	}
	for j := range joints {
		all.Go(func() { note(j.Finalize(ctx)) })
	}
	g.mu.Unlock()
	all.Wait()
	if names != nil {
		names.close()
	}
	return errors.Join(errs...)
}

// OpenPort returns the text of a new port.
func (g *Connections) OpenPort(ctx context.Context) (string, error) {
	job := g.cfg.Reacher.Place.Key.Name
	name := job + "-port"
	if job == "" || overlay.CheckName("job", name) != nil {
		name = "port"
	}
	key, err := jobkey.New(name)
	if err != nil {
		return "", err
	}
	l, err := g.enter(ctx, key, 0)
	if err != nil {
		return "", err
	}
	g.mu.Lock()
	ended := g.ended
	if !ended {
		if g.ports == nil {
			g.ports = map[string]*Listener{}
		}
		g.ports[l.port] = l
	}
	g.mu.Unlock()
	if ended {
		return "", errors.Join(mpi.ErrFinalized, l.Close())
	}
	return l.port, nil
}

// ClosePort closes a port of OpenPort.
func (g *Connections) ClosePort(port string) error {
	g.mu.Lock()
	l := g.ports[port]
	delete(g.ports, port)
	g.mu.Unlock()
	if l == nil {
		return errNotMine
	}
	return l.Close()
}

var errNotMine = fmt.Errorf("%w: this process has not opened it, or has closed it", mpi.ErrPort)

// Check returns an error if a port cannot be used for Connect, or for Accept.
func (g *Connections) Check(connects bool, port string) error {
	if connects {
		_, err := ParsePort(port)
		return err
	}
	_, err := g.portOf(port)
	return err
}

// Waiting returns the number of callers that wait at a port of this process for Meet.
func (g *Connections) Waiting(port string) (int, error) {
	l, err := g.portOf(port)
	if err != nil {
		return 0, err
	}
	return len(l.callers), nil
}

// portOf returns the listener of a port of this process.
func (g *Connections) portOf(port string) (*Listener, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.ports[port]; l != nil {
		return l, nil
	}
	return nil, errNotMine
}

// Dial links this process to the one that opened a port. The caller closes the listener.
func (g *Connections) Dial(ctx context.Context, key jobkey.Key) (*Listener, *link.Link, error) {
	l, err := g.enter(ctx, key, 1+rand.Uint32N(portSize-1))
	if err != nil {
		return nil, nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()
	if err := l.member.Mesh.Connect(bounded, 0); ctx.Err() != nil { // which does not reveal who listens
		return nil, nil, errors.Join(fmt.Errorf("reaching the other job: %w", context.Cause(ctx)), l.Close())
	} else if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: no process listens at it: %w", mpi.ErrPort, err), l.Close())
	}
	return l, <-l.callers, nil
}
