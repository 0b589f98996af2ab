package proxy

import (
	"maps"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/nat/reflector"
	"github.com/isthmus-grid/isthmus/internal/nat/stunserver"
)

// Status is the state of a Server and its counters. Status commands show its JSON form.
type Status struct {
	Name       string            `json:"name"`
	Links      int               `json:"links"`      // joined now
	Waiting    int               `json:"waiting"`    // ends that wait for their partner
	Handshakes int               `json:"handshakes"` // connections that have not shown their tickets yet
	Capacity   int               `json:"capacity"`   // maximum of Links + Waiting
	Draining   bool              `json:"draining"`   // takes no new links
	Accepted   uint64            `json:"accepted"`   // connections since the start
	Joined     uint64            `json:"joined"`     // links since the start
	Broken     uint64            `json:"broken"`     // links that did not end properly
	Bytes      uint64            `json:"bytes"`      // moved since the start, including live links
	Spliced    uint64            `json:"spliced"`    // of Bytes, those that stayed in the kernel
	Copied     uint64            `json:"copied"`     // of Bytes, those that passed the proxy's memory
	Refused    map[Reason]uint64 `json:"refused"`    // connections, by reason

	Quota ratelimit.Status `json:"quota"` // usage by owner, and who waits

	Observer    reflector.ObserverStats `json:"observer"`     // peers that asked for their address
	STUNAnswers stunserver.Stats        `json:"stun_answers"` // the same over UDP

	Audit *audit.Status `json:"audit,omitempty"` // state of the audit log, if one is kept
}

// Status returns the current state. The map belongs to the caller.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.count.status()
	st.Name, st.Capacity, st.Draining = s.set.Name, s.limits.Links, s.draining
	st.Links, st.Waiting, st.Handshakes = len(s.links), len(s.waiting), s.half.Stats().Used
	for l := range s.links {
		now := l.meter.Stats()
		st.Bytes += now.Total()
		st.Spliced += now.Spliced
		st.Copied += now.Copied
	}
	st.Joined += uint64(len(s.links))
	st.Quota = s.set.Quota.Status()
	st.Audit = s.set.Audit.Status()
	st.Observer, st.STUNAnswers = s.observer.Stats(), s.stun.Stats()
	return st
}

// Changed returns a channel that is closed when a link next starts or ends.
func (s *Server) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// counters are of what has ended; Status adds what is live.
type counters struct {
	mu       sync.Mutex // guards the fields below
	accepted uint64
	joined   uint64
	broken   uint64
	relayed  carrier.Stats
	refused  map[Reason]uint64
}

func (c *counters) accept() {
	c.mu.Lock()
	c.accepted++
	c.mu.Unlock()
}

func (c *counters) refuse(r Reason) {
	c.mu.Lock()
	c.refused[r]++
	c.mu.Unlock()
}

func (c *counters) ended(s carrier.Stats, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joined++
	if err != nil {
		c.broken++
	}
	c.relayed.AToB += s.AToB
	c.relayed.BToA += s.BToA
	c.relayed.Spliced += s.Spliced
	c.relayed.Copied += s.Copied
}

func (c *counters) status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{
		Accepted: c.accepted, Joined: c.joined, Broken: c.broken,
		Bytes: c.relayed.Total(), Spliced: c.relayed.Spliced, Copied: c.relayed.Copied,
		Refused: maps.Clone(c.refused),
	}
}
