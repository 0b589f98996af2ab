package broker

import (
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

// sessions numbers the open sessions, so that the registry does not depend on the session type. The
// zero value is ready.
type sessions struct {
	mu   sync.Mutex // guards the fields below
	next registry.Holder
	ids  map[*control.Session]registry.Holder
	open map[registry.Holder]*control.Session
	from map[overlay.SiteID]source // where each site's latest session came from, also one that has ended; at most maxSources
}

// source is where a site's session came from, and when.
type source struct {
	addr netip.Addr
	at   time.Time
}

// Sources are remembered for sourceLife.
const (
	sourceLife = 24 * time.Hour
	maxSources = 10_000
)

// noteSource records where a site's session comes from. The caller holds mu.
func (t *sessions) noteSource(site overlay.SiteID, addr netip.Addr, now time.Time) {
	if _, listed := t.from[site]; !listed && len(t.from) >= maxSources {
		maps.DeleteFunc(t.from, func(_ overlay.SiteID, s source) bool { return now.Sub(s.at) > sourceLife })
		if len(t.from) >= maxSources {
			return
		}
	}
	if t.from == nil {
		t.from = make(map[overlay.SiteID]source)
	}
	t.from[site] = source{addr.Unmap(), now}
}

// sources returns where the sessions of other sites than that one come from, or came from lately.
func (t *sessions) sources(but overlay.SiteID, now time.Time) map[netip.Addr]overlay.SiteID {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := make(map[netip.Addr]overlay.SiteID)
	for site, s := range t.from {
		if site != but && now.Sub(s.at) < sourceLife {
			from[s.addr] = site
		}
	}
	for _, s := range t.open { // also one that began long ago
		if id := s.Peer(); id.Role == control.RoleFrontal && id.Site != but {
			from[s.RemoteAddr().Addr().Unmap()] = id.Site
		}
	}
	return from
}

// holder returns the session's number, and assigns one if it has none. It fails for a session that
// has ended: nothing would ever remove the number.
func (t *sessions) holder(s *control.Session) (registry.Holder, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h, ok := t.ids[s]; ok {
		return h, nil
	}
	select {
	case <-s.Done():
		return 0, fmt.Errorf("%w: the session of %v has ended", overlay.ErrUnreachable, s.Peer())
	default:
	}
	if t.ids == nil {
		t.ids, t.open = make(map[*control.Session]registry.Holder), make(map[registry.Holder]*control.Session)
	}
	t.next++
	t.ids[s], t.open[t.next] = t.next, s
	if id := s.Peer(); id.Role == control.RoleFrontal {
		t.noteSource(id.Site, s.RemoteAddr().Addr(), time.Now())
	}
	return t.next, nil
}

// byHolder returns the open session with that number, or nil.
func (t *sessions) byHolder(h registry.Holder) *control.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[h]
}

// remove deletes a session that has ended.
func (t *sessions) remove(s *control.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, t.ids[s])
	delete(t.ids, s)
}

// all returns the open sessions of a role.
func (t *sessions) all(role control.Role) (all []*control.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.open {
		if s.Peer().Role == role {
			all = append(all, s)
		}
	}
	return all
}

// begun returns how many sessions there have been.
func (t *sessions) begun() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return uint64(t.next)
}

// count returns how many there are.
func (t *sessions) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}
