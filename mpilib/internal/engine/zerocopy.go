package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// zeroCopyFrom is the size in bytes from which on messages between peers that share memory do not go
// through the ring: the receiver copies them from the sender's own memory, and the sender copies a part
// itself while it waits. Below it the two copies through the ring take less time than the system calls.
const zeroCopyFrom = 64 << 10

// expose exposes a send's buffer to the peer for copying, if possible. Its address is
// stable: the buffer is not on a stack, since the request refers to it, and Go moves
// nothing else.
func (t *ringTransport) expose(r *Request) []byte {
	if n := len(r.Buf); n < zeroCopyFrom || n > shm.MaxExposed {
		return nil
	}
	i, ok := t.tx.Expose(len(r.Buf))
	if !ok {
		return nil
	}
	r.exposed, r.slot = true, i
	return protocol.ExposedBuffer{Addr: addressOf(r.Buf), Slot: i}.Append(nil)
}

// endZeroCopy frees the copy slot of a send, if it has one. mu is held.
func (p *peer) endZeroCopy(r *Request) {
	if r.exposed {
		r.exposed = false
		p.transport.ring.tx.Free(r.slot)
		p.e.copies.out = slices.DeleteFunc(p.e.copies.out, func(h help) bool { return h.r == r })
	}
}

// copies holds the zero-copy messages of which pieces are to be copied. The engine's lock guards it.
type copies struct {
	mu  *sync.Mutex // the engine's
	in  []*fetch
	out []help // of which this process may copy a part
}

// any reports whether pieces of messages may be to be copied.
func (c *copies) any() bool { return len(c.in)+len(c.out) > 0 }

// A help is a zero-copy send of which this process copies a part itself.
type help struct {
	p  *peer
	r  *Request
	to uint64 // in the receiver's memory

	pieces int // claimed by this process
}

// copyStarted handles Copying: the receiver copies an exposed buffer, to an address of its memory.
// mu is held.
func (p *peer) copyStarted(env wire.Envelope, payload []byte) error {
	var b [8]byte
	s := p.proto.PendingSend(env.ID)
	if copy(b[:], payload) != len(b) || len(payload) != len(b) || s == nil || !owner(s).exposed || s.State != waiting {
		return protocol.UnknownMessage("copies", env)
	}
	r := owner(s)
	if slices.ContainsFunc(p.e.copies.out, func(h help) bool { return h.r == r }) {
		return protocol.UnknownMessage("copies again", env)
	}
	if p.transport.ring.mem != nil && r.GiveUp == nil {
		p.e.copies.out = append(p.e.copies.out, help{p: p, r: r, to: binary.BigEndian.Uint64(b[:])})
	}
	return nil
}

// A fetch is a transfer whose bytes both processes copy, in pieces.
type fetch struct {
	*protocol.Transfer
	p            *peer
	claimed      int  // pieces, by this process
	awaitsSender bool // all pieces are taken; the sender is copying its last one
}

// startCopy begins to copy the exposed buffer of a matched RTS, and reports whether that is possible. mu is held.
func (p *peer) startCopy(t *protocol.Transfer) bool {
	r := t.Request
	if p.transport.ring.mem == nil || r.Got.Bytes > shm.MaxExposed || !p.transport.ring.rx.Accept(t.Exposed.Slot) {
		return false
	}
	p.e.copies.in = append(p.e.copies.in, &fetch{Transfer: t, p: p})
	// The sender is not woken to help: it sleeps only if it has other work.
	var head [shm.HeadSize]byte
	wire.Envelope{Kind: wire.EnvelopeCopying, ID: t.ID}.Append(head[:0])
	if p.transport.toRing && len(p.transport.queue.entries) == 0 {
		p.transport.ring.tx.TrySend(&head, binary.BigEndian.AppendUint64(nil, addressOf(r.Buf)))
	}
	p.e.rings.requestSweep() // there may be no waiter that polls
	return true
}

