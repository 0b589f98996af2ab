package mpilib

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// Send is the package's Send of a Part. A contiguous message is sent from its memory, as a slice
// is; others are packed, once, before the call proceeds.
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

// Recv is the package's Recv into a Part. Status.Count is Undefined if the message ends within an
// element of a datatype, which is not an error; Status.GetElements gives more detail.
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
	err := p.p.Err
	if err == nil {
		err = c.core.CheckSend(dst, tag)
	}
	if err != nil {
		return failedRequest(what, err)
	}
	if dst == ProcNull {
		return nullRequest(what)
	}
	if !c.signs() {
		return c.isend(what, c.core.Context, p.p.Packed(), mode, hold)
	}
	b, err := p.p.Signed()
	if err != nil {
		return failedRequest(what, err)
	}
	return c.isend(what, c.core.Context, b, mode, hold)
}

// Irecv is the package's Irecv into a Part. A message for a noncontiguous Part is in its place once
// Wait or a similar call has reported its completion.
func (c *Comm) Irecv(p Part, src, tag int) *Request {
	what := transfer{comm: c, peer: src, tag: tag, elem: 1, signed: c.signs()}
	err := p.p.Err
	if err == nil {
		err = c.core.CheckRecv(src, tag)
	}
	if err != nil {
		return failedRequest(what, err)
	}
	if src == ProcNull {
		return nullRequest(what)
	}
	into := buffer.ArrivalAt(p.p, c.head())
	r := c.irecv(what, c.core.Context, into.Buf)
	r.ownExtra().into = into
	return r
}

// Recv is MRecv into a Part.
func (m Message) Recv(ctx context.Context, p Part) (Status, error) { return m.Irecv(p).Wait(ctx) }

// Irecv is MIrecv into a Part.
func (m Message) Irecv(p Part) *Request {
	c := m.comm
	what := transfer{comm: c, peer: m.Status.Source, tag: m.Status.Tag, elem: 1, signed: c.signs()}
	if p.p.Err != nil {
		return failedRequest(what, p.p.Err)
	}
	if m.Status.Source == ProcNull {
		return nullRequest(what)
	}
	r := newRequest(what)
	r.ownExtra().into = buffer.ArrivalAt(p.p, c.head())
	if w := c.world.watch; w != nil {
		w.Started((*watchedRequest)(r), c.core.Context, len(r.into.Buf))
	}
	m.matched.StartRecv(&r.core, c.core.Senders(), r.into.Buf)
	return r
}

// Sendrecv is the package's Sendrecv of Parts.
func (c *Comm) Sendrecv(ctx context.Context, send Part, dst, sendtag int, recv Part, src, recvtag int) (Status, error) {
	return both(ctx, c.Irecv(recv, src, recvtag), c.Isend(send, dst, sendtag))
}

// SendrecvReplace is the package's SendrecvReplace of a Part.
func (c *Comm) SendrecvReplace(ctx context.Context, p Part, dst, sendtag, src, recvtag int) (Status, error) {
	return c.Sendrecv(ctx, Part{p.p.Copied()}, dst, sendtag, p, src, recvtag)
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
