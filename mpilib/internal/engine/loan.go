package engine

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/wire"
)

// lendFrom is the size from which on a message is lent to a peer that shares memory: who
// receives it copies it from the sender's own memory, and the sender copies a part itself
// while it waits. Below, the two copies through the ring are sooner done than
// the system calls.
const lendFrom = 64 << 10

// A loan is what an offer's record says of the memory that is lent.
type loan struct {
	addr   uint64 // of the message in the sender's memory
	number int    // in the ring; see shm.Sender.Lend
	is     bool
}

// loanSize is how many bytes say so.
const loanSize = 12

func (l loan) append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, l.addr), uint32(l.number))
}

// loanFrom is for the payload of an offer's record.
func loanFrom(payload []byte) (loan, error) {
	if len(payload) == 0 {
		return loan{}, nil
	}
	var b [loanSize]byte
	if n := copy(b[:], payload); n != loanSize || n != len(payload) {
		return loan{}, fmt.Errorf("%w: a loan in %d bytes", wire.ErrMalformed, len(payload))
	}
	l := loan{addr: binary.BigEndian.Uint64(b[:]), number: int(binary.BigEndian.Uint32(b[8:])), is: true}
	if l.number >= shm.Loans {
		return loan{}, fmt.Errorf("%w: loan %d of %d", wire.ErrMalformed, l.number, shm.Loans)
	}
	return l, nil
}

// lend lends the memory of a send that is to be offered, if that can be. The
// bytes stay where they are: they are not on a stack, since the request refers to them,
// and Go moves nothing else. mu is held.
func (p *peer) lend(r *Request) []byte {
	if n := len(r.buf); !p.out.near || n < lendFrom || n > shm.MaxLent {
		return nil
	}
	i, ok := p.near.tx.Lend(len(r.buf))
	if !ok {
		return nil
	}
	r.lent, r.loan = true, i
	return loan{addr: addressOf(r.buf), number: i}.append(nil)
}

// returned ends the loan of a send, if it has one. mu is held.
func (p *peer) returned(r *Request) {
	if r.lent {
		r.lent = false
		p.near.tx.Free(r.loan)
		p.e.helps = slices.DeleteFunc(p.e.helps, func(h help) bool { return h.r == r })
	}
}

// A help is a loan that this process has given and copies a part of.
type help struct {
	p  *peer
	r  *Request
	to uint64 // in the receiver's memory

	pieces int // that this process took
}

// borrowed is told that the receiver copies what it was lent, to an address of its memory,
// or could not be lent it. mu is held.
func (p *peer) borrowed(env wire.Envelope, payload []byte) error {
	r := p.offers[env.ID]
	var b [8]byte
	if copy(b[:], payload) != len(b) || len(payload) != len(b) || r == nil || !r.lent || r.state != waiting {
		return p.stranger("borrows", env)
	}
	if slices.ContainsFunc(p.e.helps, func(h help) bool { return h.r == r }) {
		return p.stranger("borrows again", env)
	}
	if p.near.mem != nil && r.giveUp == nil {
		p.e.helps = append(p.e.helps, help{p: p, r: r, to: binary.BigEndian.Uint64(b[:])})
	}
	return nil
}

// borrow begins to copy a matched offer that is lent, if that can be. mu is held.
func (p *peer) borrow(r *Request, id uint32, l loan) *inflow {
	if !l.is || p.near.mem == nil || p.failed != nil || r.got.Bytes > shm.MaxLent || !p.near.rx.Borrow(l.number) {
		return nil
	}
	f := &inflow{id: id, r: r, left: r.got.Bytes, loan: l, p: p}
	r.id = id
	p.arriving[id] = f
	p.e.copies = append(p.e.copies, f)
	// Nobody is woken to help: who sleeps has something else to do.
	var head [shm.HeadSize]byte
	wire.Envelope{Kind: wire.EnvelopeBorrow, ID: id}.Append(head[:0])
	if len(p.out.queue) == 0 && p.out.near {
		p.near.tx.TrySend(&head, binary.BigEndian.AppendUint64(nil, addressOf(r.buf)))
	}
	p.e.disturb() // perhaps nobody waits
	return f
}

