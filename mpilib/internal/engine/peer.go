package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/wire"
)

// peer is another rank of the world as this one sees it. Everything is guarded
// by the engine's lock, but what the holder of a token owns.
//
// Its life: no link -> (first message, or the peer dials) link -> failed, or
// gone after the peer's goodbye. Neither end leads back.
type peer struct {
	e    *Engine
	rank int

	link       *link.Link // nil before
	shm        sharedMemory
	connecting bool
	expected   bool  // the owner waits for its notes
	failed     error // why nothing can be sent or received any more
	gone       bool  // it said goodbye: nothing more will come

	reading  reading
	in       incoming // of whoever holds the reading token
	writing  writing
	out      outgoing // what is to be written; its taken is of whoever holds the writing token
	sends    sends
	arrivals arrivals
	parting  parting

	notes, noteBytes int // that the owner was not told of yet

	stats Traffic
}

// reading says who reads the peer's link; see package comment.
type reading struct {
	busy        bool          // somebody holds the token, and owns peer.in
	forRequest  *Request      // for whose waiter, or nil
	blocked     bool          // and waits for the link
	attended    bool          // it is the peer's own goroutine, and stays
	count, seen uint64        // how often the token was taken; as checkIdle saw it last
	waiters     int           // who sleep until a request is complete or the token is free
	token       chan struct{} // tells one of them that it is
	wake        chan struct{} // tells the peer's goroutine to take it
	ctx         watched       // of the waiter who reads
	interrupted bool          // see wasInterrupted
}

// writing says who writes to the peer's link.
type writing struct {
	busy        bool          // somebody holds the token, and owns what it took
	byWriter    bool          // it is the peer's own goroutine
	count, seen uint64        // how often the token was taken; as checkIdle saw it last
	waiters     int           // who sleep until the token is theirs
	token       chan struct{} // tells one of them that it is
	wake        chan struct{} // tells the peer's goroutine to take it
	ctx         watched       // of the waiter who writes
	interrupted bool          // see wasInterrupted
}

// sends is what was sent to the peer and is not over. It is about the protocol alone, and
// knows nothing of how bytes get to the peer.
type sends struct {
	credit       int                 // bytes that may be sent eagerly
	maxCredit    int                 // that it has been
	eagerSize    int                 // see eagerLimit
	eagerQueries int                 // how often that was asked for
	head         int                 // of a large message, may go eagerly; 0 if the latest was not waited for
	pending      map[uint32]*Request // announced by an RTS, or synchronous: until taken or withdrawn
	nextID       uint32
	backlog      []*Request // not even announced, for too many are
}

// arrivals is what came from the peer and is not over: it, too, is about the protocol alone.
type arrivals struct {
	kept      map[uint32]*message  // unmatched, of those that have an id
	moving    map[uint32]*transfer // matched RTSs
	grant     grant
	ahead     int    // contexts that only the peer's messages have made
	envelopes uint32 // how many came, for checkReplies
}

// parting is how far the goodbye is.
type parting struct {
	done   chan struct{} // closed when the peer has read all that was sent, or there is no one to read it
	isDone bool          // done is closed
	byPeer bool          // the peer said so before the link ended
}

// Traffic counts messages and their bytes, envelopes not included.
type Traffic struct {
	MessagesSent, BytesSent         uint64
	MessagesReceived, BytesReceived uint64
}

// firstCredit is what may be sent before the peer has granted any.
const firstCredit = 64 << 10

func newPeer(e *Engine, rank int) *peer {
	return &peer{
		e: e, rank: rank,
		reading:  reading{token: make(chan struct{}, 1), wake: make(chan struct{}, 1)},
		writing:  writing{token: make(chan struct{}, 1), wake: make(chan struct{}, 1)},
		sends:    sends{credit: firstCredit, maxCredit: e.cfg.Unexpected, pending: map[uint32]*Request{}},
		arrivals: arrivals{kept: map[uint32]*message{}, moving: map[uint32]*transfer{}, grant: newGrant(e.cfg.Unexpected, e.cfg.MaxUnexpected)},
		parting:  parting{done: make(chan struct{})},
	}
}

// attach gives the peer its link. mu is held.
func (p *peer) attach(l *link.Link) {
	p.link = l
	p.in.buf = make([]byte, readBuffer)
	p.resize()
	p.giveCredit()
	p.sendHistory()
	wake(p.reading.wake)
	wake(p.writing.wake)
	p.e.work.Go(p.reader)
	p.e.work.Go(p.writer)
	p.startSharing()
}

