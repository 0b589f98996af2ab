package nodeservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	idleTime     = time.Minute      // for which an unused session is kept, and up to half as long again
	reachTime    = 30 * time.Second // to open a session
	maxSessions  = 4096             // concurrent, with other nodes
	serviceRanks = 1 << 31          // ranks of a service job: each session draws one at random
	rejoinTime   = 5 * time.Second  // before this node's service is registered again after a failure
)

// sessions are the sessions with other node services: opened when a call needs one, and closed
// after some time without calls.
type sessions struct {
	node   overlay.NodeID
	socket string // of this node's helper
	end    *control.Endpoint
	log    *slog.Logger

	mu     sync.Mutex
	life   context.Context // the context of open
	closed bool            // no new session is opened
	peers  map[overlay.NodeID]*reached
	work   sync.WaitGroup
}

// reached is a session, open or being opened.
type reached struct {
	users int
	ready chan struct{} // closed when session or err is set
	over  bool          // it has ended; the next caller opens another
	idle  *time.Timer

	session *control.Session
	err     error
	stop    func()
}

// errUnused is why an idle session ends.
var errUnused = errors.New("the session was not used any more")

func newSessions(node overlay.NodeID, socket string, end *control.Endpoint, log *slog.Logger) *sessions {
	return &sessions{node: node, socket: socket, end: end, log: log, peers: map[overlay.NodeID]*reached{}}
}

// open allows sessions until ctx ends.
func (s *sessions) open(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = ctx
}

// wait returns when the context of open has ended and no session is left.
func (s *sessions) wait() {
	<-s.life.Done()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.work.Wait()
}

// reach returns a client of a node's service. Call done when it is no longer needed.
func (s *sessions) reach(ctx context.Context, node overlay.NodeID) (nodepb.NodeServiceClient, func(), error) {
	r, err := s.get(node)
	if err != nil {
		return nil, nil, err
	}
	done := sync.OnceFunc(func() { s.put(node, r) })
	select {
	case <-r.ready:
	case <-ctx.Done():
		done()
		return nil, nil, fmt.Errorf("the node service of %v: %w", node, context.Cause(ctx))
	}
	if r.err != nil {
		done()
		return nil, nil, fmt.Errorf("the node service of %v: %w", node, r.err)
	}
	return nodepb.NewNodeServiceClient(r.session.Conn()), done, nil
}

func (s *sessions) get(node overlay.NodeID) (*reached, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == nil || s.closed || s.life.Err() != nil {
		return nil, ErrStopping
	}
	r := s.peers[node]
	if r == nil || r.over {
		if len(s.peers) >= maxSessions && r == nil {
			return nil, fmt.Errorf("%w: %d other node services are in use", overlay.ErrOverloaded, len(s.peers))
		}
		ctx, stop := context.WithCancelCause(s.life)
		r = &reached{ready: make(chan struct{}), stop: func() { stop(errUnused) }}
		s.peers[node] = r
		s.work.Go(func() { s.keep(ctx, node, r) })
	}
	r.users++
	if r.idle != nil {
		r.idle.Stop()
		r.idle = nil
	}
	return r, nil
}

func (s *sessions) put(node overlay.NodeID, r *reached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.users--; r.users > 0 || r.over {
		return
	}
	// Random, so that hundreds of sessions that a job opened together do not end together.
	r.idle = time.AfterFunc(idleTime+rand.N(idleTime/2), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.users == 0 {
			s.forget(node, r)
			r.stop()
		}
	})
}

// forget makes the next caller open another session. The caller must hold mu.
func (s *sessions) forget(node overlay.NodeID, r *reached) {
	r.over = true
	if s.peers[node] == r {
		delete(s.peers, node)
	}
}

// keep opens a session and keeps it until ctx or the session ends.
func (s *sessions) keep(ctx context.Context, node overlay.NodeID, r *reached) {
	defer r.stop()
	begun := time.Now()
	session, leave, err := s.connect(ctx, node)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // rather than the error of something below that was cancelled
	}
	s.mu.Lock()
	r.session, r.err = session, err
	close(r.ready)
	if err != nil {
		s.forget(node, r)
	}
	s.mu.Unlock()
	if err != nil {
		return
	}
	s.log.Info("node service reached", "node", node.String(), "in", time.Since(begun).Round(time.Millisecond).String())
	select {
	case <-session.Done():
	case <-ctx.Done():
		session.Close()
	}
	s.mu.Lock()
	s.forget(node, r)
	s.mu.Unlock()
	leave()
}

