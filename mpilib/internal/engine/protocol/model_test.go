package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/wire"
)

// This file plays Cores against each other: the program, the transport and the loss of peers are
// actions, one of which is chosen at a time. After each one the state is compared with what a
// simple matcher and simple sums say.

// op is a send or a receive of a program.
type op struct {
	Request
	name    string
	at      *proc
	memory  []byte // the buffer
	content []byte // of a send, what is in it; of a complete receive, what was
	orphan  *op    // the send that was given up, in whose place this is
	begun   bool
	ended   int // how often it was completed
	givenUp bool
	asked   bool // to be cancelled
	message *op  // of a receive, the send that the oracle has matched
	taken   int  // of a send, how many receives have its message
	matched int  // of a send, its place among all matches of the oracle
}

// origin is the send of the program.
func (o *op) origin() *op {
	if o.orphan != nil {
		return o.orphan
	}
	return o
}

// step is an operation of a program.
type step struct {
	kind    byte // s: send, S: synchronous send, r: receive, c: cancel, g: give up, p: matched probe
	peer    int
	context uint32
	tag     int
	size    int // of the buffer
	which   int // c, g: the n-th step of the program, which is a send or a receive
}

// oracle is a simple matcher.
type oracle struct {
	posted []*op
	kept   []*op
}

func fits(r *op, context uint32, source, tag int) bool {
	return r.Context == context && (r.Peer == AnySource || r.Peer == source) && (r.Tag == AnyTag || r.Tag == tag)
}

func (o *oracle) arrive(m *op) *op {
	i := slices.IndexFunc(o.posted, func(r *op) bool { return fits(r, m.Context, m.at.rank, m.Tag) })
	if i < 0 {
		return nil
	}
	r := o.posted[i]
	o.posted = slices.Delete(o.posted, i, i+1)
	return r
}

func (o *oracle) take(r *op) *op {
	i := slices.IndexFunc(o.kept, func(m *op) bool { return fits(r, m.Context, m.at.rank, m.Tag) })
	if i < 0 {
		return nil
	}
	m := o.kept[i]
	o.kept = slices.Delete(o.kept, i, i+1)
	return m
}

func remove(q *[]*op, o *op) bool {
	i := slices.Index(*q, o)
	if i >= 0 {
		*q = slices.Delete(*q, i, i+1)
	}
	return i >= 0
}

// proc is a process.
type proc struct {
	*model
	rank    int
	core    *Core
	peers   []*Peer
	oracle  oracle
	program []step
	next    int
	ops     []*op // by step, nil for those that are none
	copies  []Effect
	fetches []*Transfer
}

// item is something for a peer, before it is written or on its way.
type item struct {
	env     wire.Envelope
	op      *op // whose buffer follows, or that is announced
	lent    ExposedBuffer
	fromBuf bool // n bytes of the buffer, from at on
	at, n   int
	whole   bool
	payload []byte
}

// stream is what goes from one process to another.
type stream struct {
	queue   []item
	bulk    []*op
	writing *item
	wire    []item
	left    []byte // of the item that is being read, what is not read yet
	reading *op    // whose message that is, if it is eager and found no receive
	eof     bool   // nothing follows what is on the wire
	broken  bool   // the reader has lost the peer
}

type lending struct {
	op                *op
	accepted, revoked bool
}

type model struct {
	choose  func(n int) int
	procs   []*proc
	streams [][]*stream
	lends   []*lending
	all     []*op
	lossy   int  // how many links may still be lost
	healthy int  // after how many actions
	lend    bool // buffers may be lent
	plain   bool // fewer choices: what is read is read at once, and paths are short
	matches int
	now     time.Time
	story   []string
}

var errLost, errGivenUp = errors.New("lost"), errors.New("given up")

func newModel(choose func(int) int, credit int, programs ...[]step) *model {
	m := &model{choose: choose, now: time.Unix(1e9, 0)}
	for rank, program := range programs {
		p := &proc{model: m, rank: rank, core: new(Core), peers: make([]*Peer, len(programs)), program: program, ops: make([]*op, len(program))}
		p.core.Init(Config{Rank: rank}, len(programs))
		p.core.maxPending, p.core.maxCopied = 2, 10
		m.streams = append(m.streams, nil)
		for other := range programs {
			m.streams[rank] = append(m.streams[rank], &stream{})
			if other != rank {
				p.peers[other] = new(Peer)
				p.core.AddPeer(p.peers[other], other)
				p.peers[other].Credit = credit // as little as that: payloads are short
				p.peers[other].grant = grant{first: credit, max: 2 * credit, total: credit, step: credit / shortStep}
			}
		}
		m.procs = append(m.procs, p)
	}
	return m
}

