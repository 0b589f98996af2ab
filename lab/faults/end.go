package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file is one end of a link, a process of its own. It takes orders on its standard input and
// reports on its standard output, one JSON object per line.

// An order is a line to an end. The first one assigns its role, the others say what to do.
type order struct {
	Start *role  `json:"start,omitempty"`
	Last  uint64 `json:"last,omitempty"` // send so many more bytes at full speed, then trickle
	End   bool   `json:"end,omitempty"`  // end the stream, and then the link
}

// A role identifies an end.
type role struct {
	Socket string        `json:"socket"` // of the helper
	Key    string        `json:"key"`
	Rank   uint32        `json:"rank"` // 0 dials and sends, 1 receives
	Seed   uint64        `json:"seed"`
	Idle   bool          `json:"idle"`  // trickle from the start
	Pause  time.Duration `json:"pause"` // between the blocks of a trickle
}

const (
	sender   = 0
	receiver = 1
)

// A report is a line from an end: every reportEvery, and when it is done.
type report struct {
	At       time.Time      `json:"at"`
	Linked   bool           `json:"linked,omitempty"`
	Bytes    uint64         `json:"bytes"` // of the stream, that this end has written or read
	Carriers []carrierState `json:"carriers"`
	Gaps     []gap          `json:"gaps,omitempty"` // of the receiver, since its last report
	Final    *final         `json:"final,omitempty"`
	Error    string         `json:"error,omitempty"` // the stream has ended with this error
}

// final is an end's result when the stream has ended.
type final struct {
	Digest  string        `json:"digest"`
	Lost    uint64        `json:"lost"` // bytes, at the receiver
	Doubled uint64        `json:"doubled"`
	Fault   string        `json:"fault,omitempty"`
	GapP99  time.Duration `json:"gap_p99"`
}

const (
	reportEvery = 50 * time.Millisecond
	writeLen    = 16 * blockLen
	// unlinked bounds the time until there is a link, farewell the time for the peer to close its
	// end.
	unlinked = 30 * time.Second
	farewell = 10 * time.Second
)

// RunEnd runs an end: it reads orders from in and writes reports to out. It returns when the stream
// has ended or failed.
func RunEnd(ctx context.Context, in io.Reader, out io.Writer) error {
	orders := json.NewDecoder(bufio.NewReader(in))
	var first order
	if err := orders.Decode(&first); err != nil || first.Start == nil {
		return fmt.Errorf("the first order is not who to be: %w", err)
	}
	key, err := jobkey.Parse(first.Start.Key)
	if err != nil {
		return err
	}
	e := &end{role: *first.Start, out: json.NewEncoder(out), last: make(chan uint64, 1), over: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with the process
		for {
			var o order
			if err := orders.Decode(&o); err != nil {
				cancel(fmt.Errorf("no more orders: %w", err))
				return
			}
			e.obey(o)
		}
	}()
	if err := e.run(ctx, key); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return errors.Join(err, e.report(func(r *report) { r.Error = err.Error() }))
	}
	return nil
}

// end is a running end.
type end struct {
	role
	out     *json.Encoder
	carrier *observer
	last    chan uint64   // from an order; buffered
	over    chan struct{} // closed by the order to end
	linked  atomic.Bool
	bytes   atomic.Uint64

	mu   sync.Mutex // guards the fields below and out
	gaps gaps
}

// obey carries out an order.
func (e *end) obey(o order) {
	if o.Last > 0 {
		select {
		case e.last <- o.Last:
		default: // a repeated order
		}
	}
	if o.End {
		close(e.over)
	}
}

// report writes a line.
func (e *end) report(add func(*report)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := report{At: time.Now(), Linked: e.linked.Load(), Bytes: e.bytes.Load(), Gaps: e.gaps.long}
	e.gaps.long = nil
	if e.carrier != nil {
		r.Carriers = e.carrier.states()
	}
	if add != nil {
		add(&r)
	}
	return e.out.Encode(r)
}

