package connhelper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/connhelper/traffic"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// process is a local process that sent its hello. Its reader goroutine owns it; the fields after mu
// are shared.
type process struct {
	name         overlay.ProcessName
	generation   overlay.Generation
	uid          uint32
	principal    overlay.Principal // its account
	grant        string            // proves on whose behalf it works; may be empty
	proof        string            // its job's signature of its place
	conn         *local.Conn
	sizes        bool                    // it understands packet sizes (wire.FeaturePacketSize)
	ready        chan struct{}           // closed once it was welcomed or refused: nothing is sent to it before
	missed       []*wire.LocalDead       // ranks of its job that had died before it registered
	registeredOn atomic.Pointer[frontal] // the session on which it is registered, nil before the first
	left         atomic.Bool             // it announced that it leaves: the end of its socket is no death
	account      traffic.Account         // of its links; owned by its reader, then by the code that handles its end

	mu    sync.Mutex                    // guards the fields below
	dials map[uint32]context.CancelFunc // cancels requests in progress, of any kind
	again map[uint32]bool               // ranks that were connected before: a new request means that the carrier failed
	names map[string]string             // that it has published, with their ports
	relay map[uint32]latestRelay        // by rank
	open  openCarriers                  // carriers whose outcome it may still report
}

// openCarriers are carriers that a process was handed and has not given up yet, with the functions
// to call when it reports the result of the handshake, or that it gives them up for a better path.
// The oldest are dropped. The process's mu guards it; the functions are called without it.
type openCarriers struct {
	settle map[uint64]func(error)
	done   map[uint64]bool // the handshake is done
	order  []uint64        // as they were handed over; some are settled already
}

// maxOpenCarriers bounds the carriers of a process whose outcome is awaited.
const maxOpenCarriers = 256

func (o *openCarriers) add(id uint64, settle func(error)) {
	if o.settle == nil {
		o.settle, o.done = map[uint64]func(error){}, map[uint64]bool{}
	}
	o.settle[id] = settle
	if o.order = append(o.order, id); len(o.order) > maxOpenCarriers {
		delete(o.settle, o.order[0])
		delete(o.done, o.order[0])
		o.order = o.order[1:]
	}
}

// take returns the function to call for a carrier: once when it has failed, and before that once
// when the handshake is done.
func (o *openCarriers) take(id uint64, failed bool) func(error) {
	settle := o.settle[id]
	switch {
	case failed:
		delete(o.settle, id)
	case settle != nil && !o.done[id]:
		o.done[id] = true
	default:
		return nil
	}
	return settle
}

// storeOutcome processes the outcome that the process reports for a carrier. It ignores carriers
// that this process was not handed.
func (p *process) storeOutcome(f *wire.LocalOutcome) {
	p.mu.Lock()
	settle := p.open.take(f.Carrier, f.Code != 0)
	p.mu.Unlock()
	if settle == nil {
		return
	}
	if f.Code == 0 {
		settle(nil)
	} else {
		cause := f.Code.Errorf("the link's handshake: %s", f.Text)
		if f.Code == wire.CodeInferior {
			cause = f.Code.Errorf("%s", f.Text)
		}
		settle(cause)
	}
}

// maxDials bounds the requests that one process may have in progress.
const maxDials = 4096

// processServer serves the processes of this node.
type processServer struct {
	*common
	names    *publishedNames
	traffic  *trafficReports
	delivery *delivery
	reserves *reserves
	dialler  *dialler
}

