package engine

import "context"

// writable reports whether there is something to write and no goroutine that writes. mu is
// held.
func (t *linkTransport) writable() bool {
	return !t.writing.busy && t.l != nil && t.proto.Failed == nil && t.pending()
}

// writeAvailable writes the queue as far as the link accepts it without blocking. Bytes that other
// goroutines queue meanwhile are left to the writer.
// mu is held, and released meanwhile.
func (t *linkTransport) writeAvailable() {
	wrote := false
	for {
		t.user.flush()
		b := t.nextWrite()
		if b == nil {
			break
		}
		t.writing.busy, wrote = true, true
		t.mu.Unlock()
		taken, err := t.l.Conn.Post(b)
		t.mu.Lock()
		t.writing.busy = false
		switch {
		case err != nil:
			t.user.linkLost("sending", err)
		case !taken:
			t.queue.putBack(b)
			wake(t.writing.wake)
			return
		default:
			t.queue.recycle(b)
		}
	}
	if wrote && (t.writable() || t.hasValues()) {
		wake(t.writing.wake)
	}
}

// dispatch writes what was appended and the queue, and wakes the writer for the remainder; with hold the caller will
// write that. mu is held, and may be released.
func (t *linkTransport) dispatch(hold bool) {
	if t.unflushed {
		t.unflushed = false
		conn := t.l.Conn
		t.mu.Unlock()
		conn.Flush()
		t.mu.Lock()
	}
	t.writeAvailable()
	if !hold && t.writable() {
		t.wakeWriter()
	}
}

// nextWrite removes and returns the bytes that writeAvailable writes next: a batch, or a bell. mu is held.
func (t *linkTransport) nextWrite() []byte {
	switch {
	case !t.writable():
		return nil
	case !t.queued():
		t.bellDue = false
		b := append(t.queue.spare[:0], bellBytes...)
		t.queue.spare = nil // until it is recycled
		return b
	}
	return t.queue.nextBatch()
}

// writer writes the queue while no other goroutine does, until the peer fails or the engine closes.
func (t *linkTransport) writer() {
	for {
		select {
		case <-t.writing.wake:
		case <-t.ctx.Done():
			return
		}
		t.mu.Lock()
		for t.writes() && t.writing.waiters == 0 { // a waiter writes its own message
		}
		if t.writing.waiters > 0 {
			wake(t.writing.token)
		}
		failed := t.proto.Failed
		t.mu.Unlock()
		if failed != nil {
			return
		}
	}
}

// writes writes messages, then a piece of a slot's value, and reports whether it wrote anything. mu is held, and
// released meanwhile.
func (t *linkTransport) writes() (wrote bool) {
	t.writing.byWriter = true
	defer func() { t.writing.byWriter = false }()
	if t.writable() && t.writing.waiters == 0 {
		t.write()
		wrote = true
	}
	if t.hasValues() {
		t.writeValue()
		wrote = true
	}
	return wrote
}

// hasValues reports whether a piece of a slot's value can be written now. mu is held.
func (t *linkTransport) hasValues() bool {
	return !t.writing.busy && !t.queue.torn && t.l != nil && t.proto.Failed == nil && !t.proto.Gone && t.values.Pending()
}

// writeValue writes a piece of a slot's value, and waits until the kernel has it: as long as that takes, newer values
// replace those that wait. mu is held, and released meanwhile.
func (t *linkTransport) writeValue() {
	v := t.values
	t.writing.busy, v.Writes = true, true
	t.writing.count++
	env, b := v.NextPiece(maxPiece)
	v.Taken(len(b))
	t.queue.taken = t.queue.taken[:0]
	t.queue.head = env.Append(t.queue.head[:0])
	bufs := append(t.queue.bufs[:0], t.queue.head, b)
	t.queue.bufs = bufs
	t.mu.Unlock()
	n, err := t.l.Conn.WriteBuffers(bufs)
	if err == nil {
		err = t.l.AwaitSent()
	}
	t.mu.Lock()
	t.wrote(n, 0, err)
	clear(bufs)
	t.writing.busy, v.Writes = false, false
	t.user.flush()
}

// writeForWaiter is write for a waiter, which the end of ctx interrupts. mu is held.
func (t *linkTransport) writeForWaiter(ctx context.Context) {
	if t.writing.ctx.ctx != ctx {
		t.writing.ctx.watch(t.mu, ctx, t.interruptWrite)
	}
	t.write()
}

// awaitWriteToken sleeps until the peer's own goroutine, which is writing, leaves the remainder to
// this waiter: otherwise one more thread would need a processor. mu is
// held, and released meanwhile.
func (t *linkTransport) awaitWriteToken(ctx context.Context, r *Request) {
	done, stop := r.finished(), ctx.Done()
	if r.GiveUp != nil {
		stop = nil
	}
	t.writing.waiters++
	t.mu.Unlock()
	select {
	case <-done:
	case <-t.writing.token:
	case <-stop:
	}
	t.mu.Lock()
	if t.writing.waiters--; t.writing.waiters > 0 && !t.writing.byWriter {
		wake(t.writing.token)
	} else if t.hasValues() {
		wake(t.writing.wake)
	}
}

// write takes the next segments and writes them. mu is held, and released meanwhile.
func (t *linkTransport) write() {
	t.writing.busy = true
	t.writing.count++
	bufs := t.queue.bufs[:0]
	uncopied := false
	if t.queued() {
		uncopied = t.queue.take(&t.bulk)
	} else {
		t.queue.taken, t.bellDue = t.queue.taken[:0], false
		bufs = append(bufs, bellBytes)
	}
	for _, s := range t.queue.taken {
		if len(s.copied) > 0 {
			bufs = append(bufs, s.copied)
		}
		if s.n > 0 {
			bufs = append(bufs, s.r.Buf[s.at:s.at+s.n])
		}
	}
	t.queue.bufs = bufs
	conn := t.l.Conn
	t.mu.Unlock()
	var n int64
	var mark uint64
	var err error
	if uncopied {
		n, mark, err = conn.Lend(bufs)
	} else {
		n, err = conn.WriteBuffers(bufs)
	}
	t.mu.Lock()
	t.wrote(n, mark, err)
	clear(bufs)
	t.writing.busy = false
	t.user.flush()
	if !t.writing.byWriter && t.hasValues() {
		wake(t.writing.wake)
	}
}

// wrote handles the end of a write of n bytes. mu is held.
func (t *linkTransport) wrote(n int64, mark uint64, err error) {
	if wasInterrupted(&t.writing.interrupted, err, t.l.Conn.SetWriteDeadline) {
		t.requeue(n)
		err = nil
	}
	if err != nil {
		t.user.linkLost("sending", err)
	}
	for i, s := range t.queue.taken {
		t.queue.taken[i] = segment{}
		r := s.r
		if r == nil {
			t.queue.recycle(s.copied)
			continue
		}
		r.mark = max(r.mark, mark)
		t.user.written(r, s.last)
	}
	t.user.carryOut()
}

// requeue puts a copy of the unwritten bytes of the taken segments first in the queue: they
// are part of the stream.
func (t *linkTransport) requeue(n int64) {
	var unwritten []byte
	for _, b := range t.queue.bufs {
		k := min(int64(len(b)), n)
		n -= k
		unwritten = append(unwritten, b[k:]...)
	}
	if len(unwritten) > 0 {
		t.queue.putBack(unwritten)
	}
}