// copyOne copies a piece of some message, if there is one to be copied, and reports whether
// it did. The polling token and mu are held, and mu is released meanwhile.
func (c *copies) copyOne() bool {
	for _, f := range c.in {
		if done := c.fetchPiece(f); done {
			c.in = slices.DeleteFunc(c.in, func(g *fetch) bool { return g == f })
			return true
		}
		if !f.awaitsSender {
			return true
		}
	}
	return c.helpPiece()
}

// fetchPiece copies a piece of an exposed buffer, and reports whether the transfer is
// over. mu is held, and released meanwhile.
func (c *copies) fetchPiece(f *fetch) (done bool) {
	p, r, n := f.p, owner(f.Request), int(f.Request.Got.Bytes)
	i, ok := p.transport.ring.rx.Claim(f.Exposed.Slot)
	if !ok {
		if f.awaitsSender = !f.allCopied(); f.awaitsSender {
			return false
		}
		p.proto.FetchDone(f.Transfer)
		p.e.carryOut()
		p.transport.dispatch(false)
		return true
	}
	f.claimed++
	size := shm.Piece(n)
	at := i * size
	if at >= n || (f.claimed-1)*size >= n { // the peer's piece counter is wrong: it would never end
		p.fail(p.linkError("receiving", fmt.Errorf("%w: piece %d of %d bytes, as the %dth", wire.ErrMalformed, i, n, f.claimed)))
		return true
	}
	if r.GiveUp != nil { // the receive was abandoned
		return false
	}
	part, mem := r.Buf[at:min(at+size, n)], p.transport.ring.mem
	f.Busy = true
	c.mu.Unlock()
	err := mem.Read(part, f.Exposed.Addr+uint64(at))
	c.mu.Lock()
	f.Busy = false
	if err != nil {
		p.fail(p.linkError("receiving", err))
	}
	if p.proto.Failed != nil {
		r.finish(p.proto.Failed)
		return true
	}
	return false
}

// allCopied reports whether every claimed piece is copied.
func (f *fetch) allCopied() bool {
	return f.p.transport.ring.rx.Settled(f.Exposed.Slot, int(f.Request.Got.Bytes), f.claimed)
}

// abandonCopies ends copying from and to a peer that has failed. A receive of which a piece is
// being copied is ended by the goroutine that copies it. mu is held.
func (p *peer) abandonCopies() {
	for _, f := range p.e.copies.in {
		if f.p == p { // if the process is alive after all, it must not write any more
			p.transport.ring.rx.Close(f.Exposed.Slot)
		}
	}
	p.e.copies.in = slices.DeleteFunc(p.e.copies.in, func(f *fetch) bool { return f.p == p && !f.Busy })
	p.e.copies.out = slices.DeleteFunc(p.e.copies.out, func(h help) bool { return h.p == p })
}

// helpPiece copies a piece of what this process has exposed, and reports whether there was
// one. mu is held, and released meanwhile.
func (c *copies) helpPiece() bool {
	for len(c.out) > 0 {
		h := &c.out[0]
		p, r := h.p, h.r
		i, ok := 0, false
		if p.proto.Failed == nil && r.exposed && r.State == waiting && r.GiveUp == nil && p.proto.PendingSend(r.ID) == &r.Request {
			i, ok = p.transport.ring.tx.Help(r.slot)
		}
		n := len(r.Buf)
		size := shm.Piece(n)
		at := i * size
		if !ok || at >= n || h.pieces*size >= n {
			c.out = slices.Delete(c.out, 0, 1)
			continue
		}
		h.pieces++
		part, to, mem := r.Buf[at:min(at+size, n)], h.to+uint64(at), p.transport.ring.mem
		r.State = moving
		c.mu.Unlock()
		err := mem.Write(part, to)
		c.mu.Lock()
		r.State = waiting
		if err != nil && p.proto.Failed == nil {
			p.fail(p.linkError("sending", err))
		}
		if p.proto.Failed != nil {
			r.finish(p.proto.Failed)
			return true
		}
		p.transport.ring.tx.Helped(r.slot)
		if p.transport.ring.tx.PeerSleeps() {
			p.transport.link.bellDue = true
			p.transport.dispatch(false)
		}
		if r.IsEnded() {
			r.finish(r.GiveUp)
		}
		return true
	}
	return false
}