// serve accepts processes until ctx ends.
func (s *processServer) serve(ctx context.Context, ln *net.UnixListener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	err := accept.Each(ctx, s.log, ln.Addr(), ln.AcceptUnix, func(c *net.UnixConn) {
		cred, err := local.PeerCred(c)
		if err != nil {
			s.log.Warn("process refused", "error", err)
			c.Close()
			return
		}
		who := uid(cred.UID)
		place, err := s.budgets.silent.Enter(who, func(why error) {
			c.Close()
			s.audit.silent(who, why)
		})
		if err != nil {
			s.audit.silent(who, err)
			refuseLocal(local.NewConn(c), s.node, err)
			return
		}
		conns.Go(func() { s.serveProcess(ctx, local.NewConn(c), place) })
	})
	if err != nil {
		return fmt.Errorf("accepting processes on %v: %w", ln.Addr(), err)
	}
	return nil
}

// serveProcess serves one process until it hangs up or ctx ends. It releases the place when the
// process has identified itself.
func (s *processServer) serveProcess(ctx context.Context, conn *local.Conn, place *limit.Place[uid]) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer cancel()
	p, err := s.acceptProcess(conn)
	if !place.Leave() {
		return // closed to make room for another account
	}
	if err == nil {
		if err = s.budgets.processes.Take(uid(p.uid), 1); err == nil {
			defer s.budgets.processes.Give(uid(p.uid), 1)
			defer s.names.dropAll(p)
		}
	}
	if err != nil {
		if !errors.Is(err, io.EOF) && ctx.Err() == nil {
			s.log.Warn("process refused", "error", err)
			s.audit.processRefused(conn, nil, err)
			refuseLocal(conn, s.node, err)
		}
		return
	}
	old, err := s.here.add(p)
	if err != nil {
		s.log.Warn("process refused", "process", p.name.String(), "error", err)
		s.audit.processRefused(conn, p, err)
		refuseLocal(conn, s.node, err)
		return
	}
	if old != nil {
		old.conn.Close()
	}
	defer func() {
		was := s.here.remove(p)
		s.reserves.kept.Forget(p)
		if ctx.Err() != nil {
			return
		}
		s.traffic.end(ctx, p, was || s.here.later(p))
		if was {
			s.log.Info("process left", "process", p.name.String(), "died", !p.left.Load())
			s.audit.process(p, "left")
			s.uplink.withdraw(ctx, p)
		}
	}()
	if err := s.confirm(ctx, p); err != nil {
		s.log.Warn("process refused", "process", p.name.String(), "error", err)
		s.audit.processRefused(conn, p, err)
		refuseLocal(conn, s.node, err)
		return
	}
	s.log.Info("process joined", "process", p.name.String(), "generation", uint64(p.generation), "uid", p.uid)
	s.audit.process(p, "joined")
	s.serveRequests(ctx, p)
}

// confirm registers p with the frontal, if there is a session now (otherwise enter does, as soon as
// there is one), and confirms that to the process.
func (s *processServer) confirm(ctx context.Context, p *process) error {
	defer close(p.ready)
	if f, _ := s.uplink.currentFrontal(); f != nil {
		if err := s.uplink.register(ctx, f, p); err != nil && !errors.Is(err, overlay.ErrUnreachable) {
			return err
		}
	}
	if err := p.conn.Send(&wire.LocalWelcome{Features: wire.FeatureNames | wire.FeatureGrants | wire.FeaturePacketSize | wire.FeatureReserve, Node: s.node}, nil); err != nil {
		return err
	}
	for _, f := range p.missed {
		if err := p.conn.Send(f, nil); err != nil {
			return err
		}
	}
	return nil
}

