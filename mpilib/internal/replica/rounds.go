package replica

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/agree"
)

// MaxSpares is how many spare numbers a job with replicas may have: newcomers are agreed on by flags.
const MaxSpares = 62 // two flags are for the following

// The flags of an agreement about newcomers; the others are of newcomers, by spare number.
const (
	quiet      = 1 << 63 // no message is here that no receive has matched
	consistent = 1 << 62 // nothing is here of a process that had passed the milestone before it failed
)

// A stage is how far this process is in bringing newcomers to their seats:
//
//	idle > counting > bound > draining > drained > inspecting > choosing > loading > loaded > switching > idle
//
// Behind choosing and loaded it may be idle again, with the layout as it was.
type stage uint8

const (
	idle       stage = iota
	counting         // has said to which milestone the program has come
	bound            // knows at which one all stop
	draining         // is there, and not everything is acknowledged
	drained          // has said so
	inspecting       // all have; what is here that should not be?
	choosing         // has said so, and which newcomers it is prepared for
	loading          // some newcomers are to load what others save
	loaded           // has said which have
	switching        // has the new layout, and has said so
)

// rounds is what brings newcomers to their seats.
type rounds struct {
	stage   stage
	over    bool   // this process has come to its end
	count   uint64 // milestones that the program has come to
	counted uint64 // count when this process began the round
	target  uint64 // the milestone at which the round stops all
	refused uint64 // the last one at which messages were found

	member    *agree.Member // by seat
	started   uint64        // agreements of member
	seen      uint64        // the highest of which a message came
	former    *agree.Member // of the layout before, until all have left that
	formerly  Layout
	newcomers map[int]*newcomer // by process
	expected  []int             // those of the round, ascending
	saved     bool              // State was sent
	totals    map[int]total     // by rank
	damaged   map[int]bool      // ranks that had lost seats when all had drained
	early     []earlyMessage
	heldBack  []int        // ranks of which nobody is left, unless the round brings somebody
	watched   map[int]bool // processes that Watch was for,
	invited   map[int]bool // and Begin, in this round
	joining   joining
}

// A newcomer is a process that is to take a seat.
type newcomer struct {
	seat   Seat
	ready  bool
	round  uint64 // the milestone whose state it has loaded,
	loaded bool   // or could not
}

// A total is how many messages a rank had sent to this one when it came to a milestone.
type total struct{ milestone, messages uint64 }

// An earlyMessage is of a layout that this process does not have yet.
type earlyMessage struct {
	from    int
	message Message
}

// init is for a process whose layout and failures are those of the beginning.
func (r *rounds) init(p *Process) {
	r.newcomers, r.totals = map[int]*newcomer{}, map[int]total{}
	if p.isSeated() {
		r.newMember(p)
	} else {
		r.joining = joining{layout: p.cfg.Layout, joined: map[int]bool{}, welcomed: map[int]bool{}}
	}
}

// newMember begins the agreements of a layout.
func (r *rounds) newMember(p *Process) {
	r.member, r.started, r.seen = agree.New(p.cfg.seatOf(p.cfg.Process), p.cfg.Seats()), 0, 0
	r.watched = map[int]bool{}
}

// start contributes to the next agreement of the layout.
func (r *rounds) start(p *Process, v agree.Value) {
	r.started++
	_, out := r.member.Start(v)
	r.carryOut(p, r.member, p.cfg.Layout, out)
}

// carryOut does what a member asks for.
func (r *rounds) carryOut(p *Process, m *agree.Member, l Layout, out agree.Out) {
	for _, e := range out.Send {
		if to := l.holder(e.To); !p.failed[to] {
			p.emit(Effect{Kind: SendControl, Process: to, Message: Message{Kind: Agree, Epoch: l.Epoch, Data: e.Message.Append(nil)}})
		}
	}
	if m != r.member {
		return
	}
	for seat := range m.WaitsFor().Ranks() {
		r.await(p, l.holder(seat))
	}
	for _, d := range out.Decided {
		r.decided(p, d.Value)
	}
}