// wantLink starts to connect, once. mu is held.
func (p *peer) wantLink() {
	if p.link != nil || p.connecting {
		return
	}
	p.connecting = true
	p.e.work.Go(func() {
		if err := p.e.cfg.Connect(p.e.ctx, p.rank); err != nil {
			p.e.mu.Lock()
			defer p.e.mu.Unlock()
			p.connectFailed(err)
		}
	})
}

func (p *peer) goodbyeError() error {
	return fmt.Errorf("rank %d of the world: %w", p.rank, ErrFinalized)
}

// fail ends the peer: everything that needs it gets err. mu is held.
func (p *peer) fail(err error) {
	if p.failed != nil {
		return
	}
	if p.gone {
		// Its end of the link closes after its goodbye: that is no failure, but
		// what was still to be sent finds no one.
		p.failed = p.goodbyeError()
	} else {
		p.failed = err
	}
	p.out.fail(p.failed)
	for _, r := range p.sends.backlog {
		r.finish(p.failed)
	}
	for id, r := range p.sends.pending {
		delete(p.sends.pending, id)
		if r.state != moving { // else whoever moves it ends it
			r.finish(p.failed)
		}
	}
	p.sends.backlog = nil
	p.abandonCopies()
	for id, f := range p.arrivals.moving {
		delete(p.arrivals.moving, id)
		if f.r != nil && f.r != p.in.request && !f.copying {
			f.r.finish(p.failed)
		}
	}
	if r := p.in.request; r != nil && !p.reading.busy { // else whoever reads ends it
		p.in.request, p.in.into = nil, nil
		r.finish(p.failed)
	}
	p.confirm()
	if p.link != nil {
		p.link.Conn.Close()
	}
	wake(p.writing.wake)
	wake(p.reading.wake)
	wake(p.reading.token)
	if p.shm.open {
		p.e.rings.remove(p)
	}
	p.e.extraCredit += p.arrivals.grant.end()
	p.e.failReceives(p, p.failed)
	if p.e.closed == nil && !p.gone && errors.Is(err, ErrProcFailed) {
		p.e.announceFailure(p)
	}
	p.e.announceLost(p.rank)
}

// goodbyeReceived notes the peer's goodbye: it neither sends nor receives any more. mu is held.
func (p *peer) goodbyeReceived() {
	p.gone = true
	p.e.extraCredit += p.arrivals.grant.end()
	for _, r := range p.sends.backlog {
		r.finish(p.goodbyeError())
	}
	p.sends.backlog = nil
	for id, r := range p.sends.pending {
		delete(p.sends.pending, id)
		if r.state == moving {
			r.ended = true
			if r.giveUp == nil {
				r.giveUp = p.goodbyeError()
			}
			continue
		}
		p.out.remove(r)
		r.finish(p.goodbyeError())
	}
	p.e.failReceives(p, p.goodbyeError())
	p.e.announceLost(p.rank)
}

func (p *peer) confirm() {
	if !p.parting.isDone {
		p.parting.isDone = true
		close(p.parting.done)
	}
}

// linkError describes the end of the peer's link.
func (p *peer) linkError(doing string, cause error) error {
	l := p.link
	where := ""
	if l.Path.Peer.Name != "" {
		where = " on " + l.Path.Peer.String()
	}
	return fmt.Errorf("rank %d of the world%s: %w: the link (%v) broke while %s: %w",
		p.rank, where, ErrProcFailed, l.Path, doing, l.Explain(cause))
}

var past = time.Unix(1, 0)

// interruptRead has whoever reads the link look around. mu is held.
func (p *peer) interruptRead() {
	if p.link != nil {
		p.reading.interrupted = true
		p.link.Conn.SetReadDeadline(past)
	}
}

// interruptWrite has whoever writes to the link look around. mu is held.
func (p *peer) interruptWrite() {
	if p.link != nil {
		p.writing.interrupted = true
		p.link.Conn.SetWriteDeadline(past)
	}
}

// wasInterrupted reports whether the end of a read, or write, is due to an interrupt of
// the engine's own, and withdraws that interrupt. The flag decides and not the error
// alone: a link that is lost for good may say that something timed out, too, and to
// go on reading it would never end. mu is held.
func wasInterrupted(flag *bool, err error, setDeadline func(time.Time) error) bool {
	if !*flag {
		return false
	}
	*flag = false
	setDeadline(time.Time{})
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// watched is the context whose end interrupts whoever reads, or writes, for a
// request. It outlives the request, since the next one has the same, mostly; one
// that is stale interrupts for nothing.
type watched struct {
	ctx  context.Context
	stop func() bool
}

// watch has interrupt called, with mu held, when ctx is done. mu is held.
func (w *watched) watch(e *Engine, ctx context.Context, interrupt func()) {
	if w.ctx == ctx {
		return
	}
	if w.stop != nil {
		w.stop()
	}
	*w = watched{ctx: ctx}
	if ctx.Done() != nil {
		w.stop = context.AfterFunc(ctx, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			interrupt()
		})
	}
}