func (m *model) say(format string, args ...any) {
	m.story = append(m.story, fmt.Sprintf(format, args...))
}

// failure is a broken invariant.
type failure string

func (m *model) fail(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed*31 + i*7 + 1)
	}
	return b
}

func (p *proc) newOp(name string, context uint32, peer, tag int, buf []byte) *op {
	o := &op{name: name, at: p, memory: buf, begun: true}
	o.Begin(o, context, peer, tag, buf)
	p.all = append(p.all, o)
	return o
}

// complete notes that o is complete.
func (m *model) complete(o *op) {
	if o.ended++; o.ended > 1 {
		m.fail("%s is completed twice", o.name)
	}
	m.say("  %s is complete: %v %+v", o.name, o.Err, o.Got)
	switch {
	case o.IsSend:
		for i := range o.memory { // it is the program's again
			o.memory[i] = 0xee
		}
		if s := o.origin(); o.Err == nil && !o.Got.Cancelled && o.Mode == Synchronous && s.taken == 0 {
			m.fail("%s is synchronous, and complete before a receive has matched it", o.name)
		}
		return
	case slices.ContainsFunc(o.at.fetches, func(f *Transfer) bool { return f.Request == &o.Request && f.Busy }):
		m.fail("%s is complete while its bytes are fetched", o.name)
	}
	o.content = bytes.Clone(o.memory) // and stays so
	switch {
	case o.Got.Cancelled, o.givenUp && o.Err == errGivenUp:
		return
	case o.message == nil:
		if o.Err == nil || !errors.Is(o.Err, errLost) {
			m.fail("%s is complete with %v, and the oracle has no message for it", o.name, o.Err)
		}
		return
	}
	s := o.message
	if o.Got.Source != s.at.rank || o.Got.Tag != s.Tag || o.Got.Bytes != uint64(len(s.content)) {
		m.fail("%s got %+v, the oracle says it gets %s", o.name, o.Got, s.name)
	}
	switch {
	case o.Err == nil:
		if !bytes.Equal(o.memory[:len(s.content)], s.content) {
			m.fail("%s did not get the bytes of %s", o.name, s.name)
		}
	case errors.Is(o.Err, errLost) && o.at.peers[s.at.rank].Failed != nil:
	case !errors.Is(o.Err, ErrTruncate) || len(s.content) <= len(o.memory):
		m.fail("%s of %s: %v", o.name, s.name, o.Err)
	}
}

// pair notes that the oracle gives a receive a message.
func (m *model) pair(r, s *op) {
	m.say("  %s is for %s", s.name, r.name)
	r.message = s
	m.matches++
	s.matched = m.matches
	if s.taken++; s.taken > 1 {
		m.fail("%s is received twice", s.name)
	}
}

// carryOut carries out what a core has decided.
func (p *proc) carryOut() {
	for p.core.HasEffects() {
		list := p.core.Effects(nil)
		for i, f := range list {
			if (f.Kind == Copy || f.Kind == RTS || f.Kind == Fetch) && i != len(list)-1 {
				p.fail("effect %d of %d asks back", i, len(list))
			}
			p.effect(f)
		}
	}
}

