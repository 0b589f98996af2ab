package connhelper

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// reserved is one end of a relay that the broker has assigned to a link that has other paths. Both
// helpers keep theirs, and dial it when their process reports that its link has no path left: that
// needs no session with frontal or broker, which may have died with the paths. It works once, and
// only if both ends dial it.
type reserved struct {
	link    wire.ID
	relay   *controlpb.Assignment // nil: none was available
	life    overlay.Generation    // of the peer
	peer    overlay.NodeID
	via     overlay.Via
	reason  string
	expires time.Time
	due     time.Time // when to request another

	// Owned by the table:
	p     *process
	rank  uint32
	added uint64 // sequence number, smaller is older
	place *list.Element
}

// When a helper requests a reserve, and how long it keeps it.
const (
	renewBefore  = 3 * time.Minute  // a reserve is replaced this long before it expires, and up to renewSpread later
	renewSpread  = time.Minute      // so that those of many links are not requested at once
	reserveBound = 10 * time.Second // for one request
	reserveRetry = 15 * time.Second // after a request failed
	reserveRest  = 5 * time.Minute  // the same, where it will fail again: policies, or older daemons
)

// maxReserves bounds the reserves of a helper, maxReservesEach those of a process; at the bound the
// oldest is dropped. maxReserving bounds the requests under way.
const (
	maxReserves     = 16384
	maxReservesEach = 2048
	maxReserving    = 16
)

// reserves are those of all processes of a helper, and records of failed requests. Time is an
// argument.
type reserves struct {
	mu    sync.Mutex
	of    map[*process]map[uint32]*reserved // by rank of the peer
	order list.List                         // of *reserved, the oldest first
	added uint64

	got, used atomic.Uint64 // relays that were kept, at either end; relays that were dialled
}

// wants reports whether to request a reserve for a link of p to a generation of rank. After
// returning true, it returns false for a while.
func (r *reserves) wants(p *process, rank uint32, life overlay.Generation, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[p][rank]
	if one == nil || one.life != life {
		r.put(p, rank, &reserved{life: life, due: now.Add(reserveRetry)})
		return true
	}
	if now.Before(one.due) {
		return false
	}
	one.due = now.Add(reserveRetry)
	return true
}

// failed records that no reserve was available.
func (r *reserves) failed(p *process, rank uint32, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.of[p][rank]; one != nil && lasting(err) {
		one.due = now.Add(reserveRest)
	}
}

// lasting reports whether another request would soon be refused again.
func lasting(err error) bool {
	for _, class := range []error{wire.ErrVersion, overlay.ErrForbidden, overlay.ErrNoPath, overlay.ErrNoRelay} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// keep stores a reserve in place of the previous one.
func (r *reserves) keep(p *process, rank uint32, one *reserved) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got.Add(1)
	r.put(p, rank, one)
}

// put stores a reserve. mu is held.
func (r *reserves) put(p *process, rank uint32, one *reserved) {
	r.drop(r.of[p][rank])
	if all := r.of[p]; len(all) >= maxReservesEach {
		oldest := one
		one.added = r.added + 1
		for _, o := range all {
			if o.added < oldest.added {
				oldest = o
			}
		}
		r.drop(oldest)
	}
	if r.order.Len() >= maxReserves {
		r.drop(r.order.Front().Value.(*reserved))
	}
	if r.of == nil {
		r.of = map[*process]map[uint32]*reserved{}
	}
	if r.of[p] == nil {
		r.of[p] = map[uint32]*reserved{}
	}
	r.added++
	one.p, one.rank, one.added, one.place = p, rank, r.added, r.order.PushBack(one)
	r.of[p][rank] = one
}

// drop removes a reserve; nil is none. mu is held.
func (r *reserves) drop(one *reserved) {
	if one == nil {
		return
	}
	r.order.Remove(one.place)
	if delete(r.of[one.p], one.rank); len(r.of[one.p]) == 0 {
		delete(r.of, one.p)
	}
}