// await sees to it that a process that this one waits for takes part, or that its failure becomes known.
func (r *rounds) await(p *Process, q int) {
	if p.failed[q] {
		return
	}
	if !r.watched[q] {
		r.watched[q] = true
		p.emit(Effect{Kind: Watch, Process: q})
	}
	if r.stage == counting && !r.invited[q] {
		r.invited[q] = true // it may wait for nothing, and be the one that leads after failures
		p.sendControl(q, Message{Kind: Begin, Count: r.started})
	}
}

// decided goes on with what all have agreed on. All that it depends on is in v, or the same in all processes.
func (r *rounds) decided(p *Process, v agree.Value) {
	switch r.stage {
	case counting:
		r.stage, r.target = bound, v.Max+1
		r.arrive(p)
	case drained:
		r.stage = inspecting
		r.beginAudit(p, v.Failed)
	case choosing:
		r.choose(p, v)
	case loaded:
		r.admit(p, v)
	case switching:
		r.stage, r.former = idle, nil
	}
	p.emit(Effect{Kind: Wake})
}

// arrive begins to drain if the program has come to the milestone of the round.
func (r *rounds) arrive(p *Process) {
	if r.stage == bound && r.count == r.target {
		r.stage = draining
		p.Drain()
	}
}

// progress does what can be done without another message.
func (r *rounds) progress(p *Process) {
	for !p.expelled && p.isSeated() && r.step(p) {
	}
}

// step does one thing, or returns false.
func (r *rounds) step(p *Process) bool {
	switch r.stage {
	case idle:
		if r.seen <= r.started && !r.isDue(p) {
			return false
		}
		r.stage, r.counted, r.invited = counting, r.count, map[int]bool{}
		r.start(p, agree.Value{Flags: math.MaxUint64, Max: r.count})
	case draining:
		if !p.Drained() {
			return false
		}
		r.stage = drained
		r.start(p, agree.Value{Flags: math.MaxUint64})
	case loading:
		flags, settled := r.haveLoaded(p)
		if !settled {
			return false
		}
		r.stage = loaded
		r.start(p, agree.Value{Flags: flags})
	default:
		return false
	}
	return true
}

// isDue reports whether there is a newcomer that may take its seat.
func (r *rounds) isDue(p *Process) bool {
	for q, n := range r.newcomers {
		if n.ready && r.isPrepared(p, q) {
			return true
		}
	}
	return false
}

// isPrepared reports whether a newcomer may take its seat, as far as this process knows.
func (r *rounds) isPrepared(p *Process, q int) bool {
	n := r.newcomers[q]
	return n != nil && !p.failed[q] && (n.round == 0 || n.loaded) && p.failed[p.cfg.Layout.Process(n.seat.Rank, n.seat.Replica)]
}

// flagOf is that of a newcomer.
func flagOf(p *Process, q int) uint64 { return 1 << (q - p.cfg.Seats()) }

// inspected contributes for which newcomers this process is prepared, and whether there are messages here.
func (r *rounds) inspected(p *Process, unreceived bool) {
	checkAllSurplus(p)
	r.stage = choosing
	var flags uint64
	if !unreceived {
		flags = quiet
	}
	if r.isConsistent(p) {
		flags |= consistent
	}
	for q := range r.newcomers {
		if r.isPrepared(p, q) {
			flags |= flagOf(p, q)
		}
	}
	r.start(p, agree.Value{Flags: flags})
	r.progress(p)
}

// choose begins to load the newcomers that all are prepared for, if that can end well.
func (r *rounds) choose(p *Process, v agree.Value) {
	taken := map[Seat]bool{}
	r.expected = nil
	for _, q := range slices.Sorted(maps.Keys(r.newcomers)) {
		if seat := r.newcomers[q].seat; v.Flags&flagOf(p, q) != 0 && !taken[seat] {
			taken[seat] = true
			r.expected = append(r.expected, q)
		}
	}
	switch {
	case v.Flags&consistent == 0:
		r.finish(p) // the next milestone is later than what the failed one has done, or that after it
	case v.Flags&quiet == 0:
		r.refused = r.target
		r.finish(p)
	case len(r.expected) == 0:
		r.finish(p)
	default:
		r.stage, r.saved = loading, false
	}
}

// hasDeadRank reports whether a rank has lost all its seats.
func hasDeadRank(l Layout, failed agree.Set) bool {
	for rank := range l.Ranks {
		if lowest(l.Replicas, func(c int) bool { return !failed.Has(l.seat(rank, c)) }) < 0 {
			return true
		}
	}
	return false
}