func (p *proc) effect(f Effect) {
	var out *stream
	if f.Peer != nil {
		out = p.streams[p.rank][f.Peer.Rank]
	}
	var o *op
	if f.Request != nil {
		o = f.Request.Owner.(*op)
	}
	switch f.Kind {
	case Control:
		out.queue = append(out.queue, item{env: f.Env})
	case Eager:
		if p.choose(2) == 0 {
			out.queue = append(out.queue, item{env: f.Env, op: o, payload: bytes.Clone(o.Buf)})
			f.Peer.Written(&o.Request, true)
		} else {
			out.queue = append(out.queue, item{env: f.Env, op: o, fromBuf: true, n: f.N, whole: true})
		}
	case RTS:
		if p.lend && len(o.Buf) > 0 && p.choose(2) == 0 {
			p.lends = append(p.lends, &lending{op: o})
			out.queue = append(out.queue, item{env: f.Env, op: o, lent: ExposedBuffer{Slot: len(p.lends) - 1, Valid: true}})
			return
		}
		out.queue = append(out.queue, item{env: f.Env, op: o})
		f.Peer.SendHead(&o.Request, 30)
	case Head:
		out.queue = append(out.queue, item{env: f.Env, op: o, fromBuf: true, n: f.N})
	case Stream:
		if !slices.Contains(out.bulk, o) {
			out.bulk = append(out.bulk, o)
		}
	case Recall:
		out.queue = slices.DeleteFunc(out.queue, func(i item) bool {
			if i.op == o && i.fromBuf {
				f.NotSent(i.n)
			}
			return i.op == o && i.fromBuf
		})
		out.bulk = slices.DeleteFunc(out.bulk, func(b *op) bool { return b == o })
	case Release:
	case Complete:
		p.complete(o)
	case Credit:
		p.now = p.now.Add(time.Millisecond)
		rtt := time.Duration(0)
		if !p.plain {
			rtt = time.Duration(p.choose(2)) * 2 * time.Millisecond
		}
		f.Peer.Resize(p.now, rtt)
		if env, due := f.Peer.ReturnCredit(!f.Grow); due && f.Peer.Failed == nil {
			out.queue = append(out.queue, item{env: env})
		}
	case Copy:
		p.copies = append(p.copies, f)
	case Fetch:
		if l := p.lends[f.Transfer.Exposed.Slot]; l.revoked || p.choose(3) == 0 {
			f.Peer.SendCTS(f.Transfer)
		} else {
			l.accepted = true
			f.Transfer.Busy = p.choose(2) == 0
			p.fetches = append(p.fetches, f.Transfer)
		}
	}
}

// finish completes an operation that the core leaves to the transport.
func (p *proc) finish(o *op, err error) {
	if o.Complete(err) {
		p.complete(o)
	}
}

// run does an operation of the program.
func (p *proc) run(s step) {
	name := fmt.Sprintf("%d.%d", p.rank, p.next)
	p.say("%s: %c %+v", name, s.kind, s)
	i := p.next
	p.next++
	switch s.kind {
	case 's', 'S':
		o := p.newOp(name, s.context, s.peer, s.tag, pattern(p.rank*64+i, s.size))
		o.IsSend, o.content = true, bytes.Clone(o.memory)
		o.Got = Result{Source: p.rank, Tag: s.tag, Bytes: uint64(s.size)}
		if s.kind == 'S' {
			o.Mode = Synchronous
		}
		p.ops[i] = o
		if s.peer == p.rank {
			if r := p.oracle.arrive(o); r != nil {
				p.pair(r, o)
			} else {
				p.oracle.kept = append(p.oracle.kept, o)
			}
			p.core.SendSelf(&o.Request)
		} else {
			if to := p.peers[s.peer]; s.kind == 's' && s.size <= 40 {
				if to.CanSendNow(s.size) && p.choose(2) == 0 {
					env := EagerEnvelope(s.context, s.tag, s.size)
					to.SentNow(s.size)
					p.streams[p.rank][s.peer].queue = append(p.streams[p.rank][s.peer].queue, item{env: env, op: o, payload: bytes.Clone(o.content)})
					p.finish(o, nil)
					return
				}
			}
			p.peers[s.peer].Send(&o.Request, 40)
		}
	case 'r':
		o := p.newOp(name, s.context, s.peer, s.tag, make([]byte, s.size))
		p.ops[i] = o
		p.receive(o)
	case 'p':
		probe := &op{}
		probe.Context, probe.Peer, probe.Tag = s.context, s.peer, s.tag
		m, want := p.core.Find(s.context, s.peer, s.tag, true), p.oracle.take(probe)
		if (m == nil) != (want == nil) || m != nil && (m.Source != want.at.rank || m.Tag() != want.Tag || m.Size != uint64(len(want.content))) {
			p.fail("a probe finds %+v, the oracle %v", m, want)
		}
		if m != nil {
			o := p.newOp(name, s.context, m.Source, m.Tag(), make([]byte, s.size))
			p.ops[i] = o
			p.pair(o, want)
			p.core.MatchUnexpected(&o.Request, m)
		}
	case 'c', 'g':
		if o := p.ops[s.which]; o != nil && o.State != Completed {
			if s.kind == 'c' {
				p.cancel(o)
			} else if !o.givenUp {
				p.giveUp(o)
			}
		}
	}
	p.carryOut()
}

