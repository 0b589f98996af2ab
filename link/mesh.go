package link

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	// handshakeTimeout bounds everything between a carrier and its link: a few round trips, and the
	// peer's decision, which takes at most patience.
	handshakeTimeout = 10 * time.Second
	// answerTimeout is the same for a carrier that the peer dialled. It is longer because this end
	// may have the carrier first: the dialler's helper waits up to half a second for a better one.
	// If this end gave up first, the dialler would find the carrier closed, and not learn that
	// nothing arrives on it, of which the size of the packets may be the cause (hedge.go).
	answerTimeout = handshakeTimeout + 2*time.Second
	// patience is how long a carrier of the higher rank waits for the lower
	// rank's own dial: a plan's first technique may take seconds to time out,
	// while this carrier is ready.
	patience = 3 * time.Second
	// maxHandshakes bounds the incoming handshakes under way. At the bound no carrier is accepted
	// until one handshake is done; further carriers wait in the connector's queue.
	maxHandshakes = 64
	// maxDials bounds the attempts after a carrier broke during its handshake.
	maxDials = 5
)

// Config describes a mesh: its process, and what to do with its links.
type Config struct {
	Self      Identity
	Size      uint32 // ranks of the job
	Connector overlay.Connector

	// Patience is how long a link may be without a carrier before it is lost; 0 means
	// DefaultPatience.
	Patience time.Duration

	// Carriers is how many carriers a link to another node has, up to MaxForced; 0 lets each link
	// decide how many, up to MostCarriers (stripe.go), and 1 means one only. The end that dials
	// decides.
	Carriers int

	// Log, if not nil, gets a line for each other site and each cipher (or none) used for carriers
	// to it, and for each idle time after which carriers were found dead.
	Log *slog.Logger

	// Up is called once for each link, before Connect for its rank returns. It owns the link from
	// then on. It must not call the mesh.
	Up func(*Link)
}

// Mesh makes the links of one process with the others of its job, at most one for each, whichever
// end dials. It is safe for concurrent use.
type Mesh struct {
	cfg        Config
	reporter   overlay.TrafficReporter // nil: the connector takes no reports
	reserver   overlay.Reserver        // nil: the connector keeps no relays ready
	idleDeaths idleDeaths
	trials     trials
	lossy      carrier.LossyPaths
	hasAddress func(netip.Addr) bool // carrier.HasAddress, except in tests

	mu     sync.Mutex // guards the fields below and every attempt; never held while waiting
	serve  context.Context
	closed error
	pairs  map[uint32]*attempt
	links  map[uint32]*supervisor // handed up and not over
	ids    carrierID
	logged map[choice]bool // what was logged
	ended  []*supervisor   // links that are over and not yet reported
	work   sync.WaitGroup  // dials and handshakes
}

// NewMesh returns a mesh that makes no link until Serve is called.
func NewMesh(cfg Config) *Mesh {
	if cfg.Patience <= 0 {
		cfg.Patience = DefaultPatience
	}
	cfg.Carriers = min(cfg.Carriers, MaxForced)
	reporter, _ := cfg.Connector.(overlay.TrafficReporter)
	reserver, _ := cfg.Connector.(overlay.Reserver)
	return &Mesh{cfg: cfg, hasAddress: carrier.HasAddress, reporter: reporter, reserver: reserver, pairs: map[uint32]*attempt{}, links: map[uint32]*supervisor{}, logged: map[choice]bool{}}
}

// Serve accepts carriers from the connector and makes links of them until outer is done, when it
// returns nil, or until the connector fails. When it returns, every dial and handshake has ended,
// and a connector that is an overlay.TrafficReporter has received what each link moved: close the
// connector afterwards. Call Serve once; Connect waits for it.
func (m *Mesh) Serve(outer context.Context) error {
	ctx, cancel := context.WithCancel(outer)
	m.mu.Lock()
	m.serve = ctx
	for _, a := range m.pairs { // requested before Serve was called
		if a.dialling && a.cancelDial == nil {
			m.startDial(a)
		}
	}
	m.mu.Unlock()
	m.work.Go(func() { m.watch(ctx) })
	err := m.accept(ctx)
	if outer.Err() != nil { // the connector may notice it before ctx ends
		err = nil
	}
	cancel()
	m.shut(err)
	m.endLinks()
	m.work.Wait()
	m.report(time.Now())
	return err
}

// shut ends every attempt.
func (m *Mesh) shut(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = errClosed
	if cause != nil {
		m.closed = fmt.Errorf("link: %w", cause)
	}
	for _, a := range m.pairs {
		if a.err == nil {
			a.err = m.closed
		}
		m.step(a, event{kind: evClose})
	}
}

// Connect returns nil once Up was called with the link to rank; it makes the link if need be. When
// it fails, the next Connect tries again. It ends with ctx; what it started may still succeed.
func (m *Mesh) Connect(ctx context.Context, rank uint32) error {
	if rank >= m.cfg.Size || rank == m.cfg.Self.Process.Rank {
		return fmt.Errorf("link: rank %d of %d has no link with rank %d", m.cfg.Self.Process.Rank, m.cfg.Size, rank)
	}
	m.mu.Lock()
	if m.closed != nil {
		m.mu.Unlock()
		return m.closed
	}
	a := m.attemptFor(rank)
	if a.handed {
		m.mu.Unlock()
		return nil
	}
	settled := a.settled
	m.step(a, event{kind: evWant})
	m.mu.Unlock()
	select {
	case <-settled:
	case <-ctx.Done():
		return m.unsettled(a, ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.handed {
		return nil
	}
	return a.err
}

// unsettled is the error of a Connect whose context ended while the pair still tried: why the
// latest carrier broke tells more than that time is up.
func (m *Mesh) unsettled(a *attempt, over error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.broke == nil {
		return fmt.Errorf("link to rank %d: %w: nothing has failed; the dial, or the peer's, was under way", a.rank, over)
	}
	return fmt.Errorf("link to rank %d: %w: tried again after %v", a.rank, over, a.broke)
}

// Forget discards the state of a rank whose link is over: for a mesh that outlives very many peers,
// none of which returns.
func (m *Mesh) Forget(rank uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.pairs[rank]; a != nil && a.handed && len(a.verdicts) == 0 {
		delete(m.pairs, rank)
	}
}
