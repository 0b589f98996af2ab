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

	// Reading; see package comment.
	reading   bool          // somebody holds the token, and owns in
	readFor   *Request      // for whose waiter, or nil
	blocked   bool          // and waits for the link
	attended  bool          // it is the peer's own goroutine, and stays
	reads     uint64        // how often the token was taken
	readsSeen uint64        // as checkIdle saw it last
	waiters   int           // who sleep until a request is complete or the token is free
	readToken chan struct{} // tells one of them that it is
	toReader  chan struct{} // tells the peer's goroutine to take it
	in        incoming
	readCtx   watched

	readInterrupted  bool // see wasInterrupted
	writeInterrupted bool

	// Writing.
	writing      bool          // somebody holds the token, and owns what it took
	writerWrites bool          // it is the peer's own goroutine
	writes       uint64        // how often the token was taken
	writesSeen   uint64        // as checkIdle saw it last
	sendWaiters  int           // who sleep until the token is theirs
	writeToken   chan struct{} // tells one of them that it is
	out          outgoing
	toWriter     chan struct{}
	writeCtx     watched

	// What was sent and is not over.
	credit       int                 // bytes that may be sent eagerly
	maxCredit    int                 // that it has been
	eagerSize    int                 // see eagerLimit
	eagerQueries int                 // how often that was asked for
	head         int                 // of a large message, may go eagerly; 0 if the latest was not waited for
	pendingSends map[uint32]*Request // announced by an RTS, or synchronous: until taken or withdrawn
	nextID       uint32
	backlog      []*Request // not even announced, for too many are

	// What came and is not over.
	kept      map[uint32]*message  // unmatched, of those that have an id
	arriving  map[uint32]*transfer // matched RTSs
	grant     grant
	ahead     int    // contexts that only its messages have made
	envelopes uint32 // envelopes, for now and then

	confirmed      chan struct{} // closed when it has read all we sent, or there is no one to read it
	isClosed       bool          // confirmed is
	confirmedFirst bool          // it was by the peer, before the link ended

	notes, noteBytes int // that the owner was not told of yet

	stats Traffic
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
		e: e, rank: rank, credit: firstCredit, maxCredit: e.cfg.Unexpected, grant: newGrant(e.cfg.Unexpected, e.cfg.MaxUnexpected),
		readToken: make(chan struct{}, 1), toReader: make(chan struct{}, 1), toWriter: make(chan struct{}, 1), writeToken: make(chan struct{}, 1),
		pendingSends: map[uint32]*Request{}, kept: map[uint32]*message{}, arriving: map[uint32]*transfer{},
		confirmed: make(chan struct{}),
	}
}

// attach gives the peer its link. mu is held.
func (p *peer) attach(l *link.Link) {
	p.link = l
	p.in.buf = make([]byte, readBuffer)
	p.resize()
	p.giveCredit()
	p.sendHistory()
	wake(p.toReader)
	wake(p.toWriter)
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
	for _, r := range p.backlog {
		r.finish(p.failed)
	}
	for id, r := range p.pendingSends {
		delete(p.pendingSends, id)
		if r.state != moving { // else whoever moves it ends it
			r.finish(p.failed)
		}
	}
	p.backlog = nil
	p.abandonCopies()
	for id, f := range p.arriving {
		delete(p.arriving, id)
		if f.r != nil && f.r != p.in.request && !f.copying {
			f.r.finish(p.failed)
		}
	}
	if r := p.in.request; r != nil && !p.reading { // else whoever reads ends it
		p.in.request, p.in.into = nil, nil
		r.finish(p.failed)
	}
	p.confirm()
	if p.link != nil {
		p.link.Conn.Close()
	}
	wake(p.toWriter)
	wake(p.toReader)
	wake(p.readToken)
	if p.shm.open {
		p.e.rings.remove(p)
	}
	p.e.extraCredit += p.grant.end()
	p.e.failReceives(p, p.failed)
	if p.e.closed == nil && !p.gone && errors.Is(err, ErrProcFailed) {
		p.e.announceFailure(p)
	}
	p.e.announceLost(p.rank)
}

// goodbyeReceived notes the peer's goodbye: it neither sends nor receives any more. mu is held.
func (p *peer) goodbyeReceived() {
	p.gone = true
	p.e.extraCredit += p.grant.end()
	for _, r := range p.backlog {
		r.finish(p.goodbyeError())
	}
	p.backlog = nil
	for id, r := range p.pendingSends {
		delete(p.pendingSends, id)
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
	if !p.isClosed {
		p.isClosed = true
		close(p.confirmed)
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
		p.readInterrupted = true
		p.link.Conn.SetReadDeadline(past)
	}
}

// interruptWrite has whoever writes to the link look around. mu is held.
func (p *peer) interruptWrite() {
	if p.link != nil {
		p.writeInterrupted = true
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
		if p == nil || p.failed != nil || p.link == nil && !p.out.any() && len(p.backlog) == 0 {
			continue // there is nobody to part from
		}
		open = append(open, p)
		if !p.gone {
			p.queueControl(wire.Envelope{Kind: wire.EnvelopeGoodbye})
			wake(p.toWriter)
		}
	}
	e.serveRings()
	e.mu.Unlock()

	var errs []error
	var silent []int
	for _, p := range open {
		select {
		case <-p.confirmed:
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
	return p != nil && p.failed == nil && !p.gone && len(p.pendingSends)+len(p.backlog) > 0
}

// goodbyeDone reports whether the peer has answered the goodbye, or cannot any more, and
// what went wrong with it.
func (p *peer) goodbyeDone() (bool, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if p.isClosed && p.failed != nil && !p.gone && !p.confirmedFirst {
		return true, p.failed
	}
	return p.isClosed || p.gone, nil
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
			p.readCtx.end()
			p.writeCtx.end()
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
