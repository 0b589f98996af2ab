package frontal

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

// renew passes a helper's request for a new certificate on to the broker.
func (f *Frontal) renew(ctx context.Context, s *control.Session, chain [][]byte) ([][]byte, error) {
	p, err := f.creds.Verify(chain)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", f.who, overlay.ErrForbidden, err)
	}
	if p.Identity != s.Peer() || p.Role != control.RoleHelper || p.Site != f.site {
		return nil, f.forbidden("%v asks for a certificate of %v", s.Peer(), p.Identity)
	}
	return f.up.Renew(ctx, chain)
}

// cutFor ends the links of processes whose node, site or user was revoked according to the broker:
// those that this gateway carries, and through the helpers of the site those of its nodes.
func (f *Frontal) cutFor(ctx context.Context, s *control.Session, processes []overlay.ProcessName, reason string) (int, error) {
	if s.Peer().Role != control.RoleBroker {
		return 0, f.forbidden("%v may not end links; the broker may", s.Peer())
	}
	links := f.gateway.Cut(processes, fmt.Errorf("%w: %s", control.ErrRevoked, reason))
	helpers := f.registry.Sessions()
	f.log.Warn("links ended", "reason", reason, "processes", len(processes), "carried", links)
	var total atomic.Int64
	var all sync.WaitGroup
	for _, h := range helpers {
		all.Go(func() {
			n, err := h.Cut(ctx, processes, reason)
			if err != nil {
				f.log.Warn("links of the revoked not ended", "by", h.Peer().String(), "error", err)
			}
			total.Add(int64(n))
		})
	}
	all.Wait()
	return links + int(total.Load()), nil
}
