// Package protocol decides what the engine does with messages: which receive a message
// matches, how much may be sent eagerly and how much is sent by rendezvous, what waits for
// what, and what the loss of a peer or a cancellation ends. It knows envelopes, requests and
// numbers of bytes; it refuses to know links, rings, locks, clocks and goroutines, and never
// waits. The time, the round-trip time and the rate of a path are arguments of its functions.
//
// One Core is the state of a process, with a Peer for each other process and a Request for
// each send and receive. The caller, which holds the engine's lock, calls it with what the program
// starts (Send, Receive, CancelSend, ...) and with each envelope of a peer (EagerReceived, RTSReceived,
// ...). Where bytes follow an envelope, Peer.In says where they go, and Arrived is called after the last.
// What is to be done in consequence is a list of effects, see Effect. Most messages cause no
// effects: CanSendNow permits the send, EagerReceived says where the bytes go, and Arrived which
// receive is complete.
//
// All state is in the Core, its Peers and the Requests, whose memory is the caller's.
package protocol

import (
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/match"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// MessageCost is charged for each message beside its bytes, so that a flood of
	// empty messages is bounded, too.
	MessageCost = 64
	// MaxPendingSends is how many sends may wait for a peer's CTS at a time.
	MaxPendingSends = 4096
	// maxCopied is up to how many bytes a Core copies itself; see the effect Copy.
	maxCopied = 64 << 10
	// maxSelf is from which size on a send to self waits for its receive.
	maxSelf = 16 << 10
	// maxAhead is in how many contexts that this process has not created yet a peer may have sent
	// something. A peer is ahead only in contexts that are being created, which needs this process
	// (MPI-4.1, section 7.4.2).
	maxAhead = 4096
	// MaxRevokedAhead is how many contexts are remembered as revoked that this process has not
	// created. Further revocations are ignored and not an error, since the peer that forwards them
	// need not have caused them.
	MaxRevokedAhead = 1 << 14
)

var (
	// ErrTruncate fails a receive whose message is longer than its buffer.
	ErrTruncate = errors.New("message is longer than the receive buffer")
	// ErrFinalized fails an operation after this process's end, or its peer's.
	ErrFinalized = errors.New("world is finalized")
	// ErrRevoked fails an operation in a revoked context.
	ErrRevoked = errors.New("communicator is revoked")
)

// Config is what does not change during the life of a Core.
type Config struct {
	Rank       int
	Ranks      int // process q is one of rank q % Ranks; 0: each process is its own rank
	Unexpected int // see FirstCredit; what each peer may have here in messages without a receive
	MaxCredit  int // how far that may grow

	// Replica decides from which process of a rank messages are taken; nil: ranks have one each. Its
	// effects are the caller's to carry out.
	Replica *replica.Process

	// Unallocated reports whether no process can have created a context yet; nil: none is such.
	Unallocated func(context uint32) bool
}

// Table is the matching state of a context.
type Table = match.Table[*Request, *Message]

// A Core is the protocol's state of a process.
type Core struct {
	cfg      Config
	closed   error // why no operation is started or matched any more; nil: the Core is open
	effects  []Effect
	peers    []*Peer // by process; nil for this one
	contexts map[uint32]*msgContext
	created  map[uint32]bool // contexts of this process's communicators
	latest   struct {        // the last context that contextOf returned
		id uint32
		c  *msgContext
	}
	arrivals    *arrivals // nil: ranks have one process each
	maxPending  int       // MaxPendingSends, and
	maxCopied   int       // maxCopied, but in tests
	selfHeld    int       // bytes of buffered messages to self
	extraCredit int       // what is left of MaxExtraCredit

	revokes      map[uint32]uint32 // first context: how many contexts from there on
	revoked      map[uint32]bool
	revokedAhead int // revoked contexts that this process has not created
}

// msgContext is one context: one communicator's point-to-point or its collective messages.
type msgContext struct {
	table     Table
	createdBy *Peer // the peer whose message created it here ahead of the program; nil otherwise
}

// Init makes c, which is zero, the Core of one of size processes. AddPeer adds each of the others.
func (c *Core) Init(cfg Config, size int) {
	cfg.Unexpected = max(cfg.Unexpected, FirstCredit)
	if cfg.Ranks == 0 {
		cfg.Ranks = size
	}
	*c = Core{cfg: cfg, peers: make([]*Peer, size), contexts: map[uint32]*msgContext{}, created: map[uint32]bool{}, maxPending: MaxPendingSends, maxCopied: maxCopied, extraCredit: MaxExtraCredit}
	if cfg.Replica != nil {
		c.arrivals = &arrivals{core: c, process: cfg.Replica, stranded: map[*arrival]bool{}}
	}
}

