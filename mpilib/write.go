package mpilib

import (
	"errors"
	"net"
	"os"
	"time"
)

// maxTaken bounds what the writer takes at once in bytes, apart from the last
// message taken; it is also what giving up one send can cost in copies.
const maxTaken = 4 << 20

// write sends what is queued until the peer fails or the engine closes.
func (p *peer) write() {
	for {
		taken := p.takeQueue()
		if taken == nil {
			return
		}
		if err := p.writeAll(taken); err != nil {
			p.engine.mu.Lock()
			lost := p.lost("sending", err)
			for _, s := range taken {
				if s.lent != nil {
					p.engine.finish(s.lent, lost)
				}
			}
			p.fail(lost)
			p.engine.mu.Unlock()
			return
		}
		p.written(taken)
	}
}

// takeQueue waits for something to send and takes it; nil means the end.
func (p *peer) takeQueue() []segment {
	e := p.engine
	for {
		e.mu.Lock()
		if p.failed != nil || e.ctx.Err() != nil {
			e.mu.Unlock()
			return nil
		}
		if len(p.queue) > 0 {
			taken := p.cutQueue()
			e.mu.Unlock()
			return taken
		}
		e.mu.Unlock()
		select {
		case <-p.toWriter:
		case <-e.ctx.Done():
		}
	}
}

// cutQueue takes segments off the queue's front until maxTaken is reached.
func (p *peer) cutQueue() []segment {
	n, bytes := 0, 0
	for n < len(p.queue) && bytes < maxTaken {
		s := p.queue[n]
		bytes += len(s.copied)
		if s.lent != nil {
			bytes += len(s.lent.buf)
			s.lent.state = moving
		} else {
			p.gathered -= len(s.copied)
		}
		n++
	}
	taken := p.queue[:n:n]
	p.queue = append([]segment(nil), p.queue[n:]...)
	return taken
}

// writeAll writes the segments in one system call where the kernel takes that
// much. A send that is given up meanwhile is complete as soon as the rest is
// copied: the stream needs its bytes, its owner the buffer.
func (p *peer) writeAll(taken []segment) error {
	bufs := make(net.Buffers, 0, 2*len(taken))
	for _, s := range taken {
		if len(s.copied) > 0 {
			bufs = append(bufs, s.copied)
		}
		if s.lent != nil && len(s.lent.buf) > 0 {
			bufs = append(bufs, s.lent.buf)
		}
	}
	conn := p.link.Conn
	for {
		n, err := conn.WriteBuffers(bufs)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		bufs = advance(bufs, n)
		conn.SetWriteDeadline(time.Time{}) // before looking: a later interruption is not lost
		bufs = p.detach(taken, bufs)
	}
}

// advance returns bufs without the first n bytes.
func advance(bufs net.Buffers, n int64) net.Buffers {
	for len(bufs) > 0 && n >= int64(len(bufs[0])) {
		n -= int64(len(bufs[0]))
		bufs = bufs[1:]
	}
	if n > 0 {
		bufs[0] = bufs[0][n:]
	}
	return bufs
}

// detach completes the sends among taken if one was given up, and returns what
// remains to be written, then in memory of its own.
func (p *peer) detach(taken []segment, rest net.Buffers) net.Buffers {
	e := p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	var givenUp bool
	for _, s := range taken {
		givenUp = givenUp || s.lent != nil && s.lent.state == moving && s.lent.giveUp != nil
	}
	if !givenUp {
		return rest
	}
	var own []byte
	for _, b := range rest {
		own = append(own, b...)
	}
	for _, s := range taken {
		if s.lent != nil {
			e.finish(s.lent, s.lent.giveUp)
		}
	}
	return net.Buffers{own}
}

// written completes the sends and keeps one batch's memory for the next.
func (p *peer) written(taken []segment) {
	e := p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range taken {
		if s.lent != nil {
			e.finish(s.lent, nil)
		} else if cap(s.copied) <= 2*batchSize {
			p.spare = s.copied[:0]
		}
	}
}
