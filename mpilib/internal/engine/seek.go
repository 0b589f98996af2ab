package engine

import (
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
)

// seekAfter is how long a receive, who probes, or the owner waits without a link to whom it
// waits for before one is made. Most links are made by who sends first.
const seekAfter = 500 * time.Millisecond

// sought is whom a probe waits for.
type sought struct {
	group  Group
	source int
}

// maxSought bounds the probes that are remembered between two looks; one that is
// forgotten is made again, or its waiter looks again.
const maxSought = 64

// seek has links made to those whom a receive that is posted waits for, a
// little later; with probe also for one that is not. mu is held.
func (e *Engine) seek(g Group, source int, probe bool) {
	switch {
	case source == e.cfg.Rank || e.ctx.Err() != nil || e.cfg.Connect == nil:
		return
	case source == AnySource && e.remote >= e.cfg.Size-1:
		return
	case source != AnySource && (e.peers[source].transport.link.l != nil || e.peers[source].proto.Failed != nil):
		return
	}
	if probe && len(e.sought) < maxSought {
		e.sought = append(e.sought, sought{g, source})
	}
	e.seekSoon()
}

// seekSoon has seekNow called. mu is held.
func (e *Engine) seekSoon() {
	if e.seeking || e.ctx.Err() != nil || e.cfg.Connect == nil {
		return
	}
	e.seeking = true
	e.work.Go(e.seeker)
}

// seeker makes links as long as somebody waits without one.
func (e *Engine) seeker() {
	clock := time.NewTicker(seekAfter)
	defer clock.Stop()
	for {
		select {
		case <-clock.C:
		case <-e.ctx.Done():
			return
		}
		e.mu.Lock()
		e.seeking = e.seekNow()
		again := e.seeking
		e.mu.Unlock()
		if !again {
			return
		}
	}
}

// seekNow starts to make the links that are missing, and reports whether there
// were any. mu is held.
func (e *Engine) seekNow() (missing bool) {
	wanted := func(is func(*peer) bool) {
		for _, p := range e.peers {
			if p == nil || p.transport.link.l != nil || p.proto.Failed != nil || p.proto.Gone {
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
	wanted(func(p *peer) bool { return p.expected })
	e.core.Posted(func(r *protocol.Request) bool {
		want(owner(r).group, r.Peer)
		return true
	})
	for _, s := range e.sought {
		want(s.group, s.source)
	}
	clear(e.sought)
	e.sought = e.sought[:0]
	return missing
}