// AddPeer makes p, which is zero, the peer of a process.
func (c *Core) AddPeer(p *Peer, process int) {
	*p = Peer{
		core: c, Process: process, Rank: c.rankOf(process), Credit: FirstCredit, maxCredit: c.cfg.Unexpected, pending: map[uint32]*Request{},
		unexpected: map[uint32]*Message{}, transfers: map[uint32]*Transfer{}, grant: newGrant(c.cfg.Unexpected, c.cfg.MaxCredit),
	}
	c.peers[process] = p
}

// rankOf returns the rank that a process has now.
func (c *Core) rankOf(process int) int {
	if c.cfg.Replica != nil {
		return c.cfg.Replica.Milestones().Layout().Rank(process)
	}
	return process % c.cfg.Ranks
}

// Unfinished describes what the program has begun and not ended: receives, and communicators that have more contexts together
// than the number given; "" if there is nothing.
func (c *Core) Unfinished(contexts int) (what string) {
	c.PostedReceives(func(r *Request) bool {
		what = fmt.Sprintf("a receive of a message from rank %d with tag %d is not complete", r.Peer, r.Tag)
		return false
	})
	if what == "" && len(c.created) > contexts {
		what = "a communicator exists besides those that there are from the beginning"
	}
	return what
}

// Closed returns the error of Close, or nil while the Core is open.
func (c *Core) Closed() error { return c.closed }

// ExtraCredit returns how many bytes of credit all peers together may still get beyond their first amounts.
func (c *Core) ExtraCredit() int { return c.extraCredit }

// contextOf returns the state of a context, and creates it if need be: a peer can be ahead
// of this process.
func (c *Core) contextOf(id uint32) *msgContext {
	if c.latest.id == id && c.latest.c != nil {
		return c.latest.c
	}
	x := c.contexts[id]
	if x == nil {
		x = new(msgContext)
		c.contexts[id] = x
	}
	c.latest.id, c.latest.c = id, x
	return x
}

// Table returns the matching state of a context, to look at.
func (c *Core) Table(id uint32) *Table { return &c.contextOf(id).table }

// Awaited reports whether a message would match a posted receive.
func (c *Core) Awaited(context uint32, source int, tag uint32) bool {
	x := c.contexts[context]
	return x != nil && x.table.Awaited(int32(source), int32(tag))
}

// arrivalContext returns the state of a context in which the peer sends a message.
func (p *Peer) arrivalContext(id uint32) (*msgContext, error) {
	c := p.core
	if c.latest.id == id && c.latest.c != nil {
		return c.latest.c, nil
	}
	if c.contexts[id] != nil || c.created[id] {
		return c.contextOf(id), nil
	}
	switch {
	case c.cfg.Unallocated != nil && c.cfg.Unallocated(id):
		return nil, fmt.Errorf("%w: the peer sends in context %d, which only this process could have created, and has not", wire.ErrMalformed, id)
	case p.contextsAhead >= maxAhead:
		return nil, fmt.Errorf("%w: the peer sends in context %d; it has sent in %d others that this process has not created", wire.ErrMalformed, id, p.contextsAhead)
	}
	p.contextsAhead++
	x := c.contextOf(id)
	x.createdBy = p
	return x, nil
}

// CreateContexts notes that this process has created a communicator with n contexts from first on.
// FreeContext ends each.
func (c *Core) CreateContexts(first, n uint32) {
	for id := first; id < first+n; id++ {
		c.created[id] = true
		if x := c.contexts[id]; x != nil && x.createdBy != nil {
			x.createdBy.contextsAhead--
			x.createdBy = nil
		}
	}
}

// FreeContext drops a context that no process will use any more, with its unexpected messages.
func (c *Core) FreeContext(id uint32) {
	delete(c.created, id)
	x := c.contexts[id]
	if x == nil {
		return
	}
	c.dropMessages(x, func(*Message) bool { return true })
	if x.table.Empty() {
		if x.createdBy != nil {
			x.createdBy.contextsAhead--
		}
		delete(c.contexts, id)
		c.latest.c = nil
	}
}

func (c *Core) dropMessages(x *msgContext, which func(*Message) bool) {
	x.table.Messages(func(m *match.Message[*Message]) bool {
		if which(m.Owner) {
			x.table.Remove(m)
			c.drop(m.Owner)
		}
		return true
	})
}

// PostedReceives calls yield with each posted receive until it returns false.
func (c *Core) PostedReceives(yield func(*Request) bool) {
	for _, x := range c.contexts {
		goesOn := true
		x.table.Posted(func(r *match.Receive[*Request]) bool {
			goesOn = yield(r.Owner)
			return goesOn
		})
		if !goesOn {
			return
		}
	}
}