// take removes and returns the reserve for a link of p to rank, or returns nil.
func (r *reserves) take(p *process, rank uint32, now time.Time) *reserved {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[p][rank]
	if one == nil || one.relay == nil {
		return nil
	}
	r.drop(one)
	if !now.Before(one.expires) {
		return nil
	}
	r.used.Add(1)
	return one
}

// forget drops the reserves of a process that has left.
func (r *reserves) forget(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.of[p] {
		r.drop(one)
	}
}

// held returns the number of usable reserves.
func (r *reserves) held(now time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range r.of {
		for _, one := range all {
			if one.relay != nil && now.Before(one.expires) {
				n++
			}
		}
	}
	return n
}

// expiring sets how long a reserve is valid, as the broker says, and when to request another.
func (one *reserved) expiring(lifeMS uint32, now time.Time) *reserved {
	life := min(time.Duration(lifeMS)*time.Millisecond, ticket.MaxLife)
	one.expires = now.Add(life)
	one.due = now.Add(max(life-renewBefore, life/2) + rand.N(renewSpread))
	return one
}

// keepFor stores a reserve for a process, and determines how to reach its proxy, which would take
// time when the reserve is dialled.
func (h *Helper) keepFor(p *process, rank uint32, one *reserved) {
	h.kept.keep(p, rank, one)
	if h.here.get(p.name) != p {
		h.kept.forget(p) // it has left meanwhile
	}
	f, _ := h.home.currentFrontal()
	if f == nil || f.profile.GatewayOnly { // the gateway determines it
		return
	}
	h.work.Go(func() {
		ctx, cancel := context.WithTimeout(h.life, reserveBound)
		defer cancel()
		addrs, proxy, err := h.mayReach(f, one.journey(p, rank))
		for _, addr := range addrs {
			err = h.proxies.Prepare(ctx, addr, encap.RouteOf(f.profile, proxy), ticket.MaxLife)
		}
		if err != nil {
			h.log.Debug("the proxy of a reserve does not answer", "proxy", one.relay.Proxy, "error", err)
		}
	})
}

// journey returns the journey to the reserve's proxy.
func (one *reserved) journey(p *process, rank uint32) journey {
	return journey{
		addrs: one.relay.Addresses, proxy: true, link: one.link, asker: p.name, target: overlay.ProcessName{Job: p.name.Job, Rank: rank},
	}
}

// reserve requests a reserve for a link of p, unless there is one. It does so in the background, by
// spawn.
func (h *Helper) reserve(ctx context.Context, spawn func(func()), p *process, f *wire.LocalReserve) {
	if f.Rank == p.name.Rank || len(h.reserving) == cap(h.reserving) || !h.kept.wants(p, f.Rank, f.Generation, time.Now()) {
		return // the process asks again
	}
	spawn(func() {
		select {
		case h.reserving <- struct{}{}:
			defer func() { <-h.reserving }()
		default:
			return
		}
		ctx, cancel := context.WithTimeout(ctx, reserveBound)
		defer cancel()
		one, err := h.getReserve(ctx, p, f)
		if err != nil {
			h.kept.failed(p, f.Rank, err, time.Now())
			h.log.Debug("no reserve", "from", p.name.String(), "to", f.Rank, "error", err)
			return
		}
		h.keepFor(p, f.Rank, one)
		h.log.Debug("relay in reserve", "from", p.name.String(), "to", f.Rank, "proxy", one.relay.Proxy)
	})
}

