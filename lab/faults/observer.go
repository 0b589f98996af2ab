package faults

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/overlay"
)

// An observer sits between a mesh and its connector and watches the carriers that the mesh gets,
// independently of what a link reports.
type observer struct {
	overlay.Connector

	mu   sync.Mutex
	seen []*watched // all, the oldest first
}

// watched is a carrier's connection with counters.
type watched struct {
	net.Conn
	path    overlay.Path
	in, out atomic.Uint64
	closed  atomic.Bool
}

// Dial implements overlay.Connector.
func (o *observer) Dial(ctx context.Context, peer overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	return o.watch(o.Connector.Dial(ctx, peer, ways))
}

// Accept implements overlay.Connector.
func (o *observer) Accept(ctx context.Context) (overlay.Carrier, error) {
	return o.watch(o.Connector.Accept(ctx))
}

// Reserve implements overlay.Reserver.
func (o *observer) Reserve(peer overlay.ProcessName, life overlay.Generation) {
	if r, ok := o.Connector.(overlay.Reserver); ok {
		r.Reserve(peer, life)
	}
}

func (o *observer) watch(c overlay.Carrier, err error) (overlay.Carrier, error) {
	if err != nil {
		return c, err
	}
	w := &watched{Conn: c.Conn, path: c.Path}
	o.mu.Lock()
	o.seen = append(o.seen, w)
	o.mu.Unlock()
	c.Conn = w
	return c, nil
}

// NetConn returns the connection below: the link sets and reads the options of its socket.
func (w *watched) NetConn() net.Conn { return w.Conn }

// Read implements net.Conn.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.in.Add(uint64(n))
	return n, err
}

// Write implements net.Conn.
func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.out.Add(uint64(n))
	return n, err
}

// WriteBuffers writes bufs with as few system calls as the connection allows, and does not modify
// them.
func (w *watched) WriteBuffers(bufs net.Buffers) (int64, error) {
	rest := bufs // WriteTo consumes it
	n, err := rest.WriteTo(w.Conn)
	w.out.Add(uint64(n))
	return n, err
}

// Close implements net.Conn.
func (w *watched) Close() error {
	w.closed.Store(true)
	return w.Conn.Close()
}

// A carrierState is the state of a carrier at one moment.
type carrierState struct {
	Number    int               `json:"number"` // in the order in which the process got them, from 0
	Technique overlay.Technique `json:"technique"`
	Path      string            `json:"path"`
	Proxy     string            `json:"proxy,omitempty"`
	In        uint64            `json:"in"` // bytes read from it
	Out       uint64            `json:"out"`
	Closed    bool              `json:"closed,omitempty"`
	Ends      [2]netip.AddrPort `json:"ends"` // of the connection; not valid if it has no addresses
}

// states returns all carriers so far.
func (o *observer) states() []carrierState {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]carrierState, len(o.seen))
	for i, w := range o.seen {
		all[i] = carrierState{
			Number: i, Technique: w.path.Technique, Path: w.path.String(), Proxy: w.path.Proxy,
			In: w.in.Load(), Out: w.out.Load(), Closed: w.closed.Load(),
			Ends: [2]netip.AddrPort{addrPort(w.LocalAddr()), addrPort(w.RemoteAddr())},
		}
	}
	return all
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}
