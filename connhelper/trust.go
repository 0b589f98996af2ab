package connhelper

import (
	"context"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// cutFor ends the links of processes whose node, site or user was revoked, as the frontal reports:
// processes of this node are ended, and the others of their jobs are notified that they are gone,
// which ends the links with them.
func (h *Helper) cutFor(_ context.Context, s *control.Session, processes []overlay.ProcessName, reason string) (int, error) {
	if s.Peer().Role != control.RoleFrontal {
		return 0, fmt.Errorf("helper %v: %w: %v may not end links; the frontal may", h.node, overlay.ErrForbidden, s.Peer())
	}
	return h.cut(processes, reason), nil
}

// cut implements cutFor. It returns how many processes here it ended.
func (h *Helper) cut(processes []overlay.ProcessName, reason string) (ended int) {
	gone := make(map[overlay.JobID][]uint32)
	for _, p := range processes {
		gone[p.Job] = append(gone[p.Job], p.Rank)
	}
	err := fmt.Errorf("%w: %s", control.ErrRevoked, reason)
	for _, p := range h.here.all() {
		ranks := gone[p.name.Job]
		if len(ranks) == 0 {
			continue
		}
		own := slices.Contains(ranks, p.name.Rank)
		others := slices.DeleteFunc(slices.Clone(ranks), func(r uint32) bool { return r == p.name.Rank })
		for some := range slices.Chunk(others, wire.MaxDead) {
			p.conn.Send(&wire.LocalDead{Ranks: slices.Clone(some), Text: reason}, nil) // its reader handles errors
		}
		if own {
			h.log.Warn("process ended", "process", p.name.String(), "error", err)
			p.reject(err)
			ended++
		}
	}
	return ended
}

// followRevocations ends the processes of this node when the node itself is revoked, until ctx
// ends.
func (h *Helper) followRevocations(ctx context.Context) {
	h.opts.Credentials.FollowOwn(ctx, func(revoked error) {
		if revoked == nil {
			return
		}
		var mine []overlay.ProcessName
		for _, p := range h.here.all() {
			mine = append(mine, p.name)
		}
		h.log.Error("this helper is revoked; its processes end", "processes", len(mine), "error", revoked)
		h.cut(mine, fmt.Sprintf("helper %v: revoked", h.node))
	})
}