func (p *proc) receive(o *op) {
	if s := p.oracle.take(o); s != nil {
		p.pair(o, s)
	} else {
		p.oracle.posted = append(p.oracle.posted, o)
	}
	if !p.core.Receive(&o.Request) {
		remove(&p.oracle.posted, o)
	}
	p.carryOut()
}

func (p *proc) cancel(o *op) {
	o.asked = true
	switch {
	case !o.IsSend:
		is := remove(&p.oracle.posted, o)
		p.core.CancelReceive(&o.Request)
		if is != o.Got.Cancelled {
			p.fail("%s: cancelled: %v, the oracle says %v", o.name, o.Got.Cancelled, is)
		}
	case o.Peer == p.rank:
		if p.core.CancelSelf(&o.Request); o.Got.Cancelled != remove(&p.oracle.kept, o) {
			p.fail("%s: cancelled: %v", o.name, o.Got.Cancelled)
		}
	default:
		p.peers[o.Peer].CancelSend(&o.Request)
	}
}

// giveUp is what the engine does when nobody waits for o any longer.
func (p *proc) giveUp(o *op) {
	o.givenUp = true
	switch {
	case o.State == Moving && o.IsSend:
		o.GiveUp = errGivenUp
	case o.State == Moving:
		o.GiveUp = errGivenUp
		if from := o.Got.Source; from != p.rank && p.choose(2) == 0 { // otherwise the reader sees it later
			p.peers[from].StopReceive(&o.Request)
		}
	case !o.IsSend:
		p.core.Withdraw(&o.Request)
		remove(&p.oracle.posted, o)
		p.finish(o, errGivenUp)
	case o.Peer == p.rank:
		p.core.AbandonSelf(&o.Request, errGivenUp)
		remove(&p.oracle.kept, o)
	default:
		p.abandon(o)
	}
}

func (p *proc) abandon(o *op) {
	to := p.peers[o.Peer]
	if to.Abandon(&o.Request, errGivenUp) {
		p.carryOut()
		return
	}
	for _, l := range p.lends {
		if l.op == o && l.accepted {
			o.GiveUp = errGivenUp
			return
		}
	}
	own := p.newOp(o.name+"'", o.Context, o.Peer, o.Tag, bytes.Clone(o.Buf))
	own.orphan = o.origin()
	to.Replace(&o.Request, &own.Request)
	p.carryOut()
	out := p.streams[p.rank][o.Peer]
	for i := range out.queue {
		if out.queue[i].op == o && out.queue[i].fromBuf {
			out.queue[i].op = own
		}
	}
	for i := range out.bulk {
		if out.bulk[i] == o {
			out.bulk[i] = own
		}
	}
	for _, l := range p.lends {
		if l.op == o {
			l.revoked, l.op = true, own
		}
	}
	to.Replaced(&own.Request)
	p.core.finish(&o.Request, errGivenUp)
	p.carryOut()
}

// take gives the transport the next item for a peer.
func (p *proc) take(to int) {
	out := p.streams[p.rank][to]
	var it item
	if len(out.queue) > 0 {
		it = out.queue[0]
		out.queue = out.queue[1:]
	} else {
		o := out.bulk[0]
		n := min(25, len(o.Buf)-o.Offset)
		it = item{env: wire.Envelope{Kind: wire.EnvelopeData, ID: o.ID, Length: uint64(n)}, op: o, fromBuf: true, at: o.Offset, n: n}
		if o.Offset += n; o.Offset == len(o.Buf) {
			out.bulk = out.bulk[1:]
		} else {
			out.bulk = append(out.bulk[1:], o)
		}
	}
	if !it.fromBuf {
		out.wire = append(out.wire, it)
		return
	}
	out.writing = &it
	if it.op.State == Completed {
		p.fail("the buffer of %s is to be written, which is complete", it.op.name)
	}
	if p.choose(2) == 0 { // as into a ring: at once
		p.written(to)
		return
	}
	it.op.State = Moving
}

