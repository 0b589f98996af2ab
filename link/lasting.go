package link

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// lasting makes a link that is kept from a handshake.
func (m *Mesh) lasting(c overlay.Carrier, h met, dialled bool) (*Link, error) {
	m.logChoice(c)
	sv := m.supervise(c, h, dialled)
	_, err := sv.attach(c, h)
	return sv.link, err
}

// carrierless makes a link from a handshake whose carrier broke with err after the pair had chosen
// it, and starts to look for another carrier.
func (m *Mesh) carrierless(c overlay.Carrier, h met, err error) (*Link, error) {
	sv := m.supervise(c, h, true)
	sv.note(fmt.Sprintf("%v: %v", c.Path, err))
	if err := sv.redial(false, false); err != nil {
		sv.link.stream.Fail(err)
	}
	return sv.link, nil
}

// serving reports whether the mesh still makes links.
func (m *Mesh) serving() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed == nil && m.serve != nil && m.serve.Err() == nil
}

// supervise makes a link that has a supervisor and no carrier yet.
func (m *Mesh) supervise(c overlay.Carrier, h met, dialled bool) *supervisor {
	l := newLink(c, h, dialled)
	l.fault = nil // the supervisor calls it
	here, there := c.Here.Site, c.Path.Peer.Site
	sv := &supervisor{mesh: m, link: l, born: time.Now(), account: account{since: time.Now()}, away: here != "" && there != "" && here != there}
	rank := l.Peer.Rank
	o := stream.Options{Lost: sv.lost, Silent: sv.silent, Late: sv.onLate, AskAfter: sv.askAfter, Acked: acked, Ended: func() { // lock order: stream, then mesh
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.links[rank] == sv {
			delete(m.links, rank)
		}
		if m.reporter != nil {
			m.ended = append(m.ended, sv)
		}
	}}
	if m.reporter != nil {
		o.Counts = func(a any) bool { return a.(*carrierInfo).path.Uncounted() }
	}
	if c.Path.Technique == 0 { // one node
		o.Silent, o.Late = nil, nil
	}
	l.begin(o)
	m.mu.Lock()
	m.links[rank] = sv
	m.mu.Unlock()
	return sv
}

// spawn runs f as work of the mesh, with the context of Serve. It returns false if the mesh is
// closed.
func (m *Mesh) spawn(f func(context.Context)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed != nil || m.serve == nil || m.serve.Err() != nil {
		return false
	}
	ctx := m.serve
	m.work.Go(func() { f(ctx) })
	return true
}

// watch services all links until ctx ends.
func (m *Mesh) watch(ctx context.Context) {
	t := time.NewTicker(stream.Tick)
	defer t.Stop()
	for {
		var now time.Time
		select {
		case now = <-t.C:
		case <-ctx.Done():
			return
		}
		kept := m.kept()
		for _, sv := range kept {
			sv.link.stream.Watch()
			sv.tick(now)
			sv.reserve(now, len(kept))
		}
		m.report(now)
	}
}

func (m *Mesh) kept() []*supervisor {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := make([]*supervisor, 0, len(m.links))
	for _, sv := range m.links {
		kept = append(kept, sv)
	}
	return kept
}

// endLinks ends the remaining links and waits until they have ended.
func (m *Mesh) endLinks() {
	var all sync.WaitGroup
	for _, sv := range m.kept() {
		all.Go(func() {
			sv.link.stream.Leave(fmt.Sprintf("rank %d leaves the job", m.cfg.Self.Process.Rank))
			sv.link.stream.Wait()
		})
	}
	all.Wait()
}
