package engine

import (
	"context"
	"slices"

	"github.com/isthmus-grid/isthmus/wire"
)

// queueControl queues an envelope without a message. mu is held.
func (p *peer) queueControl(env wire.Envelope) {
	if p.proto.Failed == nil {
		p.queueOrSend(env, nil)
	}
}

// writable reports whether there is something to write and no goroutine that writes. mu is
// held.
func (p *peer) writable() bool {
	return !p.link.writing.busy && p.link.l != nil && p.proto.Failed == nil && (p.out.forLink() || p.link.bellDue)
}

// post writes what is queued as far as the link takes it without blocking. What others queue
// meanwhile is left to the writer.
// mu is held, and released meanwhile.
func (p *peer) post() {
	wrote := false
	for {
		p.flush()
		b := p.next()
		if b == nil {
			break
		}
		p.link.writing.busy, wrote = true, true
		p.e.mu.Unlock()
		taken, err := p.link.l.Conn.Post(b)
		p.e.mu.Lock()
		p.link.writing.busy = false
		switch {
		case err != nil:
			p.linkLost("sending", err)
		case !taken:
			p.link.queue.putBack(b)
			wake(p.link.writing.wake)
			return
		default:
			p.link.queue.recycle(b)
		}
	}
	if wrote && p.writable() {
		wake(p.link.writing.wake)
	}
}

// next takes out the bytes to post next: a batch, or a bell. mu is held.
func (p *peer) next() []byte {
	switch {
	case !p.writable():
		return nil
	case !p.out.forLink():
		p.link.bellDue = false
		return slices.Clone(bellBytes)
	}
	return p.link.queue.nextBatch()
}

// writer writes what no other goroutine does, until the peer fails or the engine closes.
func (p *peer) writer() {
	e := p.e
	for {
		select {
		case <-p.link.writing.wake:
		case <-e.ctx.Done():
			return
		}
		e.mu.Lock()
		for p.writable() && p.link.writing.waiters == 0 {
			p.link.writing.byWriter = true
			p.write()
			p.link.writing.byWriter = false
		}
		if p.link.writing.waiters > 0 {
			wake(p.link.writing.token)
		}
		failed := p.proto.Failed
		e.mu.Unlock()
		if failed != nil {
			return
		}
	}
}

// writeForWaiter is write for a waiter, which the end of ctx interrupts. mu is held.
func (p *peer) writeForWaiter(ctx context.Context) {
	p.link.writing.ctx.watch(p.e, ctx, p.interruptWrite)
	p.write()
}

// awaitWriteToken sleeps until the peer's own goroutine, which is writing, leaves the rest to
// this waiter: otherwise one more thread would want a processor. mu is
// held, and given up meanwhile.
func (p *peer) awaitWriteToken(ctx context.Context, r *Request) {
	done, stop := r.finished(), ctx.Done()
	if r.GiveUp != nil {
		stop = nil
	}
	p.link.writing.waiters++
	p.e.mu.Unlock()
	select {
	case <-done:
	case <-p.link.writing.token:
	case <-stop:
	}
	p.e.mu.Lock()
	if p.link.writing.waiters--; p.link.writing.waiters > 0 && !p.link.writing.byWriter {
		wake(p.link.writing.token)
	}
}

// write takes the next segments and writes them. mu is held, and released meanwhile.
func (p *peer) write() {
	p.link.writing.busy = true
	p.link.writing.count++
	bufs := p.link.queue.bufs[:0]
	lent := false
	if p.out.forLink() {
		lent = p.link.queue.take(&p.out.bulk)
	} else {
		p.link.queue.taken, p.link.bellDue = p.link.queue.taken[:0], false
		bufs = append(bufs, bellBytes)
	}
	for _, s := range p.link.queue.taken {
		if len(s.copied) > 0 {
			bufs = append(bufs, s.copied)
		}
		if s.n > 0 {
			bufs = append(bufs, s.r.Buf[s.at:s.at+s.n])
		}
	}
	p.link.queue.bufs = bufs
	conn := p.link.l.Conn
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
	p.link.writing.busy = false
	p.flush()
}

// wrote handles the end of a write of n bytes. mu is held.
func (p *peer) wrote(n int64, mark uint64, err error) {
	if wasInterrupted(&p.link.writing.interrupted, err, p.link.l.Conn.SetWriteDeadline) {
		p.requeue(n)
		err = nil
	}
	if err != nil {
		p.linkLost("sending", err)
	}
	for i, s := range p.link.queue.taken {
		p.link.queue.taken[i] = segment{}
		r := s.r
		if r == nil {
			p.link.queue.recycle(s.copied)
			continue
		}
		r.mark = max(r.mark, mark)
		if why := p.proto.Written(&r.Request, s.last); why != nil {
			p.abandon(r, why)
		}
	}
	p.e.carryOut()
}

// requeue puts a copy of the unwritten rest of the taken segments first in the queue: the
// stream needs those bytes.
func (p *peer) requeue(n int64) {
	var rest []byte
	for _, b := range p.link.queue.bufs {
		k := min(int64(len(b)), n)
		n -= k
		rest = append(rest, b[k:]...)
	}
	if len(rest) > 0 {
		p.link.queue.putBack(rest)
	}
}
