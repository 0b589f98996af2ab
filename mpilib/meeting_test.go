package mpilib

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/proxy"
	"github.com/isthmus-grid/isthmus/wire"
)

// A meeting is a simple replacement of helpers, frontals and a broker for the ranks of a test's
// world; its proxy is a real one.
type meeting struct {
	t      *testing.T
	way    way
	dir    string // for sockets of the node
	key    ticket.Key
	proxy  string // its address
	slow   *slowness
	fuse   *fuse // may kill a process
	stalls []*stall

	ctx    context.Context
	cancel context.CancelFunc
	served sync.WaitGroup

	mu      sync.Mutex
	members map[uint32]*member
	joined  chan struct{} // closed and replaced when a member joins
}

func newMeeting(t *testing.T, dir string, w way) *meeting {
	ctx, cancel := context.WithCancel(context.Background())
	m := &meeting{t: t, way: w, dir: dir, key: ticket.NewKey(), ctx: ctx, cancel: cancel,
		members: map[uint32]*member{}, joined: make(chan struct{})}
	ln := m.listen()
	m.proxy = ln.Addr().String()
	server := proxy.New(proxy.Settings{Name: "p1", Key: m.key}, quiet)
	m.served.Go(func() {
		if err := server.Serve(ctx, ln); err != nil {
			t.Errorf("proxy: %v", err)
		}
	})
	if w.slow {
		m.slow = newSlowness(ctx)
		m.proxy = m.slow.before(t, "tcp", m.proxy)
	}
	return m
}

func (m *meeting) listen() *net.TCPListener {
	ln, err := carrier.ListenIn(m.ctx, netip.MustParseAddr("127.0.0.1"), overlay.Ports{})
	if err != nil {
		m.t.Fatal(err)
	}
	return ln
}

// close ends what the meeting started.
func (m *meeting) close() {
	m.cancel()
	m.served.Wait()
	if m.slow != nil {
		m.slow.wait()
	}
}

// A member is a rank's connector.
type member struct {
	at       *meeting
	self     overlay.ProcessName
	addrs    map[string]string // addresses to dial it at, by network
	incoming chan overlay.Carrier

	ctx     context.Context
	cancel  context.CancelFunc
	serving sync.WaitGroup
	lns     []net.Listener
}

var _ overlay.Connector = (*member)(nil)

// join creates a rank's connector.
func (m *meeting) join(self overlay.ProcessName) (overlay.Connector, error) {
	ctx, cancel := context.WithCancel(m.ctx)
	r := &member{at: m, self: self, addrs: map[string]string{}, incoming: make(chan overlay.Carrier), ctx: ctx, cancel: cancel}
	near, err := net.Listen("unix", filepath.Join(m.dir, fmt.Sprint(self.Rank)))
	if err != nil {
		return nil, err
	}
	r.lns = []net.Listener{near, m.listen()}
	for _, ln := range r.lns {
		network, addr := ln.Addr().Network(), ln.Addr().String()
		if m.slow != nil {
			addr = m.slow.before(m.t, network, addr)
		}
		r.addrs[network] = addr
		r.serving.Go(func() { r.serve(ln) })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members[self.Rank] = r
	if m.fuse != nil && m.fuse.victim == int(self.Rank) {
		m.fuse.member = r
	}
	close(m.joined)
	m.joined = make(chan struct{})
	return r, nil
}

// serve accepts connections; the first byte of each identifies the caller.
func (r *member) serve(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return // closed
		}
		who := make([]byte, 1)
		if _, err := c.Read(who); err != nil {
			c.Close()
			continue
		}
		technique := overlay.Direct
		if ln.Addr().Network() == "unix" {
			technique = 0
		}
		r.came(r.carrier(c, technique, int(who[0])))
	}
}

func (r *member) came(c overlay.Carrier) {
	select {
	case r.incoming <- c:
	case <-r.ctx.Done():
		c.Conn.Close()
	}
}

