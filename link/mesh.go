package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// handshakeTimeout bounds everything between a carrier and its link: a few round trips, and the
	// peer's decision, which takes at most patience.
	handshakeTimeout = 10 * time.Second
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

// attempt carries out the decisions of a pair.
type attempt struct {
	pair
	rank       uint32
	cancelDial context.CancelFunc
	held       chan error               // carries the pair's verdict to a dial that waits for it
	verdicts   map[carrierID]chan error // of incoming carriers that wait for them
	asked      map[carrierID]wire.ID    // link ids of incoming carriers whose handshakes are under way
	settled    chan struct{}            // closed when the link was handed up, or err says why not
	handed     bool
	refused    bool  // the peer answered the dial under way that it has a link
	err        error // of the last dial
}

// NewMesh returns a mesh that makes no link until Serve is called.
func NewMesh(cfg Config) *Mesh {
	if cfg.Patience <= 0 {
		cfg.Patience = DefaultPatience
	}
	cfg.Carriers = min(cfg.Carriers, MaxForced)
	reporter, _ := cfg.Connector.(overlay.TrafficReporter)
	reserver, _ := cfg.Connector.(overlay.Reserver)
	return &Mesh{cfg: cfg, reporter: reporter, reserver: reserver, pairs: map[uint32]*attempt{}, links: map[uint32]*supervisor{}, logged: map[choice]bool{}}
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

func (m *Mesh) accept(ctx context.Context) error {
	slots := make(chan struct{}, maxHandshakes)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := m.cfg.Connector.Accept(ctx)
		if err != nil {
			return err
		}
		m.work.Go(func() {
			m.answer(ctx, c)
			<-slots
		})
	}
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

// attemptFor returns the rank's attempt, and makes it if need be. mu is held.
func (m *Mesh) attemptFor(rank uint32) *attempt {
	a := m.pairs[rank]
	if a == nil {
		a = &attempt{rank: rank, verdicts: map[carrierID]chan error{}, asked: map[carrierID]wire.ID{}, settled: make(chan struct{})}
		a.lower = m.cfg.Self.Process.Rank < rank
		m.pairs[rank] = a
	}
	return a
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
		return fmt.Errorf("link to rank %d: %w", rank, ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.handed {
		return nil
	}
	return a.err
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

// step feeds the pair an event and carries out its actions, except those for the event's own
// carrier, whose verdict is returned; nil means go on. mu is held.
func (m *Mesh) step(a *attempt, e event) (verdict error) {
	var acts []action
	a.pair, acts = a.pair.step(e)
	for _, act := range acts {
		switch act.kind {
		case actDial:
			if m.serve != nil {
				m.startDial(a)
			}
		case actCancelDial:
			if a.cancelDial != nil {
				a.cancelDial()
			}
		case actHold:
			a.held = make(chan error, 1)
		case actChooseDial:
			a.held <- nil
		case actGrant:
			a.decide(act.id, nil)
		case actRefuse:
			a.decide(act.id, act.err)
		case actPark:
			wait := patience
			if a.refused { // it belongs to the link that the peer reported, so our dial will not succeed
				wait = 0
			}
			time.AfterFunc(wait, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.step(a, event{kind: evPatience, id: act.id})
			})
		case actDrop:
			verdict = act.err
		case actFail:
			a.finish()
		}
	}
	return verdict
}

// decide delivers the verdict to an incoming carrier's handshake. A carrier that was granted before
// no longer waits for one, and detects its end by itself.
func (a *attempt) decide(id carrierID, err error) {
	if c, ok := a.verdicts[id]; ok {
		delete(a.verdicts, id)
		c <- err // buffered for one
	}
}

// finish makes pending Connects look at handed and err.
func (a *attempt) finish() {
	close(a.settled)
	a.settled = make(chan struct{})
}

// handUp passes the link to its owner.
func (m *Mesh) handUp(a *attempt, l *Link) {
	l.up.Store(true)
	m.cfg.Up(l)
	m.mu.Lock()
	defer m.mu.Unlock()
	a.handed = true
	a.finish()
}

// lasting makes a link that is kept from a handshake.
func (m *Mesh) lasting(c overlay.Carrier, h met, dialled bool) (*Link, error) {
	m.logChoice(c)
	sv := m.supervise(c, h, dialled)
	_, err := sv.attach(c, h)
	return sv.link, err
}

// carrierless makes a link from a handshake whose carrier broke with err after the pair had chosen
// it, and starts to look for another carrier.
func (m *Mesh) carrierless(c overlay.Carrier, h met, err error) (*Link, error) {
	sv := m.supervise(c, h, true)
	sv.note(fmt.Sprintf("%v: %v", c.Path, err))
	if err := sv.redial(false, false); err != nil {
		sv.link.stream.Fail(err)
	}
	return sv.link, nil
}

// serving reports whether the mesh still makes links.
func (m *Mesh) serving() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed == nil && m.serve != nil && m.serve.Err() == nil
}

// supervise makes a link that has a supervisor and no carrier yet.
func (m *Mesh) supervise(c overlay.Carrier, h met, dialled bool) *supervisor {
	l := newLink(c, h, dialled)
	l.fault = nil // the supervisor calls it
	here, there := c.Here.Site, c.Path.Peer.Site
	sv := &supervisor{mesh: m, link: l, born: time.Now(), account: account{since: time.Now()}, away: here != "" && there != "" && here != there}
	rank := l.Peer.Rank
	o := stream.Options{Lost: sv.lost, Silent: sv.silent, Late: sv.onLate, AskAfter: sv.askAfter, Acked: acked, Ended: func() { // lock order: stream, then mesh
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.links[rank] == sv {
			delete(m.links, rank)
		}
		if m.reporter != nil {
			m.ended = append(m.ended, sv)
		}
	}}
	if m.reporter != nil {
		o.Counts = func(a any) bool { return a.(*carrierInfo).path.Uncounted() }
	}
	if c.Path.Technique == 0 { // one node
		o.Silent, o.Late = nil, nil
	}
	l.begin(o)
	m.mu.Lock()
	m.links[rank] = sv
	m.mu.Unlock()
	return sv
}

// spawn runs f as work of the mesh, with the context of Serve. It returns false if the mesh is
// closed.
func (m *Mesh) spawn(f func(context.Context)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed != nil || m.serve == nil || m.serve.Err() != nil {
		return false
	}
	ctx := m.serve
	m.work.Go(func() { f(ctx) })
	return true
}

// watch services all links until ctx ends.
func (m *Mesh) watch(ctx context.Context) {
	t := time.NewTicker(stream.Tick)
	defer t.Stop()
	for {
		var now time.Time
		select {
		case now = <-t.C:
		case <-ctx.Done():
			return
		}
		kept := m.kept()
		for _, sv := range kept {
			sv.link.stream.Watch()
			sv.tick(now)
			sv.reserve(now, len(kept))
		}
		m.report(now)
	}
}

func (m *Mesh) kept() []*supervisor {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := make([]*supervisor, 0, len(m.links))
	for _, sv := range m.links {
		kept = append(kept, sv)
	}
	return kept
}

// endLinks ends the remaining links and waits until they have ended.
func (m *Mesh) endLinks() {
	var all sync.WaitGroup
	for _, sv := range m.kept() {
		all.Go(func() {
			sv.link.stream.Leave(fmt.Sprintf("rank %d leaves the job", m.cfg.Self.Process.Rank))
			sv.link.stream.Wait()
		})
	}
	all.Wait()
}

// answer makes a link of an incoming carrier, if its pair accepts it.
func (m *Mesh) answer(ctx context.Context, c overlay.Carrier) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	var a *attempt
	var id carrierID
	var sv *supervisor
	c, got, err := runHandshake(ctx, c, m.cfg.Self, nil, terms{admit: func(h *wire.Hello) (uint64, error) {
		if h.From >= m.cfg.Size {
			return 0, fmt.Errorf("%w: rank %d of a job of %d", overlay.ErrForbidden, h.From, m.cfg.Size)
		}
		if sv = m.supervisorOf(h); sv != nil {
			return sv.admit(h)
		}
		m.markDoubtful(h.From)
		if h.Again {
			return 0, fmt.Errorf("%w: rank %d has no such link with rank %d", overlay.ErrStale, m.cfg.Self.Process.Rank, h.From)
		}
		var verdict chan error
		a, id, verdict = m.incoming(h)
		select {
		case err := <-verdict:
			return 0, err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}})
	if sv != nil && err == nil {
		m.logChoice(c)
		sv.attach(c, got) // on error the link is over
		return
	}
	if a == nil {
		return // the peer never identified itself; its dialler knows why
	}
	m.mu.Lock()
	delete(a.verdicts, id)
	delete(a.asked, id)
	if err != nil {
		m.step(a, event{kind: evGone, id: id})
		m.step(a, event{kind: evGrantFailed, id: id})
		m.mu.Unlock()
		return
	}
	if a.granting != 0 && a.asked[a.granting] == got.link {
		a.granting = id // both carriers were dialled for one link, and a proof on either counts
	}
	dropped := m.step(a, event{kind: evGranted, id: id, life: got.hello.Generation})
	m.mu.Unlock()
	if dropped == nil {
		m.begin(a, c, got)
		return
	}
	// This carrier was too late. Its dialler may have dialled once more for the same link, and then
	// has both carriers.
	if sv := m.supervisorOf(got.hello); sv != nil {
		sv.attach(c, got)
		return
	}
	c.Conn.Close()
}

// begin makes the link of an incoming carrier that the pair has chosen.
func (m *Mesh) begin(a *attempt, c overlay.Carrier, got met) {
	l, err := m.lasting(c, got, false)
	if err == nil {
		m.handUp(a, l)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a.err = err
	m.step(a, event{kind: evLost})
}

// supervisorOf returns the supervisor of the link that a carrier belongs to, or nil. A dialler that
// has received nothing on its link yet cannot tell whether the link exists here, and sends a Hello
// without Again.
func (m *Mesh) supervisorOf(h *wire.Hello) *supervisor {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sv := m.links[h.From]; sv != nil && sv.link.id == h.Link {
		return sv
	}
	return nil
}

// doubtAfter is the age of a link without received data from which a dial by the peer casts doubt
// on it: when two ends dial at the same time, each receives the other's dial when it has a link
// already.
const doubtAfter = time.Second

// markDoubtful makes the link with a rank look for another carrier if nothing has arrived on it
// yet: the peer wants a link and does not have this one.
func (m *Mesh) markDoubtful(rank uint32) {
	m.mu.Lock()
	sv := m.links[rank]
	m.mu.Unlock()
	if sv != nil && sv.link.Dialled && sv.link.Path.Technique != 0 && time.Since(sv.born) > doubtAfter && !sv.link.stream.Met() {
		sv.redialLater()
	}
}

// incoming submits a carrier whose peer sent h to the pair.
func (m *Mesh) incoming(h *wire.Hello) (*attempt, carrierID, chan error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	verdict := make(chan error, 1)
	if m.closed != nil {
		verdict <- fmt.Errorf("%w: this process is leaving", overlay.ErrRefused)
		return nil, 0, verdict
	}
	a := m.attemptFor(h.From)
	if a.granting != 0 && a.asked[a.granting] == h.Link {
		// The dialler dials again for the same link, so the granted carrier has failed.
		m.step(a, event{kind: evGrantFailed, id: a.granting})
	}
	m.ids++
	a.verdicts[m.ids] = verdict
	a.asked[m.ids] = h.Link
	m.step(a, event{kind: evIncoming, id: m.ids, life: h.Generation})
	return a, m.ids, verdict
}

// startDial starts the pair's own dial. mu is held.
func (m *Mesh) startDial(a *attempt) {
	ctx, cancel := context.WithCancel(m.serve)
	a.cancelDial, a.refused = cancel, false
	m.work.Go(func() {
		defer cancel()
		m.dial(ctx, a)
	})
}

func (m *Mesh) dial(ctx context.Context, a *attempt) {
	l, err := m.tryDial(ctx, a)
	if err == nil {
		m.handUp(a, l)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() == nil || a.err == nil {
		a.err = err
	}
	switch {
	case l != nil: // this end had committed itself
		m.step(a, event{kind: evLost})
	case ctx.Err() == nil || m.serve.Err() != nil: // otherwise it was cancelled, and the pair has gone on
		m.step(a, event{kind: evDialFailed})
	}
}

// tryDial dials until a carrier survives its handshake. A link returned with an error means that
// the pair had chosen the carrier when it broke.
func (m *Mesh) tryDial(ctx context.Context, a *attempt) (*Link, error) {
	peer := overlay.ProcessName{Job: m.cfg.Self.Process.Job, Rank: a.rank}
	pause := firstPause
	var id wire.ID
	rand.Read(id[:])      // never fails (crypto/rand). One id for all attempts: by it the peer knows that the previous one failed
	var refused time.Time // when the peer first reported that it has a link
	for try := 1; ; try++ {
		c, err := m.cfg.Connector.Dial(ctx, peer, overlay.AllWays)
		if err != nil {
			return nil, err
		}
		r := m.hedge(ctx, a, peer, id, c)
		switch {
		case r.err == nil:
			return r.link, nil
		case r.chosen:
			return new(Link), r.err
		case ctx.Err() != nil || final(r.err):
			return nil, r.err
		case errors.Is(r.err, overlay.ErrDuplicate):
			// The peer has a link that this end does not have: the peer does not know yet that the
			// first carrier ended. When it does, it dials for that link again, and that dial
			// counts; or it gives the link up in the end.
			if refused.IsZero() {
				refused, pause = time.Now(), duplicatePause
			}
			if m.parks(ctx, a) || time.Since(refused) > m.cfg.Patience {
				return nil, r.err
			}
			try = 0
		case try == maxDials:
			return nil, r.err
		}
		rest := time.NewTimer(pause)
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return nil, r.err
		}
		pause = min(4*pause, lastPause)
	}
}

// The pauses between dials that broke in their handshakes: they grow fourfold, and start from
// duplicatePause when the peer reports that it has a link.
const (
	firstPause     = 20 * time.Millisecond
	lastPause      = 1280 * time.Millisecond
	duplicatePause = 320 * time.Millisecond
)

// parks records that the peer answered the pair's own dial that it has a link, and reports whether
// an incoming carrier waits for that dial. From now on, incoming carriers need not wait for it.
func (m *Mesh) parks(ctx context.Context, a *attempt) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() == nil { // otherwise another dial may be under way
		a.refused = true
	}
	return a.parked != 0
}

// ready asks the pair whether its dial, which has the peer's proof, becomes the link. It blocks
// while the pair has not decided.
func (m *Mesh) ready(ctx context.Context, a *attempt, life overlay.Generation) error {
	m.mu.Lock()
	if ctx.Err() != nil { // cancelled; a later dial may be under way
		m.mu.Unlock()
		return errKept
	}
	a.held = nil
	err := m.step(a, event{kind: evReady, life: life})
	held := a.held
	m.mu.Unlock()
	if held == nil {
		return err
	}
	select {
	case err := <-held:
		return err
	case <-ctx.Done():
	}
	m.mu.Lock() // the verdict may have arrived at the same time
	defer m.mu.Unlock()
	select {
	case err := <-held:
		return err
	default:
		return errKept
	}
}

// final reports whether another carrier would meet the same refusal.
func final(err error) bool {
	for _, class := range []error{overlay.ErrForbidden, overlay.ErrStale, overlay.ErrRefused, wire.ErrVersion, wire.ErrMalformed, wire.ErrType} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}
