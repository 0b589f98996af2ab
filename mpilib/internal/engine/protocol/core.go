// Package protocol decides what the engine does with messages: which receive a message
// matches, how much may be sent eagerly and how much is sent by rendezvous, what waits for
// what, and what the loss of a peer or a cancellation ends. It knows envelopes, requests and
// numbers of bytes; it refuses to know links, rings, locks, clocks and goroutines, and never
// waits. What time it is, how long a round trip takes and how much a path takes eagerly is
// told to it.
//
// One Core is the state of a process, with a Peer for each other process and a Request for
// each send and receive. The caller, who has the lock, tells it what the program wants
// (Send, Receive, Cancel, ...) and what a peer said (Eager, RTS, Data, CTS, ...). Where bytes
// follow an envelope, Peer.In says where they go, and Arrived is called when they are here.
// What is to be done in consequence is a list of effects, see Effect. The way of most
// messages makes no list: CanSendNow lets them go, Eager says where the bytes go, and
// Arrived which receive is complete.
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
	// maxAhead is in how many contexts that nobody has made here yet a peer may have sent
	// something. It is ahead in no more than are being made: whatever makes one needs this
	// process.
	maxAhead = 4096
	// MaxRevokedAhead is how many contexts are remembered as revoked that nobody has made
	// here. News of others are ignored, since whoever passes them on need not be to blame.
	MaxRevokedAhead = 1 << 14
)

var (
	// ErrTruncate fails a receive whose message is longer than its buffer.
	ErrTruncate = errors.New("message is longer than the receive buffer")
	// ErrFinalized fails an operation after this process's end, or its peer's.
	ErrFinalized = errors.New("world is finalized")
	// ErrRevoked is that of what needs a context that is revoked.
	ErrRevoked = errors.New("communicator is revoked")
)

// Config is what does not change.
type Config struct {
	Rank       int
	Ranks      int // process q is one of rank q % Ranks; 0: each process is its own rank
	Unexpected int // see FirstCredit; what each peer may have here in messages without a receive
	MaxCredit  int // how far that may grow

	// Replica decides from which process of a rank messages are taken; nil: ranks have one each. Its
	// effects are the caller's to carry out.
	Replica *replica.Process

	// Unmade reports whether no process can have created a context yet; nil: none is such.
	Unmade func(context uint32) bool
}

// Table is the matching state of a context.
type Table = match.Table[*Request, *Message]

// A Core is the protocol's state of a process.
type Core struct {
	cfg      Config
	closed   error // why nothing is started or wanted any more
	effects  []Effect
	peers    []*Peer // by process; nil for this one
	contexts map[uint32]*msgContext
	made     map[uint32]bool // contexts of this process's communicators
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
	table Table
	by    *Peer // the peer whose message created it here ahead of the program; nil otherwise
}

// Init makes c, which is zero, the Core of a process that is alone among so many: Join adds peers.
func (c *Core) Init(cfg Config, size int) {
	cfg.Unexpected = max(cfg.Unexpected, FirstCredit)
	if cfg.Ranks == 0 {
		cfg.Ranks = size
	}
	*c = Core{cfg: cfg, peers: make([]*Peer, size), contexts: map[uint32]*msgContext{}, made: map[uint32]bool{}, maxPending: MaxPendingSends, maxCopied: maxCopied, extraCredit: MaxExtraCredit}
	if cfg.Replica != nil {
		c.arrivals = &arrivals{core: c, process: cfg.Replica, stranded: map[*arrival]bool{}}
	}
}

// Join makes p, which is zero, the peer of a process.
func (c *Core) Join(p *Peer, process int) {
	*p = Peer{
		core: c, Process: process, Rank: process % c.cfg.Ranks, Credit: FirstCredit, maxCredit: c.cfg.Unexpected, pending: map[uint32]*Request{},
		kept: map[uint32]*Message{}, moving: map[uint32]*Transfer{}, grant: newGrant(c.cfg.Unexpected, c.cfg.MaxCredit),
	}
	c.peers[process] = p
}