// finish ends a round that leaves the layout as it is.
func (r *rounds) finish(p *Process) {
	r.stage, p.draining, r.expected = idle, false, nil
	lost := r.heldBack
	r.heldBack = nil
	for _, rank := range lost {
		p.emit(Effect{Kind: Lost, Rank: rank})
	}
}

// isGiver reports whether this process is to save its state for a newcomer.
func (r *rounds) isGiver(p *Process) bool {
	if r.stage != loading || r.saved || lowest(p.cfg.Replicas, p.alive(p.rank)) != p.replica {
		return false
	}
	return slices.ContainsFunc(r.expected, func(q int) bool { return r.newcomers[q].seat.Rank == p.rank && !p.failed[q] })
}

// save sends what the program saved to the newcomers of its rank, or that it could not.
func (r *rounds) save(p *Process, data []byte, ok bool) {
	r.saved = true
	for _, q := range r.expected {
		if r.newcomers[q].seat.Rank == p.rank {
			p.sendControl(q, Message{Kind: State, Count: r.target, Moves: p.cfg.Moves(), OK: ok, Data: data})
		}
	}
}

// haveLoaded returns which newcomers have loaded, and whether it is known of all.
func (r *rounds) haveLoaded(p *Process) (flags uint64, settled bool) {
	for _, q := range r.expected {
		switch n := r.newcomers[q]; {
		case p.failed[q]:
		case n.round == r.target:
			if n.loaded {
				flags |= flagOf(p, q)
			}
		case lowest(p.cfg.Replicas, p.alive(n.seat.Rank)) >= 0:
			return 0, false
		}
	}
	return flags, true
}

// admit takes the layout with the newcomers that have loaded, if there are any and each rank has somebody then.
func (r *rounds) admit(p *Process, v agree.Value) {
	var moves []Move
	failed := v.Failed
	for _, q := range r.expected {
		if seat := r.newcomers[q].seat; v.Flags&flagOf(p, q) != 0 {
			moves = append(moves, Move{p.cfg.seat(seat.Rank, seat.Replica), q})
			failed = failed.Minus(agree.SetOf(moves[len(moves)-1].Seat))
		}
	}
	if len(moves) == 0 || hasDeadRank(p.cfg.Layout, failed) {
		r.finish(p)
		return
	}
	next := p.cfg.next(moves)
	var dead []int
	for seat := range failed.Ranks() {
		dead = append(dead, next.holder(seat))
	}
	slices.Sort(dead)
	r.former, r.formerly = r.member, p.cfg.Layout
	newcomers := slices.Sorted(maps.Keys(r.newcomers))
	r.enter(p, next, dead)
	for _, q := range newcomers {
		p.sendControl(q, r.newsFor(p, q, dead))
	}
}

// newsFor is how a process with a spare number is told of a new layout: it has a seat there, or it has none.
func (r *rounds) newsFor(p *Process, q int, dead []int) Message {
	if p.cfg.seatOf(q) >= 0 {
		return Message{Kind: Admit, Count: r.target, Failed: dead, Moves: p.cfg.Moves()}
	}
	return Message{Kind: Welcome, Moves: p.cfg.Moves()}
}

// enter begins anew in a layout, in which certain processes have failed.
func (r *rounds) enter(p *Process, l Layout, dead []int) {
	known := p.failed
	moved := slices.DeleteFunc(l.Moves(), func(m Move) bool { return p.cfg.seatOf(m.Process) >= 0 })
	p.cfg.Layout, p.failed = l, make([]bool, l.Size())
	for _, q := range dead {
		p.failed[q] = true
	}
	p.begin()
	for _, m := range moved {
		delete(r.newcomers, m.Process)
		p.emit(Effect{Kind: Seated, Process: m.Process, Rank: m.Seat % l.Ranks})
	}
	r.newMember(p)
	r.stage, r.expected, r.heldBack = switching, nil, nil
	for _, q := range dead {
		r.carryOut(p, r.member, l, r.member.Fail(l.seatOf(q)))
	}
	r.start(p, agree.Value{Flags: math.MaxUint64})
	var others []int
	for q, failed := range known {
		if failed && !p.failed[q] {
			others = append(others, q)
		}
	}
	p.recordFailures(others, false)
	early := r.early
	r.early = nil
	for _, e := range early {
		_ = p.Receive(e.from, e.message) // its sender is found out when it sends another one
	}
	r.progress(p)
}

