package traverse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// An Engine sees the SYNs of this host and sends segments. It is opened once, for the life of a
// daemon: closing a packet socket takes the kernel up to 30 ms. Its methods are safe for concurrent
// use.
type Engine struct {
	sockets *sockets

	mu    sync.Mutex
	flows map[endpoints]*flow // connections under way, at most maxFlows
}

// endpoints identify a connection as this host sees it.
type endpoints struct{ local, remote netip.AddrPort }

// A flow is a connection under way. Its fields are guarded by Engine.mu.
type flow struct {
	expires time.Time
	seen    func(now time.Time, s Segment, outgoing bool) []Segment // returns what to send; called with mu held
	failed  func(error)                                             // called when sending that failed, without mu
	target  *Injected                                               // at the target, or nil
}

// Available returns nil if this process may do traversing TCP, or an error with ErrPrivilege or
// ErrUnsupported.
func Available() error {
	s, err := openSockets()
	if err == nil {
		s.close()
	}
	return err
}

// Open opens the sockets, in the network namespace of the calling thread. The
// error is ErrPrivilege or ErrUnsupported, or the system's. Call Serve and then
// Close.
func Open() (*Engine, error) {
	s, err := openSockets()
	if err != nil {
		return nil, err
	}
	return &Engine{sockets: s, flows: make(map[endpoints]*flow)}, nil
}

// Close closes the sockets. Serve must have returned.
func (e *Engine) Close() { e.sockets.close() }

// Serve processes packets until ctx is done. Nothing works without it.
func (e *Engine) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, e.sockets.interrupt)()
	buf := make([]byte, MaxPacket)
	for {
		n, outgoing, err := e.sockets.receive(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("traverse.Serve: %w", err)
		case err != nil: // for example, an interface went down
			continue
		}
		if s, err := Parse(buf[:n]); err == nil {
			e.handle(time.Now(), s, outgoing)
		}
	}
}

// handle passes a segment to the flow it belongs to and sends the result.
func (e *Engine) handle(now time.Time, s Segment, outgoing bool) {
	key := endpoints{local: s.Src, remote: s.Dst}
	if !outgoing {
		key = endpoints{local: s.Dst, remote: s.Src}
	}
	e.mu.Lock()
	f := e.flows[key]
	if f != nil && now.After(f.expires) {
		delete(e.flows, key)
		f = nil
	}
	var send []Segment
	if f != nil {
		send = f.seen(now, s, outgoing)
	}
	e.mu.Unlock()
	for _, s := range send {
		if err := e.sockets.send(s); err != nil {
			f.failed(err)
		}
	}
}

// add registers a flow. The caller holds mu.
func (e *Engine) add(now time.Time, key endpoints, f *flow) error {
	f.expires = now.Add(flowLife)
	if len(e.flows) >= maxFlows {
		for k, old := range e.flows {
			if now.After(old.expires) {
				delete(e.flows, k)
			}
		}
		if len(e.flows) >= maxFlows {
			return fmt.Errorf("%w: %d connections are under way", overlay.ErrOverloaded, maxFlows)
		}
	}
	e.flows[key] = f
	return nil
}

// remove removes a flow, unless another has replaced it.
func (e *Engine) remove(key endpoints, f *flow) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flows[key] == f {
		delete(e.flows, key)
	}
}
