package replica

import (
	"errors"
	"fmt"
	"math/bits"
)

// ErrProtocol is that of a message that no process of the job sends.
var ErrProtocol = errors.New("replica: protocol error")

const (
	// SendCost is charged for each message that is kept, beside its bytes.
	SendCost = 64
	// defaultAck is, for each replica of the source, after how many messages of a rank they are acknowledged.
	// Of r messages that replicas of a rank get, each is acknowledged to r processes: 1/32 of the messages.
	defaultAck = 32
	// ackShare of MaxKept is after how many bytes of a rank's messages they are acknowledged.
	ackShare = 8
	// defaultKept is how many bytes of messages are kept for others.
	defaultKept = 64 << 20
	// defaultAhead is how many outcomes a leader may be ahead.
	defaultAhead = 4096
)

// Config is what does not change, and but for Process is the same in all processes of a job.
type Config struct {
	Layout
	Process int // of this process
	Table   Table
	// MaxKept is how many bytes of messages are copied, counting SendCost for each, until they are
	// acknowledged. Sends beyond that are not complete until then. 0: 64 MiB.
	MaxKept int
	// SendDeterministic says that what is sent depends on no outcome, so that nothing waits until one is
	// committed.
	SendDeterministic bool

	Kinds []string // names of the points' kinds, but KindReceive, for reports; may be short

	Seat Seat // of a process with a spare number: which it comes to take

	AckEvery int // messages of a rank that are acknowledged together; 0: 32 for each replica
	MaxAhead int // outcomes that a leader may decide before the slowest replica used them; 0: 4096
}

func (c *Config) kindName(kind uint8) string {
	switch {
	case kind == KindReceive:
		return "a receive from any source"
	case int(kind) < len(c.Kinds):
		return c.Kinds[kind]
	}
	return fmt.Sprintf("a point of kind %d", kind)
}

// A Process is the state of one process. Its calls do not wait; what is to be done in consequence, Effects
// returns. See the package documentation.
type Process struct {
	cfg           Config
	rank, replica int
	failed        []bool // by process
	expelled      bool
	expelSent     []bool // by process: Failures was sent to it, so that it learns that it is treated as failed
	lost          []bool // by rank
	effects       []Effect

	peers          []peer  // by rank
	kept           int     // bytes copied, with SendCost
	held           []*Send // not copied, in order: for want of room,
	awaiting       int     // or because they are Synchronous, which so many are
	awaitingCommit []*Send // wait until an outcome is committed, in order
	draining       bool
	ended          ended
	digest         uint64 // of the messages that the program sent in order

	rounds   rounds
	log      log
	receives map[uint32][]*Receive // by context: not posted, in order
}

// A peer is another rank: what was sent to it and what came from it.
type peer struct {
	source
	destination
}

// New returns the state of a process at the beginning of a job.
func New(cfg Config) *Process {
	if cfg.AckEvery == 0 {
		cfg.AckEvery = defaultAck * cfg.Replicas
	}
	if cfg.MaxAhead == 0 {
		cfg.MaxAhead = defaultAhead
	}
	if cfg.MaxKept == 0 {
		cfg.MaxKept = defaultKept
	}
	p := &Process{
		cfg: cfg, rank: cfg.Seat.Rank, replica: cfg.Seat.Replica, failed: make([]bool, cfg.Size()), expelSent: make([]bool, cfg.Size()),
	}
	if p.isSeated() {
		p.rank, p.replica = cfg.Rank(cfg.Process), cfg.Replica(cfg.Process)
	}
	p.ended.left = make([]bool, cfg.Size())
	p.begin()
	p.rounds.init(p)
	return p
}

// isSeated reports whether this process is one of those that the layout knows, and not one that waits for a seat.
func (p *Process) isSeated() bool { return p.cfg.seatOf(p.cfg.Process) >= 0 }