// written is the end of a write.
func (p *proc) written(to int) {
	out := p.streams[p.rank][to]
	it := *out.writing
	out.writing = nil
	if it.op.Buf == nil && it.n > 0 {
		p.fail("the buffer of %s was its owner's before it was written", it.op.name)
	}
	it.payload = bytes.Clone(it.op.Buf[it.at : it.at+it.n])
	if !out.eof {
		out.wire = append(out.wire, it)
	}
	if p.peers[to].Written(&it.op.Request, it.whole) != nil {
		p.carryOut()
		p.abandon(it.op)
	}
	p.carryOut()
}

// deliver hands a process the next envelope of a peer.
func (p *proc) deliver(from int) {
	in, peer := p.streams[from][p.rank], p.peers[from]
	it := in.wire[0]
	in.wire = in.wire[1:]
	p.say("%d reads of %d: %+v", p.rank, from, it.env)
	var err error
	var s *op
	if it.op != nil {
		s = it.op.origin()
	}
	switch env := it.env; env.Kind {
	case wire.EnvelopeEager, wire.EnvelopeRTS:
		r := p.oracle.arrive(s)
		switch {
		case r != nil:
			p.pair(r, s)
		case env.Kind == wire.EnvelopeEager:
			in.reading = s
		default:
			p.oracle.kept = append(p.oracle.kept, s)
		}
		if env.Kind == wire.EnvelopeRTS {
			err = peer.RTSReceived(env, it.lent)
			break
		}
		err = peer.EagerReceived(env)
		p.carryOut()
		if in.left = it.payload; err == nil && env.Length == 0 {
			p.arrived(from)
		}
	case wire.EnvelopeData:
		err = peer.DataReceived(env)
		in.left = it.payload
	case wire.EnvelopeCTS, wire.EnvelopeTaken, wire.EnvelopeWithdrawn:
		var done *Request
		switch env.Kind {
		case wire.EnvelopeCTS:
			done, err = peer.CTSReceived(env)
		case wire.EnvelopeTaken:
			done, err = peer.TakenReceived(env)
		default:
			done, err = peer.WithdrawnReceived(env)
		}
		if done != nil && err == nil {
			peer.SendDone(done)
			p.carryOut()
			p.announce(from)
		}
	case wire.EnvelopeCredit:
		peer.CreditReceived(env)
		p.announce(from)
	case wire.EnvelopeWithdraw:
		if m := peer.Unexpected(env.ID); m != nil && !m.Taken {
			i := slices.IndexFunc(p.oracle.kept, func(o *op) bool {
				return o.at.rank == from && o.Context == m.Context && o.Tag == m.Tag() && uint64(len(o.content)) == m.Size && p.sentAs(o, from, env.ID)
			})
			if i < 0 {
				p.fail("message %d is dropped, which the oracle has given to a receive", env.ID)
			}
			p.oracle.kept = slices.Delete(p.oracle.kept, i, i+1)
		}
		peer.WithdrawReceived(env.ID)
	}
	if err != nil {
		p.fail("%d of %d: %v", p.rank, from, err)
	}
	p.carryOut()
}

// sentAs reports whether a send, or the one in its place, has an id.
func (p *proc) sentAs(o *op, from int, id uint32) bool {
	return slices.ContainsFunc(p.all, func(q *op) bool { return q.IsSend && q.origin() == o && q.ID == id })
}

func (p *proc) announce(to int) {
	for p.peers[to].AnnounceNext(40) {
		p.carryOut()
	}
}

// feed hands a process bytes of a message, some or all.
func (p *proc) feed(from int) {
	in, msg := p.streams[from][p.rank], &p.peers[from].In
	n := len(in.left)
	if n > 1 && !p.plain && p.choose(2) == 0 {
		n /= 2
	}
	k := copy(msg.Into, in.left[:n])
	msg.Into, in.left = msg.Into[k:], in.left[n:]
	if msg.Left -= uint64(n); msg.Left == 0 {
		p.arrived(from)
	} else if r := msg.Request; r != nil && r.GiveUp != nil {
		p.peers[from].StopReceive(r)
	}
	p.carryOut()
}

func (p *proc) arrived(from int) {
	in := p.streams[from][p.rank]
	if s := in.reading; s != nil {
		in.reading = nil
		if r := p.oracle.arrive(s); r != nil {
			p.pair(r, s)
		} else {
			p.oracle.kept = append(p.oracle.kept, s)
		}
	}
	if r := p.peers[from].Arrived(); r != nil {
		p.complete(r.Owner.(*op))
	}
	p.carryOut()
}

