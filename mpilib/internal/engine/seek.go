package engine

import (
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
)

// seekAfter is how long a receive, who probes, or the owner waits without a link to whom it
// waits for before one is made. Most links are made by who sends first.
const seekAfter = 500 * time.Millisecond

// probedSource is whom a probe waits for.
type probedSource struct {
	group  Group
	source int
}

// seeker makes links to those whom somebody waits for without one. The engine's lock guards it.
type seeker struct {
	e      *Engine
	probed []probedSource
	runs   bool // a goroutine does
}

// maxProbed bounds the probes that are remembered between two looks; one that is
// forgotten is made again, or its waiter looks again.
const maxProbed = 64

// seek has links made to those whom a receive that is posted waits for, a
// little later; with probe also for one that is not. mu is held.
func (s *seeker) seek(g Group, source int, probe bool) {
	e := s.e
	switch {
	case source == e.cfg.Rank || e.ctx.Err() != nil || e.cfg.Connect == nil:
		return
	case source == AnySource && e.remote >= len(e.peers)-1:
		return
	case source != AnySource && e.replicas == nil && (e.peers[source].transport.connected() || e.peers[source].proto.Failed != nil):
		return
	}
	if probe && len(s.probed) < maxProbed {
		s.probed = append(s.probed, probedSource{g, source})
	}
	s.start()
}

// start has connect called, a little later. mu is held.
func (s *seeker) start() {
	if s.runs || s.e.ctx.Err() != nil || s.e.cfg.Connect == nil {
		return
	}
	s.runs = true
	s.e.work.Go(s.run)
}

// run makes links as long as somebody waits without one.
func (s *seeker) run() {
	clock := time.NewTicker(seekAfter)
	defer clock.Stop()
	for {
		select {
		case <-clock.C:
		case <-s.e.ctx.Done():
			return
		}
		s.e.mu.Lock()
		s.runs = s.connect()
		again := s.runs
		s.e.mu.Unlock()
		if !again {
			return
		}
	}
}

// connect starts to make the links that are missing, and reports whether there
// were any. mu is held.
func (s *seeker) connect() (missing bool) {
	e := s.e
	wanted := func(is func(*peer) bool) {
		for _, p := range e.peers {
			if p == nil || p.transport.connected() || p.proto.Failed != nil || p.proto.Gone {
				continue
			}
			if is(p) {
				missing = true
				p.wantLink()
			}
		}
	}
	want := func(g Group, source int) {
		wanted(func(p *peer) bool { return p.rank == source || source == AnySource && g.Member(p.rank) })
	}
	wanted(func(p *peer) bool { return p.notesAwaited })
	e.core.PostedReceives(func(r *protocol.Request) bool {
		want(owner(r).group, r.Peer)
		return true
	})
	for _, probe := range s.probed {
		want(probe.group, probe.source)
	}
	clear(s.probed)
	s.probed = s.probed[:0]
	return missing
}
