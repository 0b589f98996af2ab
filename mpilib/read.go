package mpilib

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/isthmus-grid/isthmus/wire"
)

// readBuffer gathers small messages into one system call; larger reads go
// past it.
const readBuffer = 64 << 10

// hardLimit times the limit of unexpected messages ends the link.
const hardLimit = 16

// read takes messages off the link and matches them until it ends.
func (p *peer) read() {
	conn := &patientConn{Conn: p.link.Conn}
	err := p.readMessages(&incoming{Reader: bufio.NewReaderSize(conn, readBuffer), conn: conn})
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	if p.engine.ctx.Err() != nil {
		p.link.Conn.Close()
		return
	}
	p.fail(p.lost("receiving", err))
}

func (p *peer) readMessages(in *incoming) error {
	var head [wire.EnvelopeLen]byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			if err == io.EOF {
				err = errors.New("the peer closed it")
			}
			return err
		}
		env, err := wire.ParseEnvelope(head[:])
		if err != nil {
			return err
		}
		switch env.Kind {
		case wire.EnvelopeMessage:
			err = p.readMessage(in, env)
		case wire.EnvelopeGoodbye:
			p.engine.mu.Lock()
			p.depart()
			p.control(wire.EnvelopeConfirm)
			p.engine.mu.Unlock()
		case wire.EnvelopeConfirm:
			p.engine.mu.Lock()
			p.confirmedFirst = true
			p.confirm()
			p.engine.mu.Unlock()
		}
		if err != nil {
			return err
		}
	}
}

// readMessage reads one message to where it belongs.
func (p *peer) readMessage(in *incoming, env wire.Envelope) error {
	n, tag := int(env.Length), int(env.Tag)
	r, err := p.admit(env)
	switch {
	case errors.Is(err, ErrFinalized):
		_, err = in.Discard(n)
		return noEOF(err)
	case err != nil:
		return err
	case r != nil:
		return p.readInto(in, r, n)
	}
	msg := &message{source: p.rank, tag: tag, data: make([]byte, n)}
	if _, err := io.ReadFull(in, msg.data); err != nil {
		return noEOF(err)
	}
	// Its receive may have been posted while it was read.
	e := p.engine
	e.mu.Lock()
	m := e.matcherOf(env.Context)
	r = m.arrive(p.rank, tag)
	if r == nil {
		e.arrive(m, msg)
		e.mu.Unlock()
		return nil
	}
	e.unpost(r)
	r.state, r.source = moving, p.rank
	e.mu.Unlock()
	e.copyTo(r, msg)
	return nil
}

// admit returns the receive that the message belongs to, in state moving, or
// nil when it is to be kept. It waits while there is no room to keep it.
func (p *peer) admit(env wire.Envelope) (*Request, error) {
	e := p.engine
	n := int(env.Length)
	e.mu.Lock()
	defer e.mu.Unlock()
	p.stats.messagesReceived++
	p.stats.bytesReceived += env.Length
	for {
		if r := e.matcherOf(env.Context).arrive(p.rank, int(env.Tag)); r != nil {
			e.unpost(r)
			r.state, r.source, r.tag = moving, p.rank, int(env.Tag)
			return r, nil
		}
		if e.ctx.Err() != nil || p.failed != nil {
			return nil, net.ErrClosed
		}
		if e.closed != nil {
			return nil, e.closed
		}
		wanted := p.expected > 0 || e.wildcard > 0 || p.oneMore
		verdict := room(p.held, heldBytes(n), e.limit, wanted)
		if verdict == roomNever {
			return nil, fmt.Errorf("%d bytes of its messages wait here for a receive, %d more came, and a receive waits for another message; "+
				"receive them in the order they are sent or raise WithUnexpectedLimit (%d)", p.held, n, e.limit)
		}
		if verdict == roomNow {
			p.oneMore = false
			p.held += heldBytes(n)
			return nil, nil
		}
		e.mu.Unlock()
		select {
		case <-p.toReader:
		case <-e.ctx.Done():
		}
		e.mu.Lock()
	}
}

type roomVerdict uint8

const (
	roomNow   roomVerdict = iota
	roomLater             // stop reading until something is received or waited for
	roomNever             // something is waited for, and the hard limit is reached
)

// room decides whether n more bytes may be kept beside those held. wanted says
// that a receive or probe waits which the messages behind might satisfy.
func room(held, n, limit int, wanted bool) roomVerdict {
	switch {
	case held+n <= limit:
		return roomNow
	case !wanted && held == 0 && n <= limit*hardLimit:
		return roomNow // else a program that only probes would never see it
	case !wanted:
		return roomLater
	case held+n <= limit*hardLimit:
		return roomNow
	}
	return roomNever
}

// readInto reads n bytes into r's buffer.
func (p *peer) readInto(in *incoming, r *Request, n int) error {
	if err := truncated(n, len(r.buf)); err != nil {
		_, skipErr := in.Discard(n)
		p.finish(r, n, err)
		return noEOF(skipErr)
	}
	buf := r.buf[:n]
	in.conn.tell = true
	defer func() { in.conn.tell = false }()
	for read := 0; read < n; {
		k, err := in.Read(buf[read:])
		read += k
		if errors.Is(err, errInterrupted) {
			if p.givenUp(r) {
				in.conn.tell = false
				_, err = in.Discard(n - read)
				return noEOF(err)
			}
			continue
		}
		if err != nil {
			p.engine.mu.Lock()
			p.engine.finish(r, p.lost("receiving", noEOF(err)))
			p.engine.mu.Unlock()
			return noEOF(err)
		}
	}
	p.finish(r, n, nil)
	return nil
}

func (p *peer) finish(r *Request, n int, err error) {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	r.bytes = n
	p.engine.finish(r, err)
}

// givenUp completes r if its owner waits no longer.
func (p *peer) givenUp(r *Request) bool {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	if r.giveUp == nil {
		return false
	}
	p.engine.finish(r, r.giveUp)
	return true
}

func noEOF(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the peer closed it in the middle of a message")
	}
	return err
}

// incoming is the stream from the peer.
type incoming struct {
	*bufio.Reader
	conn *patientConn
}

var errInterrupted = errors.New("interrupted")

// patientConn takes back the deadlines by which interruptRead wakes the
// reader, and goes on reading or, with tell, returns errInterrupted once.
type patientConn struct {
	net.Conn
	tell bool
}

func (c *patientConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		c.Conn.SetReadDeadline(time.Time{})
		if c.tell {
			return 0, errInterrupted
		}
	}
}