// AwaitsSource reports whether a receive for messages of just one rank is posted.
func (c *Core) AwaitsSource(rank int) bool {
	found := false
	c.PostedReceives(func(r *Request) bool {
		found = r.Peer == rank
		return !found
	})
	return found
}

// An UnexpectedMessage describes an unexpected message.
type UnexpectedMessage struct {
	Context uint32
	Source  int // world rank
	Tag     int
	Bytes   uint64
}

// ListUnexpected describes the unexpected messages, in the order of UnexpectedMessages.
func (c *Core) ListUnexpected() (all []UnexpectedMessage) {
	c.UnexpectedMessages(func(context uint32, m *Message) {
		all = append(all, UnexpectedMessage{Context: context, Source: m.Source, Tag: m.Tag(), Bytes: m.Size})
	})
	return all
}

// UnexpectedMessages calls yield with the context of each unexpected message and the message, in the order of arrival within each context.
func (c *Core) UnexpectedMessages(yield func(context uint32, m *Message)) {
	for id, x := range c.contexts {
		x.table.Messages(func(m *match.Message[*Message]) bool {
			yield(id, m.Owner)
			return true
		})
	}
}

// FailReceives fails each posted receive for which why returns an error with that error.
func (c *Core) FailReceives(why func(*Request) error) {
	for _, x := range c.contexts {
		x.table.Posted(func(r *match.Receive[*Request]) bool {
			if err := why(r.Owner); err != nil {
				x.table.Withdraw(r)
				c.finish(r.Owner, err)
			}
			return true
		})
	}
}

// Close fails every posted receive with err and drops every unexpected message. Nothing is started
// any more.
func (c *Core) Close(err error) {
	if c.closed == nil {
		c.closed = err
	}
	c.FailReceives(func(*Request) error { return c.closed })
	if c.arrivals != nil {
		c.arrivals.failStranded(func(*arrival) error { return c.closed })
	}
	for _, x := range c.contexts {
		c.dropMessages(x, func(*Message) bool { return true })
	}
	c.emit(Effect{Kind: Probe})
}

// Revoke notes that n contexts from first on are revoked, and reports whether that is new.
func (c *Core) Revoke(first, n uint32) bool {
	if c.revokes[first] >= n || c.closed != nil || c.tooFarAhead(first, n) {
		return false
	}
	if c.revokes == nil {
		c.revokes, c.revoked = map[uint32]uint32{}, map[uint32]bool{}
	}
	c.revokes[first] = n
	for id := first; id < first+n; id++ {
		c.revoked[id] = true
	}
	return true
}

// DropRevoked drops the messages in n contexts from first on.
func (c *Core) DropRevoked(first, n uint32) {
	for id := first; id < first+n; id++ {
		if x := c.contexts[id]; x != nil {
			c.dropMessages(x, func(m *Message) bool { return m.Sender == nil }) // else the sender, this process, takes it back
		}
	}
	c.emit(Effect{Kind: Probe})
}

// tooFarAhead reports whether a revocation is not to be remembered: there are too many of
// contexts that this process has not created.
func (c *Core) tooFarAhead(first, n uint32) bool {
	for id := first; id < first+n; id++ {
		if c.created[id] || c.contexts[id] != nil {
			return false
		}
	}
	if c.revokedAhead+int(n) > MaxRevokedAhead {
		return true
	}
	c.revokedAhead += int(n)
	return false
}

// IsRevoked reports whether a context is revoked.
func (c *Core) IsRevoked(context uint32) bool { return len(c.revoked) > 0 && c.revoked[context] }

// Revocations returns how many contexts are revoked from each first one on. The map is the Core's.
func (c *Core) Revocations() map[uint32]uint32 { return c.revokes }

// Discards reports whether messages of a context are discarded, since no receive can match them.
func (c *Core) Discards(context uint32) bool {
	return c.closed != nil || len(c.revoked) > 0 && c.revoked[context]
}

// SourceError returns why no message can arrive from source any more, or nil.
func (c *Core) SourceError(source int) error {
	switch {
	case c.closed != nil:
		return c.closed
	case source == c.cfg.Rank || source == AnySource:
		return nil
	}
	if c.cfg.Replica == nil {
		return endError(c.peers[source], nil)
	}
	var err error
	for q := range c.cfg.Replica.Milestones().Layout().Holders(source) {
		end := endError(c.peers[q], err)
		if end == nil {
			return nil
		}
		err = end
	}
	return err
}

// endError returns why p sends nothing any more, or nil; before is why another process of its rank does not.
func endError(p *Peer, before error) error {
	switch {
	case p.Failed == nil && !p.Gone:
		return nil
	case p.Gone: // so has the rank, even if another of its processes failed before
		return p.GoodbyeError()
	case before != nil:
		return before
	}
	return p.Failed
}
