package engine

import (
	"context"
	"slices"

	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// gatherBelow is the size from which a message is written from the caller's buffer
	// instead of being copied into a batch (about where a copy costs more than a system
	// call).
	gatherBelow = 16 << 10
	batchSize   = 64 << 10 // bytes of copied messages written by one system call
	maxBatches  = 256      // queued; further messages stay in their callers' buffers
	maxTaken    = 1 << 20  // bytes taken at a time, apart from the last message
	chunk       = 1 << 20  // of a message whose CTS has come: other messages may go between
)

// outgoing is what is queued for a peer.
type outgoing struct {
	queue  []segment  // in order
	viaShm bool       // new segments go through shared memory, one envelope each
	bulk   []*Request // sends whose CTS has come, one chunk each in rotation; after the queue
	spare  []byte     // memory for the next batch
	taken  []segment  // memory for what is being written
	bufs   [][]byte
}

// segment is a piece of the outgoing stream: copied bytes, then perhaps n bytes of a send's
// buffer, from at on. One for shared memory has its envelope in head.
type segment struct {
	head   [wire.EnvelopeLen]byte // where viaShm
	copied []byte
	r      *Request
	at, n  int
	last   bool // the send is complete when it is written
	viaShm bool // it goes through shared memory
}

func (o *outgoing) any() bool { return len(o.queue) > 0 || len(o.bulk) > 0 }

// forLink reports whether the next segment is for the link.
func (o *outgoing) forLink() bool {
	if len(o.queue) > 0 {
		return !o.queue[0].viaShm
	}
	return len(o.bulk) > 0 && !o.viaShm
}

// add appends an envelope and a small message to the last batch, or to a new one.
func (o *outgoing) add(env wire.Envelope, b []byte) {
	n := len(o.queue)
	if o.viaShm {
		s := segment{viaShm: true, copied: slices.Clone(b)}
		env.Append(s.head[:0])
		o.queue = append(o.queue, s)
		return
	}
	if n == 0 || o.queue[n-1].r != nil || len(o.queue[n-1].copied)+wire.EnvelopeLen+len(b) > batchSize {
		o.queue = append(o.queue, segment{copied: o.spare})
		o.spare = nil
		n++
	}
	last := &o.queue[n-1]
	last.copied = append(env.Append(last.copied), b...)
}

// addFromBuffer appends an envelope and n bytes of r's buffer.
func (o *outgoing) addFromBuffer(env wire.Envelope, r *Request, at, n int, last bool) {
	o.add(env, nil)
	s := &o.queue[len(o.queue)-1]
	s.r, s.at, s.n, s.last = r, at, n, last
}

// remove takes r's buffer out of the queue, with its envelope, which is at the end of the
// segment's copied bytes if the segment is not viaShm.
func (o *outgoing) remove(r *Request) {
	for i := range o.queue {
		if s := &o.queue[i]; s.r == r && !s.viaShm {
			s.copied = s.copied[:len(s.copied)-wire.EnvelopeLen]
			s.r, s.n = nil, 0
		}
	}
	o.queue = slices.DeleteFunc(o.queue, func(s segment) bool {
		return s.r == r || !s.viaShm && s.r == nil && len(s.copied) == 0
	})
	o.bulk = slices.DeleteFunc(o.bulk, func(b *Request) bool { return b == r })
}

// replace writes another request's buffer in r's place.
func (o *outgoing) replace(r, by *Request) {
	for i := range o.queue {
		if o.queue[i].r == r {
			o.queue[i].r = by
		}
	}
	for i, b := range o.bulk {
		if b == r {
			o.bulk[i] = by
		}
	}
}

func (o *outgoing) fail(err error) {
	for _, s := range o.queue {
		if s.r != nil {
			s.r.finish(err)
		}
	}
	for _, r := range o.bulk {
		r.finish(err)
	}
	o.queue, o.bulk = nil, nil
}

// take moves the next segments to taken. lent says that the callers' buffers in them must stay
// unchanged until the peer has acknowledged the bytes. The state of their requests is moving.
func (o *outgoing) take() (lent bool) {
	o.taken = o.taken[:0]
	if len(o.queue) == 0 {
		r := o.bulk[0]
		n := min(chunk, int(r.got.Bytes)-r.at)
		env := wire.Envelope{Kind: wire.EnvelopeData, ID: r.id, Length: uint64(n)}
		o.taken = append(o.taken, segment{copied: env.Append(nil), r: r, at: r.at, n: n})
		r.at += n
		o.bulk = append(o.bulk[1:], r)
		if r.at == int(r.got.Bytes) {
			o.bulk = o.bulk[:len(o.bulk)-1]
		}
		r.state = moving
		return true
	}
	n, bytes := 0, 0
	lent = o.queue[0].r != nil && !o.queue[0].last
	for n < len(o.queue) && bytes < maxTaken {
		s := o.queue[n]
		if s.viaShm || (s.r != nil && !s.last) != lent {
			break
		}
		bytes += len(s.copied) + s.n
		if s.r != nil {
			s.r.state = moving
		}
		n++
	}
	o.taken = append(o.taken, o.queue[:n]...)
	left := copy(o.queue, o.queue[n:])
	clear(o.queue[left:])
	o.queue = o.queue[:left]
	return lent
}

// queueControl queues an envelope without a message. mu is held.
func (p *peer) queueControl(env wire.Envelope) {
	if p.failed == nil {
		p.queueOrSend(env, nil)
	}
}

// writable reports whether there is something to write and no goroutine that writes. mu is
// held.
func (p *peer) writable() bool {
	return !p.writing.busy && p.link != nil && p.failed == nil && (p.out.forLink() || p.shm.bellDue)
}