// fetched is the end of a fetch.
func (p *proc) fetched(i int) {
	f := p.fetches[i]
	p.fetches = slices.Delete(p.fetches, i, i+1)
	l := p.lends[f.Exposed.Slot]
	peer := p.peers[l.op.at.rank]
	o := f.Request.Owner.(*op)
	if peer.Failed != nil {
		if f.Busy {
			p.finish(o, peer.Failed)
		}
		return
	}
	if l.op.Buf == nil && l.op.at.peers[p.rank].Failed == nil {
		p.fail("the buffer of %s was its owner's while it was lent", l.op.name)
	}
	copy(o.Buf, l.op.origin().content)
	peer.FetchDone(f)
	p.carryOut()
}

// lose has a process lose a peer.
func (p *proc) lose(other int) {
	p.say("%d loses %d", p.rank, other)
	peer, out, in := p.peers[other], p.streams[p.rank][other], p.streams[other][p.rank]
	var drop []*op
	for _, it := range out.queue {
		if it.fromBuf {
			drop = append(drop, it.op)
		}
	}
	for _, o := range out.bulk {
		if o.State != Moving {
			drop = append(drop, o)
		}
	}
	out.queue, out.bulk, out.eof = nil, nil, true
	in.wire, in.left, in.broken, in.reading = nil, nil, true, nil
	p.oracle.posted = slices.DeleteFunc(p.oracle.posted, func(r *op) bool { return r.Peer == other })
	for _, o := range drop {
		p.finish(o, errLost)
	}
	reading := p.choose(2) == 0
	peer.Lost(errLost, reading)
	p.carryOut()
	if reading {
		peer.ReadEnded()
		p.carryOut()
	}
}

// actions returns what may happen next, but for losses, and calls program for the programs' own.
func (m *model) actions() (all []func()) {
	for _, p := range m.procs {
		for i, f := range p.copies {
			all = append(all, func() {
				p.copies = slices.Delete(p.copies, i, i+1)
				copy(f.Request.Buf, f.Message.Data)
				p.core.UnexpectedCopied(f.Request, f.Message)
				p.carryOut()
			})
		}
		for i := range p.fetches {
			all = append(all, func() { p.fetched(i) })
		}
		for other, peer := range p.peers {
			if peer == nil {
				continue
			}
			out, in := m.streams[p.rank][other], m.streams[other][p.rank]
			switch {
			case out.writing != nil:
				all = append(all, func() { p.written(other) })
			case peer.Failed == nil && len(out.queue)+len(out.bulk) > 0:
				all = append(all, func() { p.take(other) })
			}
			switch {
			case in.broken:
			case len(in.left) > 0:
				all = append(all, func() { p.feed(other) })
			case len(in.wire) > 0:
				all = append(all, func() { p.deliver(other) })
			case in.eof:
				all = append(all, func() { p.lose(other) })
			}
		}
	}
	return all
}

// check compares the state with the invariants that hold between any two actions.
func (m *model) check() {
	for _, s := range m.procs {
		for to, sender := range s.peers {
			if sender == nil {
				continue
			}
			r := m.procs[to]
			receiver, out, back := r.peers[s.rank], m.streams[s.rank][to], m.streams[to][s.rank]
			if g := receiver.grant; g.held > g.total || g.total > g.max || g.held < 0 {
				m.fail("%d keeps %d bytes of %d, which has %d of %d", to, g.held, s.rank, g.total, g.max)
			}
			if sender.Failed != nil || receiver.Failed != nil {
				continue
			}
			sum := sender.Credit + receiver.grant.held + receiver.grant.owed + receiver.In.refund
			flying := slices.Concat(out.queue, out.wire)
			if out.writing != nil {
				flying = append(flying, *out.writing)
			}
			for _, it := range flying {
				switch {
				case it.env.Kind == wire.EnvelopeEager:
					sum += int(it.env.Length) + MessageCost
				case it.env.Flags&wire.EnvelopeHead != 0 && it.env.Kind == wire.EnvelopeData:
					sum += int(it.env.Length)
				}
			}
			for _, it := range slices.Concat(back.queue, back.wire) {
				if it.env.Kind == wire.EnvelopeCredit {
					sum += int(it.env.Length)
				}
			}
			if sum != receiver.grant.total || sender.Credit < 0 {
				m.fail("of a credit of %d bytes that %d has at %d there are %d, it has %d", receiver.grant.total, s.rank, to, sum, sender.Credit)
			}
		}
	}
	for _, o := range m.all {
		if (o.ended > 0) != (o.State == Completed) {
			m.fail("%s is in state %d and was completed %d times", o.name, o.State, o.ended)
		}
	}
}