// acceptProcess reads and checks the hello of a process, and has the process sign its place.
func (s *processServer) acceptProcess(conn *local.Conn) (*process, error) {
	cred, err := conn.PeerCred()
	if err != nil {
		return nil, fmt.Errorf("identifying the process: %w", err)
	}
	conn.SetReadDeadline(time.Now().Add(introTimeout))
	hello, grant, err := readHello(conn)
	if err != nil {
		return nil, unread(err, cred)
	}
	name := overlay.ProcessName{Job: hello.Job, Rank: hello.Rank}
	if err := checkHello(name, hello, cred); err != nil {
		return nil, err
	}
	life := hello.Generation
	if life == 0 {
		life = s.here.generation(name, time.Now())
	} else if err := life.Check(time.Now()); err != nil {
		return nil, fmt.Errorf("%v: %w", name, err)
	}
	if err := conn.Send(&wire.LocalPlace{Node: s.node, Generation: life}, nil); err != nil {
		return nil, err
	}
	frame, file, err := conn.Receive()
	closeFile(file)
	if err != nil {
		return nil, unread(err, cred)
	}
	signed, ok := frame.(*wire.LocalProof)
	if !ok {
		return nil, fmt.Errorf("%w: a %v in place of a local proof", wire.ErrType, frame.Type())
	}
	proof := string(append(hello.Key[:], signed.Signature[:]...))
	if err := jobkey.CheckPoint(overlay.AccessPoint{Process: name, Generation: life, Node: s.node, Proof: proof}); err != nil {
		return nil, fmt.Errorf("process %d of user %d: %w", cred.PID, cred.UID, err)
	}
	conn.SetReadDeadline(time.Time{})
	return &process{
		name:       name,
		generation: life,
		uid:        cred.UID,
		principal:  overlay.AccountAt(local.Account(cred.UID), s.node.Site),
		grant:      grant,
		proof:      proof,
		conn:       conn,
		sizes:      hello.Features&wire.FeaturePacketSize != 0,
		ready:      make(chan struct{}),
		dials:      map[uint32]context.CancelFunc{},
		again:      map[uint32]bool{},
		names:      map[string]string{},
	}, nil
}

// readHello reads the hello and the grant that may precede it.
func readHello(conn *local.Conn) (hello *wire.LocalHello, grant string, err error) {
	frame, file, err := conn.Receive()
	closeFile(file)
	if g, ok := frame.(*wire.LocalGrant); ok && err == nil {
		grant = string(g.Grant)
		frame, file, err = conn.Receive()
		closeFile(file)
	}
	if err != nil {
		return nil, "", err
	}
	hello, ok := frame.(*wire.LocalHello)
	if !ok {
		return nil, "", fmt.Errorf("%w: a %v in place of a local hello", wire.ErrType, frame.Type())
	}
	return hello, grant, nil
}

// unread returns why the first frames of a process could not be read.
func unread(err error, cred local.Cred) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("waited %v for the hello of process %d: %w", introTimeout, cred.PID, overlay.ErrTimeout)
	}
	return err
}

// checkHello returns why the process behind cred cannot be the one that its hello names, as far as that
// can be checked before it has signed anything. Only this helper process may be a member of a
// node service's job: every other member has a helper of its own.
func checkHello(name overlay.ProcessName, hello *wire.LocalHello, cred local.Cred) error {
	if _, isService := name.Job.ServiceNode(); isService {
		if int(cred.PID) != os.Getpid() {
			return fmt.Errorf("%w: process %d of user %d says it is %v; a helper alone is that", overlay.ErrForbidden, cred.PID, cred.UID, name)
		}
		return nil
	}
	if !jobkey.Public(hello.Key).Owns(hello.Job) {
		return fmt.Errorf("%w: process %d of user %d does not hold the key of job %s", overlay.ErrForbidden, cred.PID, cred.UID, hello.Job)
	}
	return nil
}