// post writes what is queued as far as the link takes it without blocking. What others queue
// meanwhile is left to the writer.
// mu is held, and released meanwhile.
func (p *peer) post() {
	wrote := false
	for {
		if p.out.viaShm {
			p.flush()
		}
		b := p.next()
		if b == nil {
			break
		}
		p.writing.busy, wrote = true, true
		p.e.mu.Unlock()
		taken, err := p.link.Conn.Post(b)
		p.e.mu.Lock()
		p.writing.busy = false
		switch {
		case err != nil:
			p.linkLost("sending", err)
		case !taken:
			p.out.queue = slices.Insert(p.out.queue, 0, segment{copied: b})
			wake(p.writing.wake)
			return
		default:
			p.recycle(b)
		}
	}
	if wrote && p.writable() {
		wake(p.writing.wake)
	}
}

// next takes out the bytes to post next: a batch, or a bell. mu is held.
func (p *peer) next() []byte {
	switch {
	case !p.writable():
		return nil
	case !p.out.forLink():
		p.shm.bellDue = false
		return slices.Clone(bellBytes)
	case len(p.out.queue) == 0 || p.out.queue[0].r != nil:
		return nil
	}
	b := p.out.queue[0].copied
	left := copy(p.out.queue, p.out.queue[1:])
	p.out.queue[left] = segment{}
	p.out.queue = p.out.queue[:left]
	return b
}

func (p *peer) recycle(b []byte) {
	if cap(b) <= 2*batchSize && cap(b) > cap(p.out.spare) {
		p.out.spare = b[:0]
	}
}

// writer writes what no other goroutine does, until the peer fails or the engine closes.
func (p *peer) writer() {
	e := p.e
	for {
		select {
		case <-p.writing.wake:
		case <-e.ctx.Done():
			return
		}
		e.mu.Lock()
		for p.writable() && p.writing.waiters == 0 {
			p.writing.byWriter = true
			p.write()
			p.writing.byWriter = false
		}
		if p.writing.waiters > 0 {
			wake(p.writing.token)
		}
		failed := p.failed
		e.mu.Unlock()
		if failed != nil {
			return
		}
	}
}

// writeForWaiter is write for a waiter, which the end of ctx interrupts. mu is held.
func (p *peer) writeForWaiter(ctx context.Context) {
	p.writing.ctx.watch(p.e, ctx, p.interruptWrite)
	p.write()
}

// awaitWriteToken sleeps until the peer's own goroutine, which is writing, leaves the rest to
// this waiter: otherwise one more thread would want a processor. mu is
// held, and given up meanwhile.
func (p *peer) awaitWriteToken(ctx context.Context, r *Request) {
	done, stop := r.finished(), ctx.Done()
	if r.giveUp != nil {
		stop = nil
	}
	p.writing.waiters++
	p.e.mu.Unlock()
	select {
	case <-done:
	case <-p.writing.token:
	case <-stop:
	}
	p.e.mu.Lock()
	if p.writing.waiters--; p.writing.waiters > 0 && !p.writing.byWriter {
		wake(p.writing.token)
	}
}

// write takes the next segments and writes them. mu is held, and released meanwhile.
func (p *peer) write() {
	p.writing.busy = true
	p.writing.count++
	bufs := p.out.bufs[:0]
	lent := false
	if p.out.forLink() {
		lent = p.out.take()
	} else {
		p.out.taken, p.shm.bellDue = p.out.taken[:0], false
		bufs = append(bufs, bellBytes)
	}
	for _, s := range p.out.taken {
		if len(s.copied) > 0 {
			bufs = append(bufs, s.copied)
		}
		if s.n > 0 {
			bufs = append(bufs, s.r.buf[s.at:s.at+s.n])
		}
	}
	p.out.bufs = bufs
	conn := p.link.Conn
	p.e.mu.Unlock()
	var n int64
	var mark uint64
	var err error
	if lent {
		n, mark, err = conn.Lend(bufs)
	} else {
		n, err = conn.WriteBuffers(bufs)
	}
	p.e.mu.Lock()
	p.wrote(n, mark, err)
	clear(bufs)
	p.writing.busy = false
	if p.out.viaShm {
		p.flush()
	}
}

// wrote handles the end of a write of n bytes. mu is held.
func (p *peer) wrote(n int64, mark uint64, err error) {
	if wasInterrupted(&p.writing.interrupted, err, p.link.Conn.SetWriteDeadline) {
		p.requeue(n)
		err = nil
	}
	if err != nil {
		p.linkLost("sending", err)
	}
	for i, s := range p.out.taken {
		p.out.taken[i] = segment{}
		r := s.r
		if r == nil {
			p.recycle(s.copied)
			continue
		}
		r.mark = max(r.mark, mark)
		switch {
		case p.failed != nil:
			r.finish(p.failed)
		case s.last && r.mode != Synchronous:
			r.finish(r.giveUp) // the link refers to none of it any more
		case r.ended:
			p.out.remove(r)
			r.finish(r.giveUp)
		case r.giveUp != nil:
			r.state = waiting
			p.abandon(r, r.giveUp)
		default:
			r.state = waiting
			p.queueRest(r)
		}
	}
}

// requeue puts a copy of the unwritten rest of the taken segments first in the queue: the
// stream needs those bytes.
func (p *peer) requeue(n int64) {
	var rest []byte
	for _, b := range p.out.bufs {
		k := min(int64(len(b)), n)
		n -= k
		rest = append(rest, b[k:]...)
	}
	if len(rest) > 0 {
		p.out.queue = slices.Insert(p.out.queue, 0, segment{copied: rest})
	}
}
