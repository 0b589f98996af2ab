package mpilib

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A port is the key of a job of its own, in which processes of two other jobs
// meet: who has opened the port is rank 0 there, and who connects to it takes a
// rank at random.
const (
	portPrefix = "isthmus-port:" // before the key
	portSize   = 1 << 31         // ranks of a port's job
	maxCallers = 64              // who wait at a port for Accept; further ones are turned away
)

// portListener is this process's part in a port's job.
type portListener struct {
	port      string
	connector overlay.Connector
	mesh      *link.Mesh
	callers   chan *link.Link // links that nobody has taken
	closed    chan struct{}   // when it is over
	once      sync.Once
	leave     func() // ends the mesh, and waits
	stop      context.CancelFunc
	serving   sync.WaitGroup
	meshErr   error // of mesh.Serve; read after leave

	mu      sync.Mutex     // guards the rest
	over    bool           // nothing is added to leaving any more
	leaving sync.WaitGroup // links that are closed but not over
}

// enter joins a port's job as rank. close it when done.
func (w *World) enter(ctx context.Context, key jobkey.Key, rank uint32) (*portListener, error) {
	ctx, cancel := context.WithTimeout(ctx, w.config.connectTimeout)
	defer cancel()
	life, stop := context.WithCancel(context.Background())
	l := &portListener{port: portPrefix + key.String(), callers: make(chan *link.Link, maxCallers), closed: make(chan struct{}), stop: stop}
	o, err := w.open(ctx, life, &l.serving, rank, key, nil)
	if err != nil {
		stop()
		l.serving.Wait()
		return nil, err
	}
	l.connector = o.connector
	self := link.NewIdentity(key, rank, o.life)
	l.mesh = link.NewMesh(link.Config{Self: self, Size: portSize, Connector: l.connector, Carriers: 1, Log: w.config.log, Up: l.came})
	l.leave = serveMesh(life, l.mesh, &l.meshErr)
	return l, nil
}

// came queues a caller.
func (l *portListener) came(caller *link.Link) {
	caller.Conn.Calm()
	select {
	case l.callers <- caller:
	default:
		l.part(caller)
	}
}

// part closes a link, and has close wait until the other end has what was
// written.
func (l *portListener) part(caller *link.Link) {
	caller.Conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.leaving.Go(func() { <-caller.Done() }) // some seconds at most
	}
}

// close leaves the port's job; those who wait there are turned away. It returns
// when nothing is left of it.
func (l *portListener) close() error {
	l.once.Do(func() {
		close(l.closed)
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
		l.leaving.Wait()
		l.leave()
		l.connector.Close()
		l.stop()
		l.serving.Wait()
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

// parsePort reads a port's key. The error does not repeat it.
func parsePort(port string) (jobkey.Key, error) {
	text, ok := strings.CutPrefix(port, portPrefix)
	if !ok {
		return jobkey.Key{}, fmt.Errorf("%w: a port's text begins with %q, as OpenPort returns it", ErrPort, portPrefix)
	}
	key, err := jobkey.Parse(text)
	if err != nil {
		return jobkey.Key{}, fmt.Errorf("%w: %w", ErrPort, err)
	}
	return key, nil
}

// guests is what a world has to do with other jobs.
type guests struct {
	mu     sync.Mutex // guards the fields below; never held while waiting
	ports  map[string]*portListener
	joints map[*World]bool
	ended  bool
	names  *directory // of a process without a connector; nil until it is needed
}

// directory is a process's connection to its helper for names alone.
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

// add notes a world with another job, unless this one has ended.
func (g *guests) add(j *World) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	if g.joints == nil {
		g.joints = map[*World]bool{}
	}
	g.joints[j] = true
	return true
}

// left forgets a world that has ended.
func (g *guests) left(j *World) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.joints, j)
}

// end closes what is open, for Finalize.
func (g *guests) end(ctx context.Context) error {
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
		all.Go(func() { note(l.close()) })
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

// OpenPort returns the text of a new port, at which this process can be connected
// to by processes of other jobs, with Accept (MPI_Open_port; MPI-4.1, section
// 11.9.2). Whoever has the text can connect, so treat it as a password: hand it to
// the other job as you hand on the key of a job, or PublishName it, where everybody
// in the grid can look it up and broker and frontals see it. It is local; the port
// stays open until ClosePort or Finalize. ctx bounds the opening.
func (w *World) OpenPort(ctx context.Context) (string, error) {
	port, err := w.openPort(ctx)
	if err != nil {
		return "", fmt.Errorf("mpilib: OpenPort, rank %d of the world: %w", w.engine.Rank(), err)
	}
	return port, nil
}

func (w *World) openPort(ctx context.Context) (string, error) {
	name := w.config.place.key.Name + "-port"
	if w.config.place.key.Name == "" || overlay.CheckName("job", name) != nil {
		name = "port"
	}
	key, err := jobkey.New(name)
	if err != nil {
		return "", err
	}
	l, err := w.enter(ctx, key, 0)
	if err != nil {
		return "", err
	}
	w.guests.mu.Lock()
	ended := w.guests.ended
	if !ended {
		if w.guests.ports == nil {
			w.guests.ports = map[string]*portListener{}
		}
		w.guests.ports[l.port] = l
	}
	w.guests.mu.Unlock()
	if ended {
		return "", errors.Join(ErrFinalized, l.close())
	}
	return l.port, nil
}

// ClosePort closes a port of OpenPort: who wants to connect to it then fails, and
// so does an Accept that waits (MPI_Close_port; MPI-4.1, section 11.9.2). What was
// connected stays so. A name under which it was published stays, too: take it back
// with UnpublishName.
func (w *World) ClosePort(port string) error {
	w.guests.mu.Lock()
	l := w.guests.ports[port]
	delete(w.guests.ports, port)
	w.guests.mu.Unlock()
	if l == nil {
		return fmt.Errorf("mpilib: ClosePort, rank %d of the world: %w", w.engine.Rank(), errNotMine)
	}
	if err := l.close(); err != nil {
		return fmt.Errorf("mpilib: ClosePort, rank %d of the world: %w", w.engine.Rank(), err)
	}
	return nil
}

var errNotMine = fmt.Errorf("%w: this process has not opened it, or has closed it", ErrPort)

// portOf returns the listener of a port of this process.
func (w *World) portOf(port string) (*portListener, error) {
	w.guests.mu.Lock()
	defer w.guests.mu.Unlock()
	if l := w.guests.ports[port]; l != nil {
		return l, nil
	}
	return nil, errNotMine
}

// visit links this process to who has opened a port. close the listener when done.
func (w *World) visit(ctx context.Context, key jobkey.Key) (*portListener, *link.Link, error) {
	l, err := w.enter(ctx, key, 1+rand.Uint32N(portSize-1))
	if err != nil {
		return nil, nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, w.config.connectTimeout)
	defer cancel()
	if err := l.mesh.Connect(bounded, 0); ctx.Err() != nil { // which says nothing of who listens
		return nil, nil, errors.Join(fmt.Errorf("reaching the other job: %w", context.Cause(ctx)), l.close())
	} else if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: nobody listens at it: %w", ErrPort, err), l.close())
	}
	return l, <-l.callers, nil
}