func (r *member) carrier(c net.Conn, t overlay.Technique, peer int) overlay.Carrier {
	if u := r.at.fuse; u != nil && u.victim == int(r.self.Rank) {
		c = mortal{c, u}
	}
	for _, s := range r.at.stalls {
		if s.from == int(r.self.Rank) && s.to == peer {
			c = &stalled{c, s}
		}
	}
	made := overlay.Carrier{Conn: c, Path: overlay.Path{Technique: t, Reason: "a test's"}}
	if places := r.at.way.places; places != nil {
		site, node := places(peer)
		made.Path.Peer = overlay.NodeID{Site: overlay.SiteID(site), Name: node}
		site, node = places(int(r.self.Rank))
		made.Here = overlay.NodeID{Site: overlay.SiteID(site), Name: node}
	}
	if t == overlay.Relay {
		made.Path.Proxy, made.Seal = "p1", true
	}
	return made
}

// Dial implements overlay.Connector.
func (r *member) Dial(ctx context.Context, peer overlay.ProcessName, allowed overlay.Ways) (overlay.Carrier, error) {
	other, err := r.at.member(ctx, peer.Rank)
	if err != nil {
		return overlay.Carrier{}, err
	}
	t := r.at.way.path(int(r.self.Rank), int(peer.Rank))
	if t != 0 && !allowed.Allow(t) {
		return overlay.Carrier{}, fmt.Errorf("%v: %w", peer, overlay.ErrNoPath)
	}
	var c net.Conn
	switch t {
	case overlay.Relay:
		c, err = r.introduce(ctx, other)
	case 0:
		c, err = r.at.dial(ctx, "unix", other.addrs["unix"], []byte{byte(r.self.Rank)})
	default:
		c, err = r.at.dial(ctx, "tcp", other.addrs["tcp"], []byte{byte(r.self.Rank)})
	}
	if err != nil {
		return overlay.Carrier{}, fmt.Errorf("%v: %w: %w", peer, overlay.ErrUnreachable, err)
	}
	return r.carrier(c, t, int(peer.Rank)), nil
}

// introduce sends both ends a ticket with which they dial the proxy.
func (r *member) introduce(ctx context.Context, other *member) (net.Conn, error) {
	claims := wire.Ticket{Job: r.self.Job, Asker: r.self.Rank, Target: other.self.Rank, Proxy: "p1", Expires: uint64(time.Now().Add(time.Minute).UnixMilli())}
	rand.Read(claims.Link[:])
	asker := ticket.Issue(r.at.key, claims)
	claims.End = 1
	target := ticket.Issue(r.at.key, claims)
	r.at.served.Go(func() {
		c, err := r.at.dial(other.ctx, "tcp", r.at.proxy, wire.Append(nil, &target))
		if err == nil {
			other.came(other.carrier(c, overlay.Relay, int(r.self.Rank)))
		}
	})
	return r.at.dial(ctx, "tcp", r.at.proxy, wire.Append(nil, &asker))
}

func (m *meeting) dial(ctx context.Context, network, addr string, first []byte) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(first); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// member waits for a rank to join.
func (m *meeting) member(ctx context.Context, rank uint32) (*member, error) {
	for {
		m.mu.Lock()
		r, joined := m.members[rank], m.joined
		m.mu.Unlock()
		if r != nil {
			return r, nil
		}
		select {
		case <-joined:
		case <-ctx.Done():
			return nil, fmt.Errorf("rank %d: %w: %w", rank, overlay.ErrUnknownProcess, ctx.Err())
		}
	}
}

// Accept implements overlay.Connector.
func (r *member) Accept(ctx context.Context) (overlay.Carrier, error) {
	select {
	case c := <-r.incoming:
		return c, nil
	case <-ctx.Done():
		return overlay.Carrier{}, ctx.Err()
	case <-r.ctx.Done():
		return overlay.Carrier{}, net.ErrClosed
	}
}

// vanish has nobody reach r any more, as if its process had ended.
func (r *member) vanish() {
	r.cancel()
	for _, ln := range r.lns {
		ln.Close()
	}
}

// Close implements overlay.Connector.
func (r *member) Close() error {
	r.cancel()
	var errs []error
	for _, ln := range r.lns {
		if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	r.serving.Wait()
	return errors.Join(errs...)
}
