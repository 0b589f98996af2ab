package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// Barrier returns nil once every rank has entered it.
func Barrier(ctx context.Context, comm *Comm) error {
	call, err := comm.nextCall()
	if err == nil {
		err = collectives.Barrier(ctx, call)
	}
	return comm.called("Barrier", err)
}

// Bcast copies root's buf into buf on every rank. All have the same length.
func Bcast[T Elem](ctx context.Context, comm *Comm, buf []T, root int) error {
	call, err := comm.nextCall(rooted[T](root, len(buf)))
	if err != nil {
		return comm.called("Bcast", err)
	}
	b, err := view(buf)
	if err == nil {
		err = collectives.Bcast(ctx, call, b, root)
	}
	return comm.called("Bcast", err)
}

// Reduce leaves at root, in recv, the elementwise reduction of every rank's
// send in rank order. recv is as long as send at root, where it may be send
// itself, and ignored elsewhere.
func Reduce[T Elem](ctx context.Context, comm *Comm, send, recv []T, op Op[T], root int) error {
	call, err := comm.nextCall(rooted[T](root, len(send)).with(op))
	if err != nil {
		return comm.called("Reduce", err)
	}
	s, r, _, err := views(send, recv)
	if err != nil {
		return comm.called("Reduce", err)
	}
	o, err := bytesOp(op)
	if err == nil {
		err = collectives.Reduce(ctx, call, s, r, o, root)
	}
	return comm.called("Reduce", err)
}

// Allreduce is Reduce with the result, the same bits, on every rank. recv is
// as long as send and may be send itself.
func Allreduce[T Elem](ctx context.Context, comm *Comm, send, recv []T, op Op[T]) error {
	call, err := comm.nextCall(counted[T](len(send)).with(op))
	if err != nil {
		return comm.called("Allreduce", err)
	}
	s, r, _, err := views(send, recv)
	if err != nil {
		return comm.called("Allreduce", err)
	}
	o, err := bytesOp(op)
	if err == nil {
		err = collectives.Allreduce(ctx, call, s, r, o)
	}
	return comm.called("Allreduce", err)
}

// Gather puts rank r's send at recv[r*len(send):] at root. recv has
// Size()*len(send) elements there and is ignored elsewhere.
func Gather[T Elem](ctx context.Context, comm *Comm, send, recv []T, root int) error {
	call, err := comm.nextCall(rooted[T](root, len(send)))
	if err != nil {
		return comm.called("Gather", err)
	}
	s, r, _, err := views(send, recv)
	if err == nil {
		err = collectives.Gather(ctx, call, s, r, root)
	}
	return comm.called("Gather", err)
}

// Gatherv puts rank r's send at recv[displs[r]:displs[r]+counts[r]] at root.
// Counts and displacements are in elements; they and recv are ignored
// elsewhere. counts[r] must be the length of rank r's send.
func Gatherv[T Elem](ctx context.Context, comm *Comm, send, recv []T, counts, displs []int, root int) error {
	call, err := comm.nextCall(rootOnly[T](root))
	if err != nil {
		return comm.called("Gatherv", err)
	}
	s, r, size, err := views(send, recv)
	if err == nil {
		err = collectives.Gatherv(ctx, call, s, r, times(counts, size), times(displs, size), root)
	}
	return comm.called("Gatherv", err)
}

// Allgather is Gather with the result on every rank.
func Allgather[T Elem](ctx context.Context, comm *Comm, send, recv []T) error {
	call, err := comm.nextCall(counted[T](len(send)))
	if err != nil {
		return comm.called("Allgather", err)
	}
	s, r, _, err := views(send, recv)
	if err == nil {
		err = collectives.Allgather(ctx, call, s, r)
	}
	return comm.called("Allgather", err)
}

// Scatter fills rank r's recv from root's send[r*len(recv):]. send has
// Size()*len(recv) elements there and is ignored elsewhere.
func Scatter[T Elem](ctx context.Context, comm *Comm, send, recv []T, root int) error {
	call, err := comm.nextCall(rooted[T](root, len(recv)))
	if err != nil {
		return comm.called("Scatter", err)
	}
	s, r, _, err := views(send, recv)
	if err == nil {
		err = collectives.Scatter(ctx, call, s, r, root)
	}
	return comm.called("Scatter", err)
}

// Alltoall moves block d of rank s's send into block s of rank d's recv. Both
// hold Size() blocks of one size. They must not overlap.
func Alltoall[T Elem](ctx context.Context, comm *Comm, send, recv []T) error {
	call, err := comm.nextCall(counted[T](len(send)))
	if err != nil {
		return comm.called("Alltoall", err)
	}
	s, r, _, err := views(send, recv)
	if err == nil && len(send)%comm.Size() != 0 {
		err = fmt.Errorf("%w: %d elements are not %d equal blocks", ErrCount, len(send), comm.Size())
	}
	if err == nil {
		err = collectives.Alltoall(ctx, call, s, r)
	}
	return comm.called("Alltoall", err)
}

