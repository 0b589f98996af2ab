package mpilib

import (
	"context"
	"slices"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// Send is the package's Send of a Part. A message that is one piece of memory is
// sent from there, as a slice is; others are packed, once, before the call goes on.
func (c *Comm) Send(ctx context.Context, p Part, dst, tag int) error {
	return c.sentPart(ctx, p, dst, tag, engine.Standard)
}

// Ssend is the package's Ssend of a Part.
func (c *Comm) Ssend(ctx context.Context, p Part, dst, tag int) error {
	return c.sentPart(ctx, p, dst, tag, engine.Synchronous)
}

// Bsend is the package's Bsend of a Part.
func (c *Comm) Bsend(ctx context.Context, p Part, dst, tag int) error {
	return c.sentPart(ctx, p, dst, tag, engine.Buffered)
}

// Rsend is the package's Rsend of a Part.
func (c *Comm) Rsend(ctx context.Context, p Part, dst, tag int) error {
	return c.sentPart(ctx, p, dst, tag, engine.Standard)
}

// Recv is the package's Recv into a Part. Status.Count is Undefined when the
// message ends within an element of a datatype, which is no error;
// Status.GetElements says more.
func (c *Comm) Recv(ctx context.Context, p Part, src, tag int) (Status, error) {
	return c.Irecv(p, src, tag).waitOver(ctx)
}

// Isend is the package's Isend of a Part.
func (c *Comm) Isend(p Part, dst, tag int) *Request {
	return c.startPart(p, dst, tag, engine.Standard, false)
}

// Issend is the package's Issend of a Part.
func (c *Comm) Issend(p Part, dst, tag int) *Request {
	return c.startPart(p, dst, tag, engine.Synchronous, false)
}

// Ibsend is the package's Ibsend of a Part.
func (c *Comm) Ibsend(p Part, dst, tag int) *Request {
	return c.startPart(p, dst, tag, engine.Buffered, false)
}

// Irsend is the package's Irsend of a Part.
func (c *Comm) Irsend(p Part, dst, tag int) *Request {
	return c.startPart(p, dst, tag, engine.Standard, false)
}

func (c *Comm) sentPart(ctx context.Context, p Part, dst, tag int, mode engine.Mode) error {
	_, err := c.startPart(p, dst, tag, mode, true).Wait(ctx)
	return err
}

// startPart is start of a Part.
func (c *Comm) startPart(p Part, dst, tag int, mode engine.Mode, hold bool) *Request {
	what := transfer{comm: c, send: true, peer: dst, tag: tag, elem: 1, signed: c.signs()}
	err := p.err
	if err == nil {
		err = c.checkSend(dst, tag)
	}
	if err != nil {
		return failedRequest(what, err)
	}
	if dst == ProcNull {
		return nullRequest(what)
	}
	if !c.signs() {
		return c.isend(what, c.context, p.packed(), mode, hold)
	}
	b, err := p.signed()
	if err != nil {
		return failedRequest(what, err)
	}
	return c.isend(what, c.context, b, mode, hold)
}

// Irecv is the package's Irecv into a Part. A message for a Part that is not one
// piece of memory is there once Wait or its like has told of its arrival.
func (c *Comm) Irecv(p Part, src, tag int) *Request {
	what := transfer{comm: c, peer: src, tag: tag, elem: 1, signed: c.signs()}
	err := p.err
	if err == nil {
		err = c.checkRecv(src, tag)
	}
	if err != nil {
		return failedRequest(what, err)
	}
	if src == ProcNull {
		return nullRequest(what)
	}
	into := c.arrivalAt(p)
	r := c.irecv(what, c.context, into.buf)
	r.own().into = into
	return r
}

// Recv is MRecv into a Part.
func (m Message) Recv(ctx context.Context, p Part) (Status, error) { return m.Irecv(p).Wait(ctx) }

// Irecv is MIrecv into a Part.
func (m Message) Irecv(p Part) *Request {
	c := m.comm
	what := transfer{comm: c, peer: m.Status.Source, tag: m.Status.Tag, elem: 1, signed: c.signs()}
	if p.err != nil {
		return failedRequest(what, p.err)
	}
	if m.Status.Source == ProcNull {
		return nullRequest(what)
	}
	r := newRequest(what)
	r.own().into = c.arrivalAt(p)
	if w := c.world.watch; w != nil {
		w.Started((*watchedRequest)(r), c.context, len(r.into.buf))
	}
	m.matched.StartRecv(&r.core, (*senders)(c), r.into.buf)
	return r
}

// Sendrecv is the package's Sendrecv of Parts.
func (c *Comm) Sendrecv(ctx context.Context, send Part, dst, sendtag int, recv Part, src, recvtag int) (Status, error) {
	return both(ctx, c.Irecv(recv, src, recvtag), c.Isend(send, dst, sendtag))
}

// SendrecvReplace is the package's SendrecvReplace of a Part.
func (c *Comm) SendrecvReplace(ctx context.Context, p Part, dst, sendtag, src, recvtag int) (Status, error) {
	out := p
	if p.err == nil {
		out.message, out.pieces = p.packed(), false
		if !p.pieces {
			out.message = slices.Clone(out.message)
		}
	}
	return c.Sendrecv(ctx, out, dst, sendtag, p, src, recvtag)
}

// SendInit is the package's SendInit of a Part.
func (c *Comm) SendInit(p Part, dst, tag int) *Persistent {
	return c.initPart(p, dst, tag, engine.Standard)
}

// SsendInit is the package's SsendInit of a Part.
func (c *Comm) SsendInit(p Part, dst, tag int) *Persistent {
	return c.initPart(p, dst, tag, engine.Synchronous)
}

// BsendInit is the package's BsendInit of a Part.
func (c *Comm) BsendInit(p Part, dst, tag int) *Persistent {
	return c.initPart(p, dst, tag, engine.Buffered)
}

// RsendInit is the package's RsendInit of a Part.
func (c *Comm) RsendInit(p Part, dst, tag int) *Persistent {
	return c.initPart(p, dst, tag, engine.Standard)
}

func (c *Comm) initPart(p Part, dst, tag int, mode engine.Mode) *Persistent {
	return &Persistent{
		what:  transfer{comm: c, send: true, peer: dst, tag: tag},
		again: func() *Request { return c.startPart(p, dst, tag, mode, false) },
	}
}

// RecvInit is the package's RecvInit into a Part.
func (c *Comm) RecvInit(p Part, src, tag int) *Persistent {
	return &Persistent{
		what:  transfer{comm: c, peer: src, tag: tag},
		again: func() *Request { return c.Irecv(p, src, tag) },
	}
}

// arrival is a message's way into a Part: what is left to do once it is here.
type arrival struct {
	part Part
	head int    // bytes of the signature before the message
	buf  []byte // where it arrives: the Part's own memory, or other

	once  sync.Once // guards the rest
	count int
	err   error
}

func (c *Comm) arrivalAt(p Part) *arrival {
	a := &arrival{part: p, head: c.head()}
	if a.head > 0 {
		a.buf = make([]byte, a.head+p.size)
	} else {
		a.buf = p.landing()
	}
	return a
}

// land puts a message of n bytes that has arrived where it belongs, the first
// time, and counts its elements.
func (a *arrival) land(n int) (int, error) {
	a.once.Do(func() {
		if a.head > 0 {
			if a.err = a.part.accepts(a.buf[:a.head]); a.err != nil {
				return
			}
			a.part.scatter(a.buf[a.head:][:n], 0)
		} else {
			a.part.land(a.buf[:n])
		}
		a.count, a.err = a.part.counted(n)
		a.buf = nil
	})
	return a.count, a.err
}
