package connhelper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/jobkey"
	"github.com/isthmus-grid/isthmus/internal/local"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// process is a local process that said hello. Its reader goroutine owns it;
// the fields below the line are shared.
type process struct {
	name       overlay.ProcessName
	generation overlay.Generation
	uid        uint32
	conn       *local.Conn

	mu    sync.Mutex
	dials map[uint32]context.CancelFunc // requests in progress
	again map[uint32]bool               // ranks that were connected once: asked again, that carrier was no good
}

// maxLocal bounds the processes of a helper, and maxDials the requests that
// one process may have in progress.
const (
	maxLocal = 4096
	maxDials = 4096
)

// serveLocal accepts processes until ctx ends.
func (h *Helper) serveLocal(ctx context.Context, ln *net.UnixListener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	places := make(chan struct{}, maxLocal)
	for {
		c, err := ln.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED) {
				h.log.Warn("cannot accept processes for now", "error", err)
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
				continue
			}
			return fmt.Errorf("accepting processes on %v: %w", ln.Addr(), err)
		}
		select {
		case places <- struct{}{}:
			conns.Go(func() {
				defer func() { <-places }()
				h.serveProcess(ctx, local.NewConn(c))
			})
		default:
			h.log.Warn("process turned away", "reason", "too many", "limit", maxLocal)
			refuseLocal(local.NewConn(c), h.node, fmt.Errorf("%w: %d processes are registered here", overlay.ErrOverloaded, maxLocal))
		}
	}
}

// serveProcess serves one process until it hangs up or ctx ends.
func (h *Helper) serveProcess(ctx context.Context, conn *local.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer cancel()
	p, err := h.greet(conn)
	if err != nil {
		if !errors.Is(err, io.EOF) && ctx.Err() == nil {
			h.log.Warn("process refused", "error", err)
			refuseLocal(conn, h.node, err)
		}
		return
	}
	old, err := h.here.add(p)
	if err != nil {
		h.log.Warn("process refused", "process", p.name.String(), "error", err)
		refuseLocal(conn, h.node, err)
		return
	}
	if old != nil {
		old.conn.Close()
	}
	defer func() {
		if h.here.remove(p) && ctx.Err() == nil {
			h.log.Info("process left", "process", p.name.String())
			h.withdraw(ctx, p)
		}
	}()
	if f, _ := h.home.now(); f != nil { // else enter will, as soon as there is one
		if err := h.register(ctx, f, p); err != nil && !errors.Is(err, overlay.ErrUnreachable) {
			h.log.Warn("process refused", "process", p.name.String(), "error", err)
			refuseLocal(conn, h.node, err)
			return
		}
	}
	if err := conn.Send(&wire.LocalWelcome{Node: h.node}, nil); err != nil {
		return
	}
	h.log.Info("process joined", "process", p.name.String(), "generation", uint64(p.generation), "uid", p.uid)
	h.serveRequests(ctx, p)
}

// greet reads and checks the hello of a process.
func (h *Helper) greet(conn *local.Conn) (*process, error) {
	cred, err := conn.PeerCred()
	if err != nil {
		return nil, fmt.Errorf("asking who the process is: %w", err)
	}
	conn.SetReadDeadline(time.Now().Add(introTimeout))
	frame, file, err := conn.Receive()
	closeFile(file)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("waited %v for the hello of process %d: %w", introTimeout, cred.PID, overlay.ErrTimeout)
		}
		return nil, err
	}
	conn.SetReadDeadline(time.Time{})
	hello, ok := frame.(*wire.LocalHello)
	if !ok {
		return nil, fmt.Errorf("%w: a %v in place of a local hello", wire.ErrType, frame.Type())
	}
	if !jobkey.ForAuth(hello.Auth).Owns(hello.Job) {
		return nil, fmt.Errorf("%w: process %d of user %d does not hold the key of job %s", overlay.ErrForbidden, cred.PID, cred.UID, hello.Job)
	}
	return &process{
		name:       overlay.ProcessName{Job: hello.Job, Rank: hello.Rank},
		generation: hello.Generation,
		uid:        cred.UID,
		conn:       conn,
		dials:      map[uint32]context.CancelFunc{},
		again:      map[uint32]bool{},
	}, nil
}