// failed takes note of failures.
func (r *rounds) failed(p *Process, fresh []int) {
	if !p.isSeated() {
		r.joining.progress(p)
		p.emit(Effect{Kind: Wake})
		return
	}
	for _, q := range fresh {
		if seat := p.cfg.seatOf(q); seat >= 0 {
			r.carryOut(p, r.member, p.cfg.Layout, r.member.Fail(seat))
		}
		if r.former != nil {
			if seat := r.formerly.seatOf(q); seat >= 0 {
				r.carryOut(p, r.former, r.formerly, r.former.Fail(seat))
			}
		}
	}
	r.progress(p)
	if r.stage != idle {
		p.emit(Effect{Kind: Wake}) // this process may be the one to save now
	}
}

// lost takes note that a rank has nobody left.
func (r *rounds) lost(p *Process, rank int) {
	if r.stage == choosing || r.stage == loading || r.stage == loaded {
		r.heldBack = append(r.heldBack, rank)
		return
	}
	p.emit(Effect{Kind: Lost, Rank: rank})
}

// receive takes a message of a round, or one of another layout.
func (r *rounds) receive(p *Process, from int, m Message) error {
	if r.over {
		return nil
	}
	var err error
	switch {
	case !p.isSeated():
		err = r.joining.receive(p, from, m)
	case m.Epoch > p.cfg.Epoch && m.Kind != Admit:
		r.early = append(r.early, earlyMessage{from, m})
	case m.Kind == Join:
		r.join(p, from, m.Seat)
	case m.Kind == Ready || m.Kind == Loaded:
		err = r.receiveFromNewcomer(p, from, m)
	case m.Kind == Begin && m.Epoch == p.cfg.Epoch:
		r.seen = max(r.seen, m.Count)
	case m.Kind == Total && m.Epoch == p.cfg.Epoch && p.cfg.seatOf(from) >= 0:
		r.totals[p.cfg.Rank(from)] = total{m.Count, m.Used}
		p.emit(Effect{Kind: Wake})
	case m.Kind == Agree:
		err = r.receiveAgree(p, from, m)
	}
	r.progress(p)
	return err
}

// join notes a newcomer.
func (r *rounds) join(p *Process, from int, seat Seat) {
	if p.cfg.seatOf(from) < 0 && from >= p.cfg.Seats() {
		if r.newcomers[from] == nil {
			r.newcomers[from] = &newcomer{seat: seat}
		}
		p.sendControl(from, Message{Kind: Welcome, Moves: p.cfg.Moves()})
	}
}

func (r *rounds) receiveFromNewcomer(p *Process, from int, m Message) error {
	n := r.newcomers[from]
	switch {
	case n == nil && p.cfg.seatOf(from) < 0:
		return fmt.Errorf("%w: %v of process %d, which has not joined", ErrProtocol, m.Kind, from)
	case n == nil: // it was admitted meanwhile
	case m.Kind == Ready:
		n.ready = true
	default:
		n.round, n.loaded = m.Count, m.OK
	}
	return nil
}

// receiveAgree passes a message to the member that it is for.
func (r *rounds) receiveAgree(p *Process, from int, m Message) error {
	member, l := r.member, p.cfg.Layout
	switch {
	case m.Epoch == l.Epoch:
	case r.former != nil && m.Epoch == r.formerly.Epoch:
		member, l = r.former, r.formerly
	default:
		return nil
	}
	msg, err := agree.Parse(m.Data, l.Seats())
	if err != nil || l.seatOf(from) < 0 {
		return fmt.Errorf("%w: %v of process %d: %w", ErrProtocol, m.Kind, from, err)
	}
	if member == r.member {
		r.seen = max(r.seen, msg.Seq)
	}
	out, err := member.Receive(l.seatOf(from), msg)
	switch {
	case errors.Is(err, agree.ErrExpelled):
		p.recordFailures([]int{p.cfg.Process}, true)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	default:
		r.carryOut(p, member, l, out)
	}
	return nil
}