// serveRequests starts a goroutine for each request of p, and returns when p hung up and all of
// them have ended.
func (s *processServer) serveRequests(ctx context.Context, p *process) {
	ctx, cancel := context.WithCancel(ctx)
	var dials sync.WaitGroup
	defer dials.Wait()
	defer cancel()
	for {
		frame, file, err := p.conn.Receive()
		closeFile(file)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
				s.log.Warn("process", "process", p.name.String(), "error", err)
			}
			return
		}
		switch f := frame.(type) {
		case *wire.LocalDial:
			dialCtx, done, err := p.begin(ctx, f.Request, f.Budget)
			if err != nil {
				p.fail(f.Request, err)
				continue
			}
			dials.Go(func() {
				start := time.Now()
				m, err := s.dialler.dial(dialCtx, p, overlay.ProcessName{Job: p.name.Job, Rank: f.Rank}, f.Ways)
				takenBack := errors.Is(dialCtx.Err(), context.Canceled)
				done() // before the answer, after which the number may be reused
				if m.path.Setup = time.Since(start); err == nil || !takenBack {
					s.delivery.answerDial(p, f, m, err)
				}
			})
		case *wire.LocalCancel:
			p.cancel(f.Request)
		case *wire.LocalPublish:
			s.names.serve(ctx, p, &dials, f.Request, nameWait, func(ctx context.Context) (string, error) {
				return "", s.names.publish(ctx, p, f)
			})
		case *wire.LocalUnpublish:
			s.names.serve(ctx, p, &dials, f.Request, nameWait, func(ctx context.Context) (string, error) {
				return "", s.names.unpublish(ctx, p, f.Name)
			})
		case *wire.LocalLookup:
			s.names.serve(ctx, p, &dials, f.Request, f.Budget+nameWait, func(ctx context.Context) (string, error) {
				return s.names.lookup(ctx, f)
			})
		case *wire.LocalLeave:
			p.left.Store(true)
		case *wire.LocalOutcome:
			p.storeOutcome(f)
		case *wire.LocalReserve:
			s.reserves.request(ctx, dials.Go, p, f)
		case *wire.LocalTraffic:
			s.traffic.take(ctx, p, f)
		default:
			s.log.Warn("process", "process", p.name.String(), "error", fmt.Errorf("%w: %v", wire.ErrType, frame.Type()))
			return
		}
	}
}

// begin records a request, so that a cancel finds it.
func (p *process) begin(ctx context.Context, request uint32, budget time.Duration) (context.Context, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, again := p.dials[request]; again {
		return nil, nil, fmt.Errorf("%w: request %d is still open", wire.ErrMalformed, request)
	}
	if len(p.dials) >= maxDials {
		return nil, nil, fmt.Errorf("%w: %d requests of %v are open", overlay.ErrOverloaded, maxDials, p.name)
	}
	ctx, cancel := context.WithTimeout(ctx, min(budget, maxBudget))
	p.dials[request] = cancel
	return ctx, func() {
		cancel()
		p.mu.Lock()
		delete(p.dials, request)
		p.mu.Unlock()
	}, nil
}

// fail sends the answer to a request that failed.
func (p *process) fail(request uint32, err error) {
	p.conn.Send(&wire.LocalFailed{Request: request, Code: wire.CodeOf(err), Text: err.Error()}, nil)
}

func (p *process) cancel(request uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel, ok := p.dials[request]; ok {
		cancel()
	}
}

// readable returns a path without what the process does not understand.
func (p *process) readable(path overlay.Path) overlay.Path {
	path.Small = path.Small && p.sizes
	return path
}

// reject ends a process that the frontal or broker refuses.
func (p *process) reject(err error) {
	p.conn.Send(&wire.Refuse{Code: wire.CodeOf(err), By: "helper", Text: err.Error()}, nil)
	p.conn.Close()
}

// fault notifies the process that a carrier it was handed will not work.
func (p *process) fault(carrier uint64, err error) {
	p.conn.Send(&wire.LocalFault{Carrier: carrier, Code: wire.CodeOf(err), Text: err.Error()}, nil)
}

// socket is a connection whose descriptor can be passed on.
type socket interface {
	net.Conn
	syscall.Conn
}

func refuseLocal(conn *local.Conn, node overlay.NodeID, err error) {
	conn.Send(&wire.Refuse{Code: wire.CodeOf(err), By: "helper " + node.String(), Text: err.Error()}, nil)
	conn.Close()
}

func closeFile(f *os.File) {
	if f != nil {
		f.Close()
	}
}
