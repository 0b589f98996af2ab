package runner

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/lab/wan/star"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// FakeHelpers stand in for the helper of each host of a Wire. What they hand to processes is always a TCP connection
// across the wire, set up as helpers do it and not encrypted. They check nothing.
type FakeHelpers struct {
	hosts   [2]helperHost
	serving sync.WaitGroup

	mu       sync.Mutex
	all      map[*local.Conn]bool
	members  map[overlay.ProcessName]*local.Conn
	joined   chan struct{} // closed, and replaced, when a process joins or the helpers end
	ended    bool
	carriers uint64 // that were made
}

// helperHost is where one of the helpers is.
type helperHost struct {
	space  *star.Space
	addr   netip.Addr
	socket string
	ln     *net.UnixListener
}

// NewFakeHelpers starts both helpers, with their sockets in folder. Close ends them.
func NewFakeHelpers(w *Wire, folder string) (*FakeHelpers, error) {
	h := &FakeHelpers{
		hosts: [2]helperHost{
			{space: w.Left, addr: LeftAddr, socket: filepath.Join(folder, "left")},
			{space: w.Right, addr: RightAddr, socket: filepath.Join(folder, "right")},
		},
		all: map[*local.Conn]bool{}, members: map[overlay.ProcessName]*local.Conn{}, joined: make(chan struct{}),
	}
	for i := range h.hosts {
		ln, err := local.ListenUnix(h.hosts[i].socket, 0o600)
		if err != nil {
			h.Close()
			return nil, err
		}
		h.hosts[i].ln = ln
		h.serving.Go(func() { h.serve(i) })
	}
	return h, nil
}

// Socket returns the path of the socket of the left host's helper (0) or the right one's (1).
func (h *FakeHelpers) Socket(host int) string { return h.hosts[host].socket }

// Close ends the helpers, and waits until they have ended.
func (h *FakeHelpers) Close() error {
	var errs []error
	h.mu.Lock()
	h.ended = true
	h.announce()
	for c := range h.all {
		errs = append(errs, c.Close())
	}
	h.mu.Unlock()
	for _, at := range h.hosts {
		if at.ln != nil {
			errs = append(errs, at.ln.Close())
		}
	}
	h.serving.Wait()
	return errors.Join(errs...)
}

// announce wakes those that wait for a change. mu is held.
func (h *FakeHelpers) announce() {
	close(h.joined)
	h.joined = make(chan struct{})
}

// serve accepts the processes of one host.
func (h *FakeHelpers) serve(host int) {
	for {
		raw, err := h.hosts[host].ln.AcceptUnix()
		if err != nil {
			return // closed
		}
		c := local.NewConn(raw)
		h.mu.Lock()
		if h.ended {
			c.Close()
		} else {
			h.all[c] = true
		}
		h.mu.Unlock()
		h.serving.Go(func() { h.attend(host, c) })
	}
}

// attend serves one process until it leaves.
func (h *FakeHelpers) attend(host int, c *local.Conn) {
	self, err := h.register(host, c)
	defer func() {
		h.mu.Lock()
		delete(h.all, c)
		if h.members[self] == c {
			delete(h.members, self)
		}
		h.mu.Unlock()
		c.Close()
	}()
	for err == nil {
		var f wire.Frame
		f, _, err = c.Receive() // no frame of a process's carries a descriptor
		if dial, is := f.(*wire.LocalDial); is {
			h.serving.Go(func() { h.dial(host, self, c, dial) })
		}
	}
}

// register lets a process join, whatever it proves.
func (h *FakeHelpers) register(host int, c *local.Conn) (self overlay.ProcessName, err error) {
	f, _, err := c.Receive()
	if err != nil {
		return self, err
	}
	hello, is := f.(*wire.LocalHello)
	if !is {
		return self, fmt.Errorf("a process began with %v", f.Type())
	}
	self = overlay.ProcessName{Job: hello.Job, Rank: hello.Rank}
	life := hello.Generation
	if life == 0 {
		life = overlay.NewGeneration(time.Now(), 0)
	}
	if err := c.Send(&wire.LocalPlace{Node: node(host), Generation: life}, nil); err != nil {
		return self, err
	}
	if _, _, err := c.Receive(); err != nil { // the proof
		return self, err
	}
	h.mu.Lock()
	h.members[self] = c
	h.announce()
	h.mu.Unlock()
	return self, c.Send(&wire.LocalWelcome{Node: node(host)}, nil)
}

// dial connects a process to another, once that has joined, and hands both their ends. A failure to send
// is that of a process that has left.
func (h *FakeHelpers) dial(host int, self overlay.ProcessName, asker *local.Conn, f *wire.LocalDial) {
	start := time.Now()
	other, id, err := h.await(overlay.ProcessName{Job: self.Job, Rank: f.Rank}, f.Budget)
	var near, far *net.TCPConn
	if err == nil {
		near, far, err = h.connect(host)
	}
	if err != nil {
		asker.Send(&wire.LocalFailed{Request: f.Request, Code: wire.CodeOf(err), Text: err.Error()}, nil)
		return
	}
	path := func(peer int) overlay.Path {
		return overlay.Path{Technique: overlay.Direct, Peer: node(peer), Reason: "both nodes are on one wire", Setup: time.Since(start)}
	}
	other.Send(&wire.LocalIncoming{Carrier: id, Path: path(host)}, far)
	asker.Send(&wire.LocalDialled{Request: f.Request, Carrier: id, Path: path(1 - host)}, near)
	near.Close()
	far.Close()
}

// await waits until a process has joined, and numbers a carrier to it.
func (h *FakeHelpers) await(peer overlay.ProcessName, budget time.Duration) (*local.Conn, uint64, error) {
	late := time.NewTimer(budget)
	defer late.Stop()
	for {
		h.mu.Lock()
		c, joined, ended := h.members[peer], h.joined, h.ended
		h.carriers++
		id := h.carriers
		h.mu.Unlock()
		switch {
		case c != nil:
			return c, id, nil
		case ended:
			return nil, 0, fmt.Errorf("%v: the helpers end: %w", peer, overlay.ErrUnreachable)
		}
		select {
		case <-joined:
		case <-late.C:
			return nil, 0, fmt.Errorf("%v: has not joined within %v: %w", peer, budget, overlay.ErrTimeout)
		}
	}
}

// connect makes a TCP connection from a host to the other one.
func (h *FakeHelpers) connect(from int) (near, far *net.TCPConn, err error) {
	here, there := &h.hosts[from], &h.hosts[1-from]
	var ln *net.TCPListener
	err = there.space.Do(func() (err error) {
		ln, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(there.addr, 0)))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	err = here.space.Do(func() (err error) {
		near, err = net.DialTCP("tcp4", nil, ln.Addr().(*net.TCPAddr))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if far, err = ln.AcceptTCP(); err != nil {
		near.Close()
		return nil, nil, err
	}
	for _, c := range []*net.TCPConn{near, far} {
		carrier.Tune(c, carrier.Tuning{KeepAlive: 15 * time.Second}) // best effort, as the helper does
	}
	return near, far, nil
}
