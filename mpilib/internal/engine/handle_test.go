package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A handle tells the same for ever, also when its Request is long another transfer's.
func TestHandleOutlivesItsRequest(t *testing.T) {
	e := New(Config{Size: 1})
	t.Cleanup(e.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for round := range 3 {
		var s, r [3]Handle
		for i := range s {
			e.StartRecv(&r[i], everyone{}, 0, 0, i, make([]byte, 8))
			e.StartSend(&s[i], everyone{}, 0, 0, i, make([]byte, i+1), Standard, false)
		}
		for range 2 {
			for i := range r {
				if s, err := s[i].Wait(ctx); err != nil || s.Tag != i || s.Bytes != uint64(i+1) {
					t.Errorf("round %d, send %d: %+v, %v", round, i, s, err)
				}
				if got, err := r[i].Wait(ctx); err != nil || got.Tag != i || got.Bytes != uint64(i+1) {
					t.Errorf("round %d, receive %d: %+v, %v", round, i, got, err)
				}
				if !r[i].Done() || r[i].Unmatched() || r[i].BlockedBy() != nil {
					t.Errorf("round %d, receive %d is not over", round, i)
				}
				r[i].Cancel()
				r[i].FailBlocked()
				<-r[i].Finished()
				if r[i].r.Load() != nil {
					t.Errorf("round %d, receive %d still has its Request", round, i)
				}
			}
		}
	}
	if len(e.freeRequests) == 0 || len(e.freeRequests) > 6 {
		t.Errorf("%d Requests came back, of 6 that were needed at a time", len(e.freeRequests))
	}
}

// What failed keeps its Request, for others may know it.
func TestFailedHandleKeepsItsRequest(t *testing.T) {
	e := New(Config{Size: 1})
	t.Cleanup(e.Close)
	var r, s Handle
	e.StartRecv(&r, everyone{}, 0, 0, 5, nil)
	e.StartSend(&s, everyone{}, 0, 0, 5, []byte{1}, Standard, false)
	for range 2 {
		if _, err := r.Wait(context.Background()); !errors.Is(err, ErrTruncate) {
			t.Error(err)
		}
		if got, err := r.Result(); !errors.Is(err, ErrTruncate) || got.Bytes != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if r.r.Load() == nil {
		t.Error("the Request was taken back")
	}
}

// Several who wait with one handle are all told the same, though its Request goes back.
func TestHandleOfMany(t *testing.T) {
	e := New(Config{Size: 1})
	t.Cleanup(e.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for round := range 200 {
		var r Handle
		e.StartRecv(&r, everyone{}, 0, 0, 5, make([]byte, 8))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if got, err := r.Wait(ctx); err != nil || got.Bytes != 3 {
					t.Errorf("round %d: %+v, %v", round, got, err)
				}
			})
			all.Go(func() {
				if i, err := WaitAnyHandle(ctx, []*Handle{&r}, -1); i != 0 || err != nil {
					t.Errorf("round %d: %d, %v", round, i, err)
				}
			})
		}
		if err := e.Send(ctx, everyone{}, 0, 0, 5, []byte("abc"), Standard); err != nil {
			t.Error(err)
		}
		if err := e.Send(ctx, everyone{}, 0, 0, 6, []byte("another"), Standard); err != nil {
			t.Error(err)
		}
		if got, err := e.Recv(ctx, everyone{}, 0, 0, 6, make([]byte, 7)); err != nil || got.Bytes != 7 {
			t.Errorf("%+v, %v", got, err)
		}
		all.Wait()
	}
}

// Sends that are over, and in other hands, by the time that a failure comes to them are
// left alone: to give up the one before takes time.
func TestFailureLeavesWhatIsOver(t *testing.T) {
	e := New(Config{Size: 1})
	t.Cleanup(e.Close)
	var s [3]Handle
	for i := range s {
		e.StartSend(&s[i], everyone{}, 0, 0, i, make([]byte, 8), Synchronous, false)
	}
	e.mu.Lock()
	var judged []*Request
	done := make(chan struct{})
	e.failRequests(func(r *Request) error {
		if judged = append(judged, r); len(judged) > 1 {
			return nil
		}
		first := true
		for i := range s { // as others do while mu is given up
			if other := s[i].r.Load(); other != r {
				other.finish(nil)
				e.freeRequest(other)
				if first {
					e.newRequest().beginTask(e, func(error) { t.Error("a task of somebody else was given up") })
					first = false
				}
			}
		}
		close(done)
		return nil
	})
	e.mu.Unlock()
	<-done
	e.mu.Lock() // until end is through
	defer e.mu.Unlock()
	if len(judged) != 1 {
		t.Errorf("%d requests were judged, of which two were over", len(judged))
	}
}

// TestAttachAfterClose: a link that comes when the engine is closed is closed when Attach returns. No goroutine
// is begun for it, which Close would not wait for.
func TestAttachAfterClose(t *testing.T) {
	mine, theirs := sockets(t)
	e := New(Config{Size: 2, Connect: func(context.Context, int) error { return nil }})
	e.Close()
	l := bare(mine)
	e.Attach(&link.Link{Conn: l, Peer: overlay.ProcessName{Rank: 1}})
	if _, _, err := l.Append(stream.Copy, nil, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the link is open: %v", err)
	}
	said, err := io.ReadAll(theirs)
	if want := (wire.Envelope{Kind: wire.EnvelopeGoodbye}).Append(nil); err != nil || !bytes.Equal(said, want) {
		t.Errorf("the peer gets %x, %v, want a goodbye", said, err)
	}
}