// toil copies a piece of some message, if there is one to be copied, and reports whether
// anything was done. The polling turn and mu are held, and mu is given up meanwhile.
func (e *Engine) toil() bool {
	for _, f := range e.copies {
		if done := e.copyPiece(f); done {
			e.copies = slices.DeleteFunc(e.copies, func(g *inflow) bool { return g == f })
			return true
		}
		if !f.waits {
			return true
		}
	}
	return e.helpPiece()
}

// copyPiece copies a piece of what was borrowed, and reports whether the whole is
// over. mu is held, and given up meanwhile.
func (e *Engine) copyPiece(f *inflow) (done bool) {
	p, r, n := f.p, f.r, int(f.r.got.Bytes)
	i, ok := p.near.rx.Claim(f.loan.number)
	if !ok {
		if f.waits = !f.settled(); f.waits {
			return false
		}
		delete(p.arriving, f.id)
		p.control(wire.Envelope{Kind: wire.EnvelopeTaken, ID: f.id})
		r.finish(r.giveUp)
		p.dispatch(false)
		return true
	}
	f.own++
	size := shm.Piece(n)
	at := i * size
	if at >= n || (f.own-1)*size >= n { // or what is left of the loan never ends
		p.fail(p.lost("receiving", fmt.Errorf("%w: piece %d of %d bytes, as the %dth", wire.ErrMalformed, i, n, f.own)))
		return true
	}
	if r.giveUp != nil { // nobody wants it
		return false
	}
	part, mem := r.buf[at:min(at+size, n)], p.near.mem
	f.copying = true
	e.mu.Unlock()
	err := mem.Read(part, f.loan.addr+uint64(at))
	e.mu.Lock()
	f.copying = false
	if err != nil {
		p.fail(p.lost("receiving", err))
	}
	if p.failed != nil {
		r.finish(p.failed)
		return true
	}
	return false
}

// settled reports whether every piece that somebody took is copied.
func (f *inflow) settled() bool {
	return f.p.near.rx.Settled(f.loan.number, int(f.r.got.Bytes), f.own)
}

// abandonLoans has a peer that has failed neither copied from nor helped. A receive of
// which a piece is being copied is ended by who does. mu is held.
func (p *peer) abandonLoans() {
	for _, f := range p.e.copies {
		if f.p == p { // should it live, it shall write no more
			p.near.rx.Close(f.loan.number)
		}
	}
	p.e.copies = slices.DeleteFunc(p.e.copies, func(f *inflow) bool { return f.p == p && !f.copying })
	p.e.helps = slices.DeleteFunc(p.e.helps, func(h help) bool { return h.p == p })
}

// helpPiece copies a piece of what this process has lent, and reports whether there was
// one. mu is held, and given up meanwhile.
func (e *Engine) helpPiece() bool {
	for len(e.helps) > 0 {
		h := &e.helps[0]
		p, r := h.p, h.r
		i, ok := 0, false
		if p.failed == nil && r.lent && r.state == waiting && r.giveUp == nil && p.offers[r.id] == r {
			i, ok = p.near.tx.Help(r.loan)
		}
		n := len(r.buf)
		size := shm.Piece(n)
		at := i * size
		if !ok || at >= n || h.pieces*size >= n {
			e.helps = slices.Delete(e.helps, 0, 1)
			continue
		}
		h.pieces++
		part, to, mem := r.buf[at:min(at+size, n)], h.to+uint64(at), p.near.mem
		r.state = moving
		e.mu.Unlock()
		err := mem.Write(part, to)
		e.mu.Lock()
		r.state = waiting
		if err != nil && p.failed == nil {
			p.fail(p.lost("sending", err))
		}
		if p.failed != nil {
			r.finish(p.failed)
			return true
		}
		p.near.tx.Helped(r.loan)
		if p.near.tx.PeerSleeps() {
			p.near.bell = true
			p.dispatch(false)
		}
		if r.ended {
			r.finish(r.giveUp)
		}
		return true
	}
	return false
}