// Closed says why nothing is started or wanted any more, or returns nil.
func (c *Core) Closed() error { return c.closed }

// ExtraCredit is what all peers may still get beyond their first amounts.
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

// Awaited reports whether a message would find a receive.
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
	if c.contexts[id] != nil || c.made[id] {
		return c.contextOf(id), nil
	}
	switch {
	case c.cfg.Unmade != nil && c.cfg.Unmade(id):
		return nil, fmt.Errorf("%w: the peer sends in context %d, which only this process could have made, and has not", wire.ErrMalformed, id)
	case p.ahead >= maxAhead:
		return nil, fmt.Errorf("%w: the peer sends in context %d; it has sent in %d others that nobody has made here", wire.ErrMalformed, id, p.ahead)
	}
	p.ahead++
	x := c.contextOf(id)
	x.by = p
	return x, nil
}

// Open says that a communicator with n contexts from first on has been made, until Forget.
func (c *Core) Open(first, n uint32) {
	for id := first; id < first+n; id++ {
		c.made[id] = true
		if x := c.contexts[id]; x != nil && x.by != nil {
			x.by.ahead--
			x.by = nil
		}
	}
}

// Forget drops a context that no process will use any more, with its messages.
func (c *Core) Forget(id uint32) {
	delete(c.made, id)
	x := c.contexts[id]
	if x == nil {
		return
	}
	c.dropMessages(x, func(*Message) bool { return true })
	if x.table.Empty() {
		if x.by != nil {
			x.by.ahead--
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

// Posted calls yield with each posted receive until it returns false.
func (c *Core) Posted(yield func(*Request) bool) {
	for _, x := range c.contexts {
		more := true
		x.table.Posted(func(r *match.Receive[*Request]) bool {
			more = yield(r.Owner)
			return more
		})
		if !more {
			return
		}
	}
}

// Messages calls yield with the context of each kept message and the message, in the order of arrival within each context.
func (c *Core) Messages(yield func(context uint32, m *Message)) {
	for id, x := range c.contexts {
		x.table.Messages(func(m *match.Message[*Message]) bool {
			yield(id, m.Owner)
			return true
		})
	}
}

// EndReceives fails each posted receive for which why returns an error with that error.
func (c *Core) EndReceives(why func(*Request) error) {
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

// Close says that nothing is started any more, and why. It fails every receive that is posted,
// and drops every message.
func (c *Core) Close(err error) {
	if c.closed == nil {
		c.closed = err
	}
	c.EndReceives(func(*Request) error { return c.closed })
	if c.arrivals != nil {
		c.arrivals.fail(func(*arrival) error { return c.closed })
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
// contexts that nobody has made here.
func (c *Core) tooFarAhead(first, n uint32) bool {
	for id := first; id < first+n; id++ {
		if c.made[id] || c.contexts[id] != nil {
			return false
		}
	}
	if c.revokedAhead+int(n) > MaxRevokedAhead {
		return true
	}
	c.revokedAhead += int(n)
	return false
}

// Revoked reports whether a context is.
func (c *Core) Revoked(context uint32) bool { return len(c.revoked) > 0 && c.revoked[context] }

// Revocations returns how many contexts are revoked from each first one on. The map is the Core's.
func (c *Core) Revocations() map[uint32]uint32 { return c.revokes }

// Unwanted reports whether nobody will receive messages of a context.
func (c *Core) Unwanted(context uint32) bool {
	return c.closed != nil || len(c.revoked) > 0 && c.revoked[context]
}

// SourceError says why no message can come from source any more, or returns nil.
func (c *Core) SourceError(source int) error {
	switch {
	case c.closed != nil:
		return c.closed
	case source == c.cfg.Rank || source == AnySource:
		return nil
	}
	var err error
	for q := source; q < len(c.peers); q += c.cfg.Ranks { // the processes of the rank
		switch p := c.peers[q]; {
		case p.Failed == nil && !p.Gone:
			return nil
		case p.Gone: // so has the rank, whichever of its processes failed before
			err = p.GoodbyeError()
		case err == nil:
			err = p.Failed
		}
	}
	return err
}