// connect opens a session with a node's node service, over a link of its service job. leave
// releases what is below the session.
func (s *sessions) connect(life context.Context, node overlay.NodeID) (_ *control.Session, leave func(), err error) {
	key := jobkey.ServiceKey(node)
	m := s.join(life, key, 1+rand.Uint32N(serviceRanks-1))
	defer func() {
		if err != nil {
			m.leave()
		}
	}()
	ctx, cancel := context.WithTimeout(life, reachTime)
	defer cancel()
	if _, err := m.client.Ready(ctx); err != nil {
		return nil, nil, err
	}
	if err := m.mesh.Connect(ctx, 0); err != nil {
		if !errors.Is(err, overlay.ErrForbidden) {
			err = fmt.Errorf("%w; does its helper run?", err)
		}
		return nil, nil, err
	}
	l := <-m.links // present since Connect returned
	session, err := s.end.Dial(life, control.DialConfig{
		Addr: node.String(), Role: control.RoleHelper,
		Dial: func(context.Context, string) (net.Conn, error) { return control.Resilient{Conn: l.Conn}, nil },
	})
	if err != nil {
		l.Conn.Close()
		return nil, nil, err
	}
	if there := session.Peer().Node(); there != node {
		session.Close()
		return nil, nil, fmt.Errorf("%w: %v answers in its place", overlay.ErrForbidden, there)
	}
	return session, m.leave, nil
}

// member is this helper as a rank of a service job.
type member struct {
	client *local.Client
	mesh   *link.Mesh
	links  chan *link.Link
	leave  func()     // ends the membership, and waits
	failed chan error // holds the reason if the helper refused
}

// join makes this helper a rank of a service job, until leave. Links that arrive while the channel
// is full are closed.
func (s *sessions) join(life context.Context, key jobkey.Key, rank uint32) *member {
	generation := overlay.NewGeneration(time.Now(), 0)
	self := link.NewIdentity(key, rank, generation)
	m := &member{links: make(chan *link.Link, 64), failed: make(chan error, 1)}
	m.client = local.NewClient(local.ClientConfig{Socket: s.socket, Process: self.Process, Generation: generation, Auth: key.Auth()})
	m.mesh = link.NewMesh(link.Config{Self: self, Size: serviceRanks, Connector: m.client, Carriers: 1, Up: func(l *link.Link) {
		select {
		case m.links <- l:
		default:
			l.Conn.Close()
		}
	}})
	ctx, stop := context.WithCancel(life)
	var serving, meshServing sync.WaitGroup
	serving.Go(func() {
		if err := m.client.Serve(context.WithoutCancel(life)); err != nil { // until Close, so that it deregisters
			m.failed <- err
		}
	})
	meshServing.Go(func() { m.mesh.Serve(ctx) }) // fails with the client, whose error has the cause
	m.leave = sync.OnceFunc(func() {
		stop()
		meshServing.Wait() // the traffic of its links is reported through the client
		m.client.Close()
		serving.Wait()
		for {
			select {
			case l := <-m.links:
				l.Conn.Close()
			default:
				return
			}
		}
	})
	return m
}

// answer accepts sessions from other node services until ctx ends: as rank 0 of this node's service
// job, again and again if the helper refuses.
func (s *sessions) answer(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.answerOnce(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("other nodes cannot reach this node's service", "error", err, "retry_in", rejoinTime.String())
			select {
			case <-time.After(rejoinTime):
			case <-ctx.Done():
			}
		}
	}
}

func (s *sessions) answerOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := s.join(ctx, jobkey.ServiceKey(s.node), 0)
	defer m.leave()
	ln := &linkListener{member: m, node: s.node, done: ctx.Done()}
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	watch.Go(func() {
		select {
		case err := <-m.failed:
			cancel(err)
		case <-ctx.Done():
		}
	})
	err := s.end.Serve(ctx, ln, func(id control.Identity) error {
		if id.Role != control.RoleHelper {
			return fmt.Errorf("%w: this is the node service of %v; %v is no helper", overlay.ErrForbidden, s.node, id)
		}
		return nil
	}, nil)
	if cause := context.Cause(ctx); cause != nil && cause != context.Canceled {
		return cause
	}
	return err
}

// linkListener presents a member's links as accepted connections.
type linkListener struct {
	member *member
	node   overlay.NodeID
	done   <-chan struct{}
}

// Accept returns the next link. When the link ends, the mesh forgets its rank, which was drawn for
// this link alone.
func (ln *linkListener) Accept() (net.Conn, error) {
	select {
	case l := <-ln.member.links:
		go func() { // ends with the link, which ends with the mesh at the latest
			<-l.Done()
			ln.member.mesh.Forget(l.Peer.Rank)
		}()
		return shownConn{l.Conn, l.Path}, nil
	case <-ln.done:
		return nil, net.ErrClosed
	}
}

func (ln *linkListener) Close() error { return nil }

// Addr implements net.Listener.
func (ln *linkListener) Addr() net.Addr { return &net.UnixAddr{Name: ln.node.String(), Net: "link"} }

// shownConn is a link's connection that reveals the remote address only if that is the peer's own:
// not a relay's or a gateway's.
type shownConn struct {
	net.Conn
	path overlay.Path
}

// Resilient implements control.Resilient: a link recovers from dead paths by itself.
func (shownConn) Resilient() {}

// RemoteAddr implements net.Conn.
func (c shownConn) RemoteAddr() net.Addr {
	if c.path.Via == 0 && c.path.Technique.Kind().EndToEnd() {
		if a := c.Conn.RemoteAddr(); a != nil {
			return a
		}
	}
	return &net.UnixAddr{Name: c.path.Peer.String(), Net: "link"}
}