// play has everything happen until nothing more does.
func (m *model) play() {
	for {
		all := m.actions()
		for _, p := range m.procs {
			if p.next < len(p.program) {
				all = append(all, func() { p.run(p.program[p.next]) })
			}
		}
		if len(all) == 0 {
			return
		}
		if m.healthy--; m.lossy > 0 && m.healthy < 0 {
			all = append(all, m.loss)
		}
		all[m.choose(len(all))]()
		m.check()
	}
}

func (m *model) loss() {
	m.lossy--
	i := m.choose(len(m.procs))
	if other := m.choose(len(m.procs)); i != other && m.procs[i].peers[other].Failed == nil {
		m.procs[i].lose(other)
	}
}

// end receives what was sent, and looks whether all that must be complete is.
func (m *model) end() {
	m.say("the end")
	for round := 0; ; round++ {
		more := false
		for _, p := range m.procs {
			for len(p.oracle.kept) > 0 {
				more = true
				s := p.oracle.kept[0]
				p.receive(p.newOp(fmt.Sprintf("%d, at last, of %s", p.rank, s.name), s.Context, AnySource, s.Tag, make([]byte, len(s.content))))
			}
		}
		m.play()
		if !more && round > 0 {
			break
		}
	}
	for _, p := range m.procs {
		for _, o := range m.all {
			if o.at == p && !o.IsSend && o.State == Waiting {
				p.cancel(o)
				p.carryOut()
			}
		}
	}
	m.play()
	for _, o := range m.all {
		if o.ended != 1 {
			m.fail("%s was completed %d times in the end, its state is %d", o.name, o.ended, o.State)
		}
		if !o.IsSend && o.content != nil && !bytes.Equal(o.content, o.memory) {
			m.fail("the buffer of %s was written after it was complete", o.name)
		}
		if o.IsSend && o.orphan == nil {
			lost := o.Peer != o.at.rank && (o.at.peers[o.Peer].Failed != nil || m.procs[o.Peer].peers[o.at.rank].Failed != nil)
			if o.Got.Cancelled != (o.taken == 0) && !o.givenUp && !lost && o.Err == nil {
				m.fail("%s: cancelled %v, received %d times", o.name, o.Got.Cancelled, o.taken)
			}
			if o.Err != nil && !o.givenUp && !lost {
				m.fail("%s: %v", o.name, o.Err)
			}
		}
	}
	for i, first := range m.all { // the standard's order: no message overtakes an earlier one of its kind
		for _, second := range m.all[i+1:] {
			if first.IsSend && second.IsSend && first.at == second.at && first.Peer == second.Peer && first.Context == second.Context && first.Tag == second.Tag &&
				first.taken > 0 && second.taken > 0 && first.matched > second.matched {
				m.fail("%s has overtaken %s", second.name, first.name)
			}
		}
	}
	for _, p := range m.procs {
		if p.core.selfHeld != 0 {
			m.fail("%d keeps %d bytes of its own", p.rank, p.core.selfHeld)
		}
		for _, peer := range p.peers {
			if peer == nil || peer.Failed != nil {
				continue
			}
			if len(peer.pending)+len(peer.backlog)+len(peer.unexpected)+len(peer.transfers) > 0 || peer.grant.held > 0 {
				m.fail("%d keeps of %d: %d pending, %d to be announced, %d messages, %d transfers, %d bytes", p.rank, peer.Rank,
					len(peer.pending), len(peer.backlog), len(peer.unexpected), len(peer.transfers), peer.grant.held)
			}
		}
	}
}

// try plays a model and returns what is wrong, and the story of it.
func (m *model) try() (wrong string) {
	defer func() {
		if f := recover(); f != nil {
			wrong = fmt.Sprintf("%v\n%s", f, strings.Join(m.story, "\n"))
			if _, is := f.(failure); !is {
				panic(wrong)
			}
		}
	}()
	m.play()
	m.end()
	return ""
}
