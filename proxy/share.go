package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/wire"
)

// Bounds of a connection that relays share.
const (
	maxShared  = 1024             // streams at a time; more are closed
	shareIdle  = 2 * time.Minute  // without a stream, then it is closed
	shareCheck = 10 * time.Second // between two looks at that
)

// share serves a connection that several relays share. It counts as one that has not shown a ticket
// until one of its streams has, and is closed if none does in time.
func (s *Server) share(ctx context.Context, e *end) {
	place, err := s.half.Enter(e.conn)
	if err != nil {
		s.refuse(e, refusal(TooManyHandshakes, wire.CodeOverloaded, "%v", err))
		return
	}
	defer place.Leave()
	mux, err := encap.AcceptShared(e.conn)
	if err != nil {
		s.log.Debug("a shared connection failed", "from", e.conn.RemoteAddr().String(), "error", err)
		e.conn.Close()
		return
	}
	defer mux.Close()
	defer context.AfterFunc(ctx, func() { mux.Close() })()
	var proved atomic.Bool
	defer time.AfterFunc(s.set.TicketTime, func() {
		if !proved.Load() {
			mux.Close()
		}
	}).Stop()
	var work sync.WaitGroup
	defer work.Wait()
	defer mux.Close()
	work.Go(func() { s.endIdle(mux) })
	for {
		stream, err := mux.AcceptStream()
		if err != nil {
			return // closed, by either end
		}
		if mux.NumStreams() > maxShared {
			stream.Close()
			continue
		}
		work.Go(func() {
			s.serveStream(ctx, stream, func() {
				if proved.CompareAndSwap(false, true) {
					place.Leave()
				}
			})
		})
	}
}

// endIdle closes a shared connection that has had no stream for long; at once, if it is to take none
// any more. It returns when the connection is closed.
func (s *Server) endIdle(mux *yamux.Session) {
	check := time.NewTicker(shareCheck)
	defer check.Stop()
	stopped, last := s.closed, time.Now()
	for {
		select {
		case <-mux.CloseChan():
			return
		case <-stopped:
			mux.GoAway() // its relays go on, and others get a connection at the successor
			stopped = nil
			check.Reset(time.Second)
		case <-check.C:
		}
		if mux.NumStreams() > 0 {
			last = time.Now()
		} else if stopped == nil || time.Since(last) > shareIdle {
			mux.Close()
		}
	}
}

// serveStream serves one stream of a shared connection, as serveConn does a connection. It calls
// proved when the stream has shown a valid ticket.
func (s *Server) serveStream(ctx context.Context, stream *yamux.Stream, proved func()) {
	e := &end{conn: encap.SharedStream(stream), form: encap.Shared, since: time.Now()}
	place, err := s.half.Enter(e.conn)
	if err != nil {
		e.conn.Close()
		return
	}
	e.conn.SetDeadline(time.Now().Add(s.set.TicketTime))
	stop := context.AfterFunc(ctx, func() { e.conn.SetDeadline(time.Unix(1, 0)) })
	frame, err := wire.Read(e.conn)
	if !place.Leave() {
		return // closed to make room for another source
	}
	if !stop() {
		s.refuse(e, stopping())
		return
	}
	e.conn.SetDeadline(time.Time{})
	if err != nil {
		s.refuse(e, s.unreadable(err))
		return
	}
	if err := s.take(e, frame); err != nil {
		s.refuse(e, err)
		return
	}
	proved()
	s.pair(ctx, e)
}
