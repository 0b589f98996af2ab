package collectives

import (
	"context"
	"fmt"
)

// send is Comm.Send with the transfer named in the error.
func send(ctx context.Context, c Comm, dst int, buf []byte) error {
	if err := c.Send(ctx, dst, buf); err != nil {
		return fmt.Errorf("send %d bytes to rank %d: %w", len(buf), dst, err)
	}
	return nil
}

// recv is Comm.Recv with the transfer named in the error.
func recv(ctx context.Context, c Comm, src int, buf []byte) error {
	if err := c.Recv(ctx, src, buf); err != nil {
		return fmt.Errorf("receive %d bytes from rank %d: %w", len(buf), src, err)
	}
	return nil
}

// sendrecv exchanges with dst and src at once, so that a ring of ranks doing
// the same cannot wait for each other. The receive is posted first: the
// message then finds its buffer.
func sendrecv(ctx context.Context, c Comm, dst int, sbuf []byte, src int, rbuf []byte) error {
	b := batch{c: c, posted: make([]transfer, 0, 2)}
	b.recv(src, rbuf)
	b.send(dst, sbuf)
	return b.wait(ctx)
}

// batch is a set of transfers under way together.
type batch struct {
	c      Comm
	posted []transfer
}

type transfer struct {
	req   Request
	sends bool
	peer  int
	bytes int
}

func (b *batch) send(dst int, buf []byte) {
	b.posted = append(b.posted, transfer{b.c.Isend(dst, buf), true, dst, len(buf)})
}

func (b *batch) recv(src int, buf []byte) {
	b.posted = append(b.posted, transfer{b.c.Irecv(src, buf), false, src, len(buf)})
}

// wait waits for every transfer; after the first failure it gives the others
// up, so that all buffers are idle when it returns, and reports that failure.
//
// Waiting in the order of posting cannot deadlock: whichever transfer is first,
// its peer has posted the other half or will after finishing batches that some
// rank further behind feeds, and the rank furthest behind waits for nobody.
func (b *batch) wait(ctx context.Context) error {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var first error
	for _, t := range b.posted {
		err := t.req.Wait(ctx)
		if err == nil || first != nil {
			continue
		}
		giveUp()
		if t.sends {
			first = fmt.Errorf("send %d bytes to rank %d: %w", t.bytes, t.peer, err)
		} else {
			first = fmt.Errorf("receive %d bytes from rank %d: %w", t.bytes, t.peer, err)
		}
	}
	return first
}