// run joins the job, gets the link and sends or receives.
func (e *end) run(ctx context.Context, key jobkey.Key) error {
	ctx, cancel := context.WithCancelCause(ctx)
	self := link.NewIdentity(key, e.Rank, overlay.NewGeneration(time.Now(), 0))
	client := local.NewClient(local.ClientConfig{Socket: e.Socket, Process: self.Process, Generation: self.Generation, Auth: key.Auth()})
	e.carrier = &observer{Connector: client}
	links := make(chan *link.Link, 1)
	mesh := link.NewMesh(link.Config{Self: self, Size: 2, Connector: e.carrier, Up: func(l *link.Link) { links <- l }})
	var work sync.WaitGroup
	defer work.Wait()
	defer client.Close()
	defer cancel(nil)
	work.Go(func() { client.Serve(ctx) })
	work.Go(func() { cancel(mesh.Serve(ctx)) })
	work.Go(func() { e.reporting(ctx) })
	l, err := e.link(ctx, client, mesh, links)
	if err != nil {
		return err
	}
	e.linked.Store(true)
	part := e.send
	if e.Rank == receiver {
		part = e.receive
	}
	f, err := part(ctx, l)
	if err != nil {
		l.Conn.Close()
		return err
	}
	l.Conn.Close()
	select {
	case <-l.Done():
	case <-time.After(farewell):
		return fmt.Errorf("the link is not over %v after it was closed", farewell)
	}
	return e.report(func(r *report) { r.Final = f })
}

// link waits for the helper and the link.
func (e *end) link(ctx context.Context, client *local.Client, mesh *link.Mesh, links chan *link.Link) (*link.Link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, unlinked, fmt.Errorf("no link after %v", unlinked))
	defer cancel()
	if _, err := client.Ready(ctx); err != nil {
		return nil, err
	}
	if e.Rank == sender {
		if err := mesh.Connect(ctx, receiver); err != nil {
			return nil, err
		}
	}
	select {
	case l := <-links:
		return l, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (e *end) reporting(ctx context.Context) {
	t := time.NewTicker(reportEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if e.report(nil) != nil {
				return // the receiver of the link is gone; the orders end too
			}
		}
	}
}

// send writes the stream: at full speed until the ordered bytes are written, and then a block at
// intervals.
func (e *end) send(ctx context.Context, l *link.Link) (*final, error) {
	defer context.AfterFunc(ctx, func() { l.Conn.SetDeadline(time.Unix(1, 0)) })()
	s := newSource(e.Seed)
	goal := ^uint64(0)
	if e.Idle {
		goal = 0
	}
	for {
		n := writeLen
		if e.bytes.Load() >= goal {
			n = blockLen
		}
		select {
		case <-e.over:
			return e.endStream(l, &final{Digest: s.digest()})
		case more := <-e.last:
			goal = e.bytes.Load() + more
		default:
		}
		if _, err := l.Conn.Write(s.next(n)); err != nil {
			return nil, fmt.Errorf("after %d bytes: %w", e.bytes.Load(), l.Explain(err))
		}
		e.bytes.Add(uint64(n))
		if n == blockLen {
			select {
			case <-time.After(e.Pause):
			case <-e.over:
			}
		}
	}
}

// endStream signals the end of the stream, and waits for the peer's confirmation that it has read
// everything: the end of its own stream.
func (e *end) endStream(l *link.Link, f *final) (*final, error) {
	if err := l.Conn.CloseWrite(); err != nil {
		return nil, err
	}
	if n, err := l.Conn.Read(make([]byte, 1)); err != io.EOF {
		return nil, fmt.Errorf("%d bytes and %w in place of the stream's end", n, l.Explain(err))
	}
	return f, nil
}

// receive reads the stream to its end.
func (e *end) receive(ctx context.Context, l *link.Link) (*final, error) {
	defer context.AfterFunc(ctx, func() { l.Conn.SetDeadline(time.Unix(1, 0)) })()
	c := newChecker(e.Seed)
	buf := make([]byte, writeLen)
	for {
		n, err := l.Conn.Read(buf)
		if n > 0 {
			e.mu.Lock()
			e.gaps.note(time.Now())
			e.mu.Unlock()
			c.take(buf[:n])
			e.bytes.Add(uint64(n))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("after %d bytes: %w", e.bytes.Load(), l.Explain(err))
		}
	}
	if err := l.Conn.CloseWrite(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return &final{Digest: c.digest(), Lost: c.lost, Doubled: c.doubled, Fault: c.fault, GapP99: e.gaps.quantile(0.99)}, nil
}