// Alltoallv moves send[sdispls[d]:sdispls[d]+scounts[d]] of rank s into
// recv[rdispls[s]:rdispls[s]+rcounts[s]] of rank d. Counts and displacements
// are in elements; what rank d expects of s must be what s has for d.
func Alltoallv[T Elem](ctx context.Context, comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) error {
	call, err := comm.nextCall(typeOnly[T]())
	if err != nil {
		return comm.called("Alltoallv", err)
	}
	s, r, size, err := views(send, recv)
	if err == nil {
		err = collectives.Alltoallv(ctx, call, s, times(scounts, size), times(sdispls, size), r, times(rcounts, size), times(rdispls, size))
	}
	return comm.called("Alltoallv", err)
}

func views[T Elem](send, recv []T) (s, r []byte, size int, err error) {
	if size, err = elemSize[T](); err != nil {
		return nil, nil, 0, err
	}
	s, _ = view(send)
	r, _ = view(recv)
	return s, r, size, nil
}

// times converts counts of elements to counts of bytes. What would overflow
// stays negative, and is refused for that.
func times(counts []int, size int) []int {
	out := make([]int, len(counts))
	for i, n := range counts {
		if n < 0 || n > (1<<62)/size {
			out[i] = -1
			continue
		}
		out[i] = n * size
	}
	return out
}

// called says in which call err came up and has the communicator's error
// handler see it.
func (c *Comm) called(name string, err error) error {
	if err != nil {
		return c.raise(fmt.Errorf("mpilib: %s on %s, rank %d%s: %w", name, c.Name(), c.rank, c.world.watch.line(), err))
	}
	return nil
}

// nextCall begins a collective call of an intracommunicator. Also one that
// then fails for its arguments counts, so that the ranks stay in step. args are those
// that all ranks must give alike; they are for the debug mode.
func (c *Comm) nextCall(args ...callArgs) (*collectiveCall, error) {
	if c.isInter() {
		return nil, fmt.Errorf("%w: call Merge for one communicator of both groups, or use Local for this group's", ErrIntercomm)
	}
	c.mu.Lock()
	if err := c.usable(); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	tag := c.calls
	c.calls = (c.calls + 1) & MaxTag
	c.mu.Unlock()
	call := &collectiveCall{comm: c, context: c.context + collectiveContext, tag: int(tag)}
	if w := c.world.watch; w != nil {
		call.seen = w.entered(c, tag, args)
	}
	return call, nil
}

// collectiveCall is one collective call's collectives.Comm: its messages have
// a context that point-to-point messages do not, and the call's tag.
type collectiveCall struct {
	comm    *Comm
	context uint32
	tag     int
	seen    *calling // in debug mode; else nil
}

// part notes that a request is a part of the call.
func (c *collectiveCall) part(r *Request) *Request {
	if r.seen != nil {
		r.seen.coll = c.seen
	}
	return r
}

func (c *collectiveCall) Rank() int { return c.comm.rank }
func (c *collectiveCall) Size() int { return c.comm.Size() }

func (c *collectiveCall) Send(ctx context.Context, dst int, buf []byte) error {
	return c.Isend(dst, buf).Wait(ctx)
}

func (c *collectiveCall) Recv(ctx context.Context, src int, buf []byte) error {
	return c.Irecv(src, buf).Wait(ctx)
}

func (c *collectiveCall) Isend(dst int, buf []byte) collectives.Request {
	what := transfer{comm: c.comm, send: true, peer: dst, tag: c.tag, elem: 1}
	return exactly{c.part(c.comm.isend(what, c.context, buf, engine.Standard, false)), len(buf)}
}

func (c *collectiveCall) Irecv(src int, buf []byte) collectives.Request {
	what := transfer{comm: c.comm, peer: src, tag: c.tag, elem: 1}
	return exactly{c.part(c.comm.irecv(what, c.context, buf)), len(buf)}
}

// irecvPart is Irecv into a Part.
func (c *collectiveCall) irecvPart(src int, p *Part) collectives.Request {
	into := &arrival{part: *p, buf: p.landing()}
	what := transfer{comm: c.comm, peer: src, tag: c.tag, elem: 1}
	r := c.part(c.comm.irecv(what, c.context, into.buf))
	r.into = into
	return exactly{r, p.size}
}

// exactly is a request whose message must have the length of its buffer.
type exactly struct {
	r *Request
	n int
}

func (e exactly) Wait(ctx context.Context) error {
	if err := e.r.await(ctx); err != nil {
		return err
	}
	st, err := e.r.status()
	if err == nil && !e.r.what.send && st.Bytes != e.n {
		err = fmt.Errorf("%w: the message has %d bytes, the buffer %d; do all ranks give the same counts?", ErrCount, st.Bytes, e.n)
	}
	return err
}
