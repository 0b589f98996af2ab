package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/nat/reflector"
	"github.com/isthmus-grid/isthmus/internal/nat/stunserver"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/wire"
)

// Settings configure a Server. Zero bounds take the defaults in DefaultLimits and the constants
// below.
type Settings struct {
	Name        string             // as in the tickets it honours
	Key         ticket.Key         // under which the broker issues them
	Limits      Limits             // see there
	TicketTime  time.Duration      // from accepting a connection to its whole ticket, including TLS and WebSocket handshakes
	PairTimeout time.Duration      // how long the first end of a link waits for the second
	IdleTimeout time.Duration      // after which a link that moves no byte is cut; 0: never
	Tuning      carrier.Tuning     // of the sockets
	Audit       *audit.Log         // of links and refusals; nil: none
	Quota       *ratelimit.Limiter // limits of links; nil: none. It is served by the Server.

	// TLS, if not nil, is called for each connection that begins as TLS.
	TLS func() *tls.Config

	// PassOn, if not nil, gets a connection whose ticket is not under Key, with the frame that was
	// read from it: another process may have the key. It owns the connection unless it fails.
	PassOn func(c *net.TCPConn, first []byte) error
}

// Limits bound the load of a Server. What exceeds them is refused as overloaded.
type Limits struct {
	Links      int // links, including those that wait for an end
	Waiting    int // ends that wait for their partner
	Handshakes int // connections that have not shown a ticket yet
	PerSource  int // the same from one source address; 0 is half of Handshakes
	Tickets    int // used tickets to remember until they expire
}

// Defaults of Settings.
const (
	DefaultTicketTime  = 10 * time.Second // two handshakes, and the wait for the target, on a long path
	DefaultPairTimeout = 10 * time.Second
)

// DefaultLimits are for a host that allows about 65,000 open files: a busy
// link is two sockets and up to two pipes, six descriptors.
var DefaultLimits = Limits{Handshakes: 1024, Waiting: 4096, Links: 10000, Tickets: 1 << 18}

// Server is one proxy. It is safe for concurrent use.
type Server struct {
	set     Settings
	checker *ticket.Checker
	log     *slog.Logger
	count   counters
	lossy   carrier.LossyPaths

	half     *accept.HalfOpen // connections that have not shown a ticket yet
	observer *reflector.Observer
	stun     *stunserver.Server // served by the daemon, if it has the sockets

	mu          sync.Mutex // guards the fields below; never held while waiting or writing to a peer
	waiting     map[wire.ID]*waitingEnd
	links       map[*relayedLink]struct{}
	barred      barred
	disowned    error         // why this proxy itself is no longer trusted
	refusing    int           // connections that are being refused before they presented a ticket
	changed     chan struct{} // closed and replaced by noteChange
	limits      Limits
	siteTraffic siteTraffic
	draining    bool
	closed      chan struct{} // closed by StopAccepting

	// Set by New, or atomic.
	began     time.Time   // base of the time by which tickets are judged, see clock
	life      uint64      // identifies this start, for brokers that count traffic
	elsewhere atomic.Bool // a broker knows of other proxies
}

// clock returns the time by which tickets are judged, and which is sent to brokers (OfferRequest):
// the time of the start plus the time elapsed since. Setting the system clock expires no ticket,
// and makes no used ticket valid again.
func (s *Server) clock() time.Time {
	return s.began.Add(time.Since(s.began))
}

// New returns a Server, which does nothing until Serve.
func New(set Settings, log *slog.Logger) *Server {
	set.TicketTime = orDefault(set.TicketTime, DefaultTicketTime)
	set.PairTimeout = orDefault(set.PairTimeout, DefaultPairTimeout)
	set.Limits.Handshakes = orDefault(set.Limits.Handshakes, DefaultLimits.Handshakes)
	set.Limits.PerSource = orDefault(set.Limits.PerSource, (set.Limits.Handshakes+1)/2)
	set.Limits.Waiting = orDefault(set.Limits.Waiting, DefaultLimits.Waiting)
	set.Limits.Links = orDefault(set.Limits.Links, DefaultLimits.Links)
	set.Limits.Tickets = orDefault(set.Limits.Tickets, DefaultLimits.Tickets)
	if set.Quota == nil {
		set.Quota, _ = ratelimit.New(quota.Rules{}, "", log) // fails on files only
	}
	s := &Server{
		set:     set,
		checker: ticket.NewChecker(set.Name, set.Limits.Tickets, set.Key),
		log:     log,
		count:   counters{refused: map[Reason]uint64{}},
		waiting: map[wire.ID]*waitingEnd{},
		links:   map[*relayedLink]struct{}{},
		changed: make(chan struct{}),
		limits:  set.Limits,
		closed:  make(chan struct{}),
		began:   time.Now(),
		life:    rand.Uint64() | 1,

		observer: reflector.NewObserver("proxy "+set.Name, nil, 0, nil),
		stun:     new(stunserver.Server),
	}
	s.observer.Log = log
	s.half = accept.NewHalfOpen(accept.Bounds{
		What: "connections that have not shown a ticket", Total: set.Limits.Handshakes, PerSource: set.Limits.PerSource,
		TotalSetting: "limits.handshakes", SourceSetting: "limits.handshakes_per_source",
	}, func(from net.Addr, err error) {
		s.count.refuse(TooManyHandshakes)
		s.audit(audit.Record{Peer: from.String()}, &refusalError{reason: TooManyHandshakes, text: err.Error()})
	})
	return s
}

func orDefault[T comparable](v, preset T) T {
	var zero T
	if v == zero {
		return preset
	}
	return v
}

// Serve accepts connections on every listener until ctx is done or one of them fails, closes the
// listeners, cuts the links and returns when every goroutine that it started has ended. After
// StopAccepting it returns when the last link has ended by itself.
func (s *Server) Serve(ctx context.Context, listeners ...*net.TCPListener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var quota sync.WaitGroup
	defer quota.Wait()
	quotaCtx, over := context.WithCancel(context.WithoutCancel(ctx)) // outlives the links, to count their last bytes
	defer over()
	quota.Go(func() { s.set.Quota.Serve(quotaCtx) })
	var all sync.WaitGroup
	for _, ln := range listeners {
		stop := context.AfterFunc(ctx, func() { ln.Close() })
		all.Go(func() {
			defer stop()
			if err := s.accept(ctx, ln); err != nil {
				cancel(err)
			}
		})
	}
	all.Go(func() { s.closeOnStop(ctx, listeners) })
	all.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errStopping) {
		return err
	}
	return nil
}

var errStopping = errors.New("the proxy is stopping")

// accept serves one listener. It returns when its connections have ended.
func (s *Server) accept(ctx context.Context, ln *net.TCPListener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	err := accept.Each(ctx, s.log, ln.Addr(), ln.AcceptTCP, func(c *net.TCPConn) {
		s.count.accept()
		conns.Go(func() { s.serveConn(ctx, c) })
	})
	if err != nil && !s.stopped() {
		return fmt.Errorf("proxy %s: accepting on %v: %w", s.set.Name, ln.Addr(), err)
	}
	return nil
}
