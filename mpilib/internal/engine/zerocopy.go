package engine

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/wire"
)

// zeroCopyFrom is the size from which on a peer that shares memory copies a message without the ring: who
// receives it copies it from the sender's own memory, and the sender copies a part itself
// while it waits. Below, the two copies through the ring are sooner done than
// the system calls.
const zeroCopyFrom = 64 << 10

// A zeroCopy is what an RTS's record says of the sender's buffer.
type zeroCopy struct {
	addr  uint64 // of the message in the sender's memory
	slot  int    // in the ring; see shm.Sender.Lend
	valid bool
}

// zeroCopySize is how many bytes say so.
const zeroCopySize = 12

func (l zeroCopy) append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, l.addr), uint32(l.slot))
}

// parseZeroCopy is for the payload of an RTS's record.
func parseZeroCopy(payload []byte) (zeroCopy, error) {
	if len(payload) == 0 {
		return zeroCopy{}, nil
	}
	var b [zeroCopySize]byte
	if n := copy(b[:], payload); n != zeroCopySize || n != len(payload) {
		return zeroCopy{}, fmt.Errorf("%w: a copy slot described in %d bytes", wire.ErrMalformed, len(payload))
	}
	l := zeroCopy{addr: binary.BigEndian.Uint64(b[:]), slot: int(binary.BigEndian.Uint32(b[8:])), valid: true}
	if l.slot >= shm.CopySlots {
		return zeroCopy{}, fmt.Errorf("%w: copy slot %d of %d", wire.ErrMalformed, l.slot, shm.CopySlots)
	}
	return l, nil
}

// exposeBuffer lets the peer copy a send's buffer by itself, if that can be. The
// bytes stay where they are: they are not on a stack, since the request refers to them,
// and Go moves nothing else. mu is held.
func (p *peer) exposeBuffer(r *Request) []byte {
	if n := len(r.buf); !p.out.inRing || n < zeroCopyFrom || n > shm.MaxExposed {
		return nil
	}
	i, ok := p.shm.tx.Expose(len(r.buf))
	if !ok {
		return nil
	}
	r.exposed, r.slot = true, i
	return zeroCopy{addr: addressOf(r.buf), slot: i}.append(nil)
}

// endZeroCopy frees the copy slot of a send, if it has one. mu is held.
func (p *peer) endZeroCopy(r *Request) {
	if r.exposed {
		r.exposed = false
		p.shm.tx.Free(r.slot)
		p.e.helps = slices.DeleteFunc(p.e.helps, func(h help) bool { return h.r == r })
	}
}

// A help is a zero-copy send of which this process copies a part itself.
type help struct {
	p  *peer
	r  *Request
	to uint64 // in the receiver's memory

	pieces int // that this process took
}

// copyStarted is told that the receiver copies an exposed buffer, to an address of its memory,
// or cannot. mu is held.
func (p *peer) copyStarted(env wire.Envelope, payload []byte) error {
	r := p.sends.pending[env.ID]
	var b [8]byte
	if copy(b[:], payload) != len(b) || len(payload) != len(b) || r == nil || !r.exposed || r.state != waiting {
		return p.unknownMessage("copies", env)
	}
	if slices.ContainsFunc(p.e.helps, func(h help) bool { return h.r == r }) {
		return p.unknownMessage("copies again", env)
	}
	if p.shm.mem != nil && r.giveUp == nil {
		p.e.helps = append(p.e.helps, help{p: p, r: r, to: binary.BigEndian.Uint64(b[:])})
	}
	return nil
}

// startCopy begins to copy the exposed buffer of a matched RTS, if that can be. mu is held.
func (p *peer) startCopy(r *Request, id uint32, l zeroCopy) *transfer {
	if !l.valid || p.shm.mem == nil || p.failed != nil || r.got.Bytes > shm.MaxExposed || !p.shm.rx.Accept(l.slot) {
		return nil
	}
	f := &transfer{id: id, r: r, left: r.got.Bytes, zeroCopy: l, p: p}
	r.id = id
	p.arrivals.moving[id] = f
	p.e.copies = append(p.e.copies, f)
	// Nobody is woken to help: who sleeps has something else to do.
	var head [shm.HeadSize]byte
	wire.Envelope{Kind: wire.EnvelopeCopying, ID: id}.Append(head[:0])
	if p.out.clear() {
		p.shm.tx.TrySend(&head, binary.BigEndian.AppendUint64(nil, addressOf(r.buf)))
	}
	p.e.requestSweep() // perhaps nobody waits
	return f
}