func (w *watched) end() {
	if w.stop != nil {
		w.stop()
	}
	*w = watched{}
}

// LinkState is a peer's link and what went over it.
type LinkState struct {
	Rank   int
	Link   *link.Link
	Shared bool  // messages go through shared memory, in both directions
	Reason error // why they do not, between processes of one node
	Traffic
}

// Links returns those there are, by rank.
func (e *Engine) Links() []LinkState {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []LinkState
	for _, p := range e.peers {
		if p != nil && p.link != nil {
			all = append(all, LinkState{Rank: p.rank, Link: p.link, Shared: p.shm.open && p.out.viaShm, Reason: p.shm.reason, Traffic: p.stats})
		}
	}
	return all
}

// Goodbye makes sure that every peer has read what was sent to it: the goodbye
// goes behind the last message of each link, and the peer's engine confirms it by
// itself. A peer without a link to which messages wait is waited for, too. After it
// nothing can be started, and what waits for a message has failed.
func (e *Engine) Goodbye(ctx context.Context) error {
	e.mu.Lock()
	if e.closed != nil {
		e.mu.Unlock()
		return nil
	}
	e.closed = fmt.Errorf("rank %d: %w", e.cfg.Rank, ErrFinalized)
	e.abandonReceives()
	e.drain(ctx)
	var open []*peer
	for _, p := range e.peers {
		if p == nil || p.failed != nil || p.link == nil && !p.out.any() && len(p.sends.backlog) == 0 {
			continue // there is nobody to part from
		}
		open = append(open, p)
		if !p.gone {
			p.queueControl(wire.Envelope{Kind: wire.EnvelopeGoodbye})
			wake(p.writing.wake)
		}
	}
	e.serveRings()
	e.mu.Unlock()

	var errs []error
	var silent []int
	for _, p := range open {
		select {
		case <-p.parting.done:
		case <-ctx.Done():
		}
		parted, err := p.goodbyeDone()
		switch {
		case !parted:
			silent = append(silent, p.rank)
		case err != nil:
			errs = append(errs, err)
		}
	}
	if len(silent) > 0 {
		errs = append(errs, fmt.Errorf("%s not confirmed that everything was read: %w", describeRanks(silent), ctx.Err()))
	}
	return errors.Join(errs...)
}

// describeRanks names ranks, but not hundreds of them.
func describeRanks(ranks []int) string {
	const most = 8
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0]) + " has"
	}
	var b strings.Builder
	b.WriteString("ranks ")
	for i, r := range ranks[:min(most, len(ranks))] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, r)
	}
	if more := len(ranks) - most; more > 0 {
		fmt.Fprintf(&b, " and %d others", more)
	}
	return b.String() + " have"
}

// drain waits until every message that was announced is taken, or nobody will take
// it: those of buffered sends are complete before they are. mu is held, and given
// up meanwhile.
func (e *Engine) drain(ctx context.Context) {
	e.wakeReaders()
	e.serveRings()
	for ctx.Err() == nil && slices.ContainsFunc(e.peers, (*peer).hasPendingSends) {
		arrived := e.arrived
		e.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
}

// hasPendingSends reports whether messages wait for a CTS, or are to be announced.
func (p *peer) hasPendingSends() bool {
	return p != nil && p.failed == nil && !p.gone && len(p.sends.pending)+len(p.sends.backlog) > 0
}

// goodbyeDone reports whether the peer has answered the goodbye, or cannot any more, and
// what went wrong with it.
func (p *peer) goodbyeDone() (bool, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if p.parting.isDone && p.failed != nil && !p.gone && !p.parting.byPeer {
		return true, p.failed
	}
	return p.parting.isDone || p.gone, nil
}

// Close ends every link and goroutine of the engine and returns when they are
// gone. Requests that are not complete fail.
func (e *Engine) Close() {
	e.cancel()
	e.mu.Lock()
	if e.closed == nil {
		e.closed = fmt.Errorf("rank %d: %w", e.cfg.Rank, ErrFinalized)
	}
	e.abandonReceives()
	for _, p := range e.peers {
		if p != nil {
			p.fail(e.closed)
			p.reading.ctx.end()
			p.writing.ctx.end()
		}
	}
	e.requestSweep()
	e.mu.Unlock()
	e.work.Wait()
	e.unmap()
	for _, p := range e.peers {
		if p == nil || p.link == nil {
			continue
		}
		if done := p.link.Done(); done != nil {
			<-done // bounded by the link
		}
	}
}
