package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// The few tests of whole links over sockets of the kernel. They assert nothing about time.

// port is the connector of one of two processes, which know each other's address.
type port struct {
	net.Listener
	peer      string
	technique overlay.Technique
	seal      bool

	mu    sync.Mutex
	conns []net.Conn // all that were dialled
}

func (p *port) Dial(ctx context.Context, _ overlay.ProcessName, _ overlay.Ways) (overlay.Carrier, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", p.peer)
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.conns = append(p.conns, c)
	}
	return overlay.Carrier{Conn: c, Path: overlay.Path{Technique: p.technique}, Seal: p.seal}, err
}

func (p *port) Accept(ctx context.Context) (overlay.Carrier, error) {
	defer context.AfterFunc(ctx, func() { p.Close() })()
	c, err := p.Listener.Accept()
	return overlay.Carrier{Conn: c, Path: overlay.Path{Technique: p.technique}, Seal: p.seal}, err
}

// reset resets the n-th connection that was dialled.
func (p *port) reset(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[n].(*net.TCPConn).SetLinger(0)
	p.conns[n].Close()
}

// serve runs a mesh of two until stop is called, which waits for its end.
func serve(id Identity, conn overlay.Connector, carriers int) (m *Mesh, links chan *Link, stop func()) {
	links = make(chan *Link, 1)
	m = NewMesh(Config{Self: id, Size: 2, Connector: conn, Carriers: carriers, Up: func(l *Link) { links <- l }})
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { m.Serve(ctx) })
	return m, links, func() { cancel(); served.Wait() }
}

// TestLoopback: over two TCP connections, of which one dies, every byte arrives once and in order,
// both ways; then the end.
func TestLoopback(t *testing.T) {
	for _, seal := range []bool{false, true} {
		t.Run(fmt.Sprint("sealed=", seal), func(t *testing.T) {
			var ports [2]*port
			for i := range ports {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				ports[i] = &port{Listener: ln, technique: overlay.Direct, seal: seal}
			}
			var links [2]chan *Link
			var meshes [2]*Mesh
			for i, p := range ports {
				p.peer = ports[1-i].Addr().String()
				var stop func()
				meshes[i], links[i], stop = serve(identity(t, uint32(i)), p, 2)
				defer stop()
			}
			if err := meshes[1].Connect(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			a, b := linked(links[0]), linked(links[1])
			pump(t, a, b, 1<<20)
			for len(used(a)) < 2 || len(used(b)) < 2 {
				time.Sleep(time.Millisecond)
			}
			pump(t, a, b, 4<<20)
			ports[1].reset(0)
			pump(t, a, b, 4<<20)
			if err := a.Conn.Close(); err != nil {
				t.Error(err)
			}
			if _, err := b.Conn.Read(make([]byte, 1)); err != io.EOF && !errors.Is(err, net.ErrClosed) {
				t.Errorf("behind the end: %v", err)
			}
			b.Conn.Close()
			<-a.Done()
			<-b.Done()
		})
	}
}