// copyOnePiece copies a piece of some message, if there is one to be copied, and reports whether
// anything was done. The polling token and mu are held, and mu is released meanwhile.
func (e *Engine) copyOnePiece() bool {
	for _, f := range e.copies {
		if done := e.copyPiece(f); done {
			e.copies = slices.DeleteFunc(e.copies, func(g *transfer) bool { return g == f })
			return true
		}
		if !f.awaitsSender {
			return true
		}
	}
	return e.helpPiece()
}

// copyPiece copies a piece of an exposed buffer, and reports whether the whole is
// over. mu is held, and released meanwhile.
func (e *Engine) copyPiece(f *transfer) (done bool) {
	p, r, n := f.p, f.r, int(f.r.got.Bytes)
	i, ok := p.shm.rx.Claim(f.zeroCopy.slot)
	if !ok {
		if f.awaitsSender = !f.allCopied(); f.awaitsSender {
			return false
		}
		delete(p.arrivals.moving, f.id)
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeTaken, ID: f.id})
		r.finish(r.giveUp)
		p.dispatch(false)
		return true
	}
	f.claimed++
	size := shm.Piece(n)
	at := i * size
	if at >= n || (f.claimed-1)*size >= n { // or what is left never ends
		p.fail(p.linkError("receiving", fmt.Errorf("%w: piece %d of %d bytes, as the %dth", wire.ErrMalformed, i, n, f.claimed)))
		return true
	}
	if r.giveUp != nil { // nobody wants it
		return false
	}
	part, mem := r.buf[at:min(at+size, n)], p.shm.mem
	f.copying = true
	e.mu.Unlock()
	err := mem.Read(part, f.zeroCopy.addr+uint64(at))
	e.mu.Lock()
	f.copying = false
	if err != nil {
		p.fail(p.linkError("receiving", err))
	}
	if p.failed != nil {
		r.finish(p.failed)
		return true
	}
	return false
}

// allCopied reports whether every piece that somebody took is copied.
func (f *transfer) allCopied() bool {
	return f.p.shm.rx.Settled(f.zeroCopy.slot, int(f.r.got.Bytes), f.claimed)
}

// abandonCopies has a peer that has failed neither copied from nor helped. A receive of
// which a piece is being copied is ended by who does. mu is held.
func (p *peer) abandonCopies() {
	for _, f := range p.e.copies {
		if f.p == p { // should it live, it shall write no more
			p.shm.rx.Close(f.zeroCopy.slot)
		}
	}
	p.e.copies = slices.DeleteFunc(p.e.copies, func(f *transfer) bool { return f.p == p && !f.copying })
	p.e.helps = slices.DeleteFunc(p.e.helps, func(h help) bool { return h.p == p })
}

// helpPiece copies a piece of what this process has exposed, and reports whether there was
// one. mu is held, and released meanwhile.
func (e *Engine) helpPiece() bool {
	for len(e.helps) > 0 {
		h := &e.helps[0]
		p, r := h.p, h.r
		i, ok := 0, false
		if p.failed == nil && r.exposed && r.state == waiting && r.giveUp == nil && p.sends.pending[r.id] == r {
			i, ok = p.shm.tx.Help(r.slot)
		}
		n := len(r.buf)
		size := shm.Piece(n)
		at := i * size
		if !ok || at >= n || h.pieces*size >= n {
			e.helps = slices.Delete(e.helps, 0, 1)
			continue
		}
		h.pieces++
		part, to, mem := r.buf[at:min(at+size, n)], h.to+uint64(at), p.shm.mem
		r.state = moving
		e.mu.Unlock()
		err := mem.Write(part, to)
		e.mu.Lock()
		r.state = waiting
		if err != nil && p.failed == nil {
			p.fail(p.linkError("sending", err))
		}
		if p.failed != nil {
			r.finish(p.failed)
			return true
		}
		p.shm.tx.Helped(r.slot)
		if p.shm.tx.PeerSleeps() {
			p.shm.bellDue = true
			p.dispatch(false)
		}
		if r.ended {
			r.finish(r.giveUp)
		}
		return true
	}
	return false
}