// serveRequests starts a goroutine for each dial that p asks for, and returns
// when p hung up and all of them have ended.
func (h *Helper) serveRequests(ctx context.Context, p *process) {
	ctx, cancel := context.WithCancel(ctx)
	var dials sync.WaitGroup
	defer dials.Wait()
	defer cancel()
	for {
		frame, file, err := p.conn.Receive()
		closeFile(file)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
				h.log.Warn("process", "process", p.name.String(), "error", err)
			}
			return
		}
		switch f := frame.(type) {
		case *wire.LocalDial:
			dialCtx, done, err := p.begin(ctx, f)
			if err != nil {
				p.conn.Send(&wire.LocalFailed{Request: f.Request, Code: wire.CodeOf(err), Text: err.Error()}, nil)
				continue
			}
			dials.Go(func() {
				defer done()
				h.answerDial(dialCtx, p, f)
			})
		case *wire.LocalCancel:
			p.cancel(f.Request)
		default:
			h.log.Warn("process", "process", p.name.String(), "error", fmt.Errorf("%w: %v", wire.ErrType, frame.Type()))
			return
		}
	}
}

// begin notes a request, so that a cancel finds it.
func (p *process) begin(ctx context.Context, f *wire.LocalDial) (context.Context, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, again := p.dials[f.Request]; again {
		return nil, nil, fmt.Errorf("%w: request %d is still open", wire.ErrMalformed, f.Request)
	}
	if len(p.dials) >= maxDials {
		return nil, nil, fmt.Errorf("%w: %d dials of %v are open", overlay.ErrOverloaded, maxDials, p.name)
	}
	ctx, cancel := context.WithTimeout(ctx, min(f.Budget, maxBudget))
	p.dials[f.Request] = cancel
	return ctx, func() {
		cancel()
		p.mu.Lock()
		delete(p.dials, f.Request)
		p.mu.Unlock()
	}, nil
}

func (p *process) cancel(request uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel, ok := p.dials[request]; ok {
		cancel()
	}
}

// answerDial carries a request out and tells the process the outcome.
func (h *Helper) answerDial(ctx context.Context, p *process, f *wire.LocalDial) {
	target := overlay.ProcessName{Job: p.name.Job, Rank: f.Rank}
	start := time.Now()
	made, err := h.dial(ctx, p, target)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return // the process took it back, or is gone
		}
		h.log.Info("not connected", "from", p.name.String(), "to", target.String(), "error", err)
		p.conn.Send(&wire.LocalFailed{Request: f.Request, Code: wire.CodeOf(err), Text: err.Error()}, nil)
		return
	}
	made.path.Setup = time.Since(start)
	id := h.seq.Add(1)
	err = p.conn.Send(&wire.LocalDialled{Request: f.Request, Carrier: id, Path: made.path}, made.conn)
	made.conn.Close()
	if made.handed != nil {
		made.handed(p, id, err)
	}
	if err == nil {
		h.log.Info("connected", "from", p.name.String(), "to", target.String(), "node", made.path.Peer.String(),
			"technique", made.path.String(), "setup", made.path.Setup.String(), "reason", made.path.Reason)
	}
}

// deliver hands a connection that somebody opened to p. It closes the
// helper's copy either way.
func (h *Helper) deliver(p *process, c socket, path overlay.Path) error {
	defer c.Close()
	return p.conn.Send(&wire.LocalIncoming{Carrier: h.seq.Add(1), Path: path}, c)
}

// reject ends a process that the frontal or broker does not want.
func (p *process) reject(err error) {
	p.conn.Send(&wire.Refuse{Code: wire.CodeOf(err), By: "helper", Text: err.Error()}, nil)
	p.conn.Close()
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