func (h *Helper) getReserve(ctx context.Context, p *process, l *wire.LocalReserve) (*reserved, error) {
	f, err := h.frontalFor(ctx, p)
	if err != nil {
		return nil, err
	}
	id := newID()
	r, err := f.directory().Reserve(ctx, &controlpb.IntroduceRequest{
		Link: id[:], Technique: uint32(overlay.Relay), Asker: control.ProcessToPB(p.name), AskerNode: h.node.Name,
		Target: control.ProcessToPB(overlay.ProcessName{Job: p.name.Job, Rank: l.Rank}), TargetGeneration: uint64(l.Generation),
	})
	if err != nil {
		return nil, control.FromStatus(err)
	}
	if r.Relay == nil {
		return nil, fmt.Errorf("%w: a reserve without a relay", wire.ErrMalformed)
	}
	one := &reserved{
		link: id, relay: r.Relay, life: l.Generation, via: overlay.Via(r.Via), reason: r.Reason,
		peer: overlay.NodeID{Site: overlay.SiteID(r.TargetSite), Name: r.TargetNode},
	}
	return one.expiring(r.LifeMs, time.Now()), nil
}

// Reserve implements controlpb.TargetServer: it keeps the target's end.
func (s targetService) Reserve(ctx context.Context, m *controlpb.Introduction) (*controlpb.ReserveResponse, error) {
	if err := s.h.keepReserve(ctx, m); err != nil {
		return nil, control.Status(fmt.Errorf("helper %v: %w", s.h.node, err))
	}
	return &controlpb.ReserveResponse{}, nil
}

func (h *Helper) keepReserve(ctx context.Context, m *controlpb.Introduction) error {
	if role := control.SessionOf(ctx).Peer().Role; role != control.RoleFrontal {
		return fmt.Errorf("%w: a %v does not introduce", overlay.ErrForbidden, role)
	}
	p, asker, err := h.parties(m)
	if err != nil {
		return err
	}
	link, err := idOf(m.Link)
	if err != nil {
		return err
	}
	if m.Relay == nil || overlay.Technique(m.Technique) != overlay.Relay {
		return fmt.Errorf("%w: a reserve that is no relay", wire.ErrMalformed)
	}
	one := &reserved{
		link: link, relay: m.Relay, life: overlay.Generation(m.AskerGeneration), reason: m.Reason,
		peer: overlay.NodeID{Site: overlay.SiteID(m.AskerSite), Name: m.AskerNode},
	}
	if site := h.site.Load(); site != nil && site.GatewayOnly {
		one.via = overlay.ViaTarget
	}
	one.expiring(m.LifeMs, time.Now())
	one.due = one.expires.Add(-renewBefore / 3) // the asker renews it
	h.keepFor(p, asker.Rank, one)
	return nil
}

// dialReserve connects p to the relay that is kept for its link to rank, in small packets: large
// ones may not pass any more, and there is no time to find out. The link looks for a path with
// full-sized packets afterwards. Whether the other end dials the relay too shows in the link's
// handshake, and says nothing about the path.
func (h *Helper) dialReserve(ctx context.Context, p *process, rank uint32) (made, error) {
	one := h.kept.take(p, rank, time.Now())
	if one == nil {
		return made{}, fmt.Errorf("%w: none is kept in reserve", overlay.ErrNoRelay)
	}
	f, _ := h.home.currentFrontal()
	if site := h.site.Load(); f == nil && site != nil && !site.GatewayOnly {
		f = &frontal{profile: *site} // the session is gone, and not needed
	}
	if f == nil {
		return made{}, fmt.Errorf("%w: the gateway that would carry to proxy %s is away", overlay.ErrNoSession, one.relay.Proxy)
	}
	path := overlay.Path{
		Technique: overlay.Relay, Via: one.via, Proxy: one.relay.Proxy, Peer: one.peer, Small: true,
		Reason: withLimits(one.reason+"; it was kept in reserve", []string{relayLimit(one.relay)}),
	}
	c, limits, err := h.reach(carrier.WithSmallPackets(carrier.Urgent(ctx)), f, one.journey(p, rank))
	if err != nil {
		return made{}, fmt.Errorf("proxy %s: %w", one.relay.Proxy, err)
	}
	path.Reason = withLimits(path.Reason, limits)
	if err := write(ctx, c, one.relay.Ticket); err != nil {
		return made{}, fmt.Errorf("proxy %s: %w", one.relay.Proxy, err)
	}
	s, err := h.handable(c)
	return made{conn: s, path: path}, err
}
