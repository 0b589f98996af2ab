package engine

import (
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
)

// seekAfter is how long a receive, a probe or the owner waits for a process without a link before one is
// requested. Most links are set up by the process that sends first.
const seekAfter = 500 * time.Millisecond

// probedSource is the source that a probe waits for.
type probedSource struct {
	group  Group
	source int
}

// seeker sets up links to processes that are waited for. The engine's lock guards it.
type seeker struct {
	e      *Engine
	probed []probedSource
	runs   bool // its goroutine is running
}

// maxProbed bounds the probed sources that are stored between two checks. A probe that is not stored
// is checked when its waiter wakes up.
const maxProbed = 64

// seek requests, after seekAfter, links to the sources of posted receives; with probe also to source, of
// which no receive is posted. mu is held.
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

// start calls connect after seekAfter. mu is held.
func (s *seeker) start() {
	if s.runs || s.e.ctx.Err() != nil || s.e.cfg.Connect == nil {
		return
	}
	s.runs = true
	s.e.work.Go(s.run)
}

// run calls connect every seekAfter as long as links are missing.
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

// connect requests the missing links, and reports whether there were any. mu is held.
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
		wanted(func(p *peer) bool {
			return p.rank == source || source == AnySource && g.Member(p.rank) && p.process < len(e.peers)-e.cfg.Spares
		})
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