// begin makes p one of a job that begins with the layout and the failures that p has: nothing was sent or decided.
// All processes of the job begin with the same ones.
func (p *Process) begin() {
	cfg := &p.cfg
	p.lost, p.peers = make([]bool, cfg.Ranks), make([]peer, cfg.Ranks)
	p.kept, p.held, p.awaiting, p.awaitingCommit = 0, nil, 0, nil
	p.draining, p.digest, p.receives = false, 0, map[uint32][]*Receive{}
	for rank := range p.peers {
		q := &p.peers[rank]
		q.source = newSource(cfg.Layout, p.serverOf(rank, p.replica))
		q.destination = newDestination(rank, cfg.Replicas)
		for c := range cfg.Replicas {
			q.sender[c] = cfg.Table.server(cfg.Replicas, c, p.alive(p.rank))
			if q.sender[c] == p.replica && p.alive(rank)(c) {
				q.serving[c] = serves
			}
		}
	}
	p.ended.doneSent, p.ended.done = false, make([]bool, cfg.Replicas)
	p.log = log{leader: max(0, lowest(cfg.Replicas, p.alive(p.rank)))}
	p.log.init(cfg.Replicas)
}

// Rank returns the rank that the program sees.
func (p *Process) Rank() int { return p.rank }

// Failed reports whether a process is treated as failed.
func (p *Process) Failed(process int) bool { return p.failed[process] }

// Lost reports whether all replicas of a rank have failed.
func (p *Process) Lost(rank int) bool { return p.lost[rank] }

// Server returns the process whose messages of a rank are accepted.
func (p *Process) Server(rank int) int { return p.peers[rank].server }

// alive returns which replicas of a rank have not failed.
func (p *Process) alive(rank int) func(int) bool {
	return func(c int) bool { return !p.failed[p.cfg.Layout.Process(rank, c)] }
}

// serverOf returns the process that serves a replica of other ranks for a rank, or -1.
func (p *Process) serverOf(rank, to int) int {
	c := p.cfg.Table.server(p.cfg.Replicas, to, p.alive(rank))
	if c < 0 {
		return -1
	}
	return p.cfg.Layout.Process(rank, c)
}

// eachReplica calls f with each other live replica of this process's rank.
func (p *Process) eachReplica(f func(replica, process int)) {
	for c := range p.cfg.Replicas {
		if q := p.cfg.Layout.Process(p.rank, c); q != p.cfg.Process && !p.failed[q] {
			f(c, q)
		}
	}
}

// Receive takes a message of another process, as Parse returned it. An error means that the
// process broke the protocol; nothing is changed then.
func (p *Process) Receive(from int, m Message) error {
	switch {
	case p.expelled:
		return nil
	case from < 0 || from >= p.cfg.Size() || from == p.cfg.Process:
		return fmt.Errorf("%w: a message of process %d", ErrProtocol, from)
	case m.Kind == Failures:
		p.recordFailures(m.Failed, true)
		return nil
	case p.failed[from]:
		p.expel(from)
		return nil
	}
	if m.Kind.ofRounds() || !p.isSeated() || m.Epoch != p.cfg.Epoch {
		return p.rounds.receive(p, from, m)
	}
	if within := p.cfg.Rank(from) == p.rank; within != m.Kind.within() || p.cfg.Rank(from) == Unseated {
		return fmt.Errorf("%w: %v of process %d to process %d", ErrProtocol, m.Kind, from, p.cfg.Process)
	}
	err := takeMessage(p, from, m)
	p.rounds.progress(p)
	return err
}

// takeMessage takes a message of this layout.
func takeMessage(p *Process, from int, m Message) error {
	switch m.Kind {
	case Ack:
		return p.acknowledged(from, m.Acks)
	case Have:
		return have(p, from, m.Acks)
	case Query:
		return query(p, from, m.Failed)
	case Flush:
		flushBy(p, from, m.Count)
	case Decisions:
		return p.decisions(from, m)
	case Lead:
		return p.newLeader(from, m)
	case Committed:
		return p.handleCommitted(from, m)
	case Done:
		p.ended.done[p.cfg.Replica(from)] = true
	}
	return nil
}

// mix adds x to a digest h. It depends on the order.
func mix(h, x uint64) uint64 {
	h = bits.RotateLeft64(h^x, 29) * 0x9e3779b97f4a7c15
	return h ^ h>>32 + 1
}
