package gateway

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/wire"
)

// maxAddresses bounds the addresses of one Carry.
const maxAddresses = 8

// Carry dials for a node and returns the id under which the node joins.
func (g *Gateway) Carry(ctx context.Context, id control.Identity, req *controlpb.CarryRequest) (*controlpb.CarryResponse, error) {
	c, err := g.newCarry(id, req)
	if err != nil {
		g.log.Warn("carry refused", "node", id.Node().String(), "addresses", req.Addresses, "job", req.Asker.GetJob(), "asker", req.Asker.GetRank(), "target", req.Target.GetRank(), "error", err)
		g.auditRefusal(id.String(), "carry", err)
		return nil, err
	}
	if req.SmallPackets {
		ctx = carrier.WithSmallPackets(ctx)
	}
	out, err := g.dialCarry(ctx, c)
	if err != nil {
		g.mu.Lock()
		g.carries.take(c.id)
		g.mu.Unlock()
		g.logLink(c.forwardedLink, "not carried", err)
		return nil, fmt.Errorf("%s: %w", g.who, err)
	}
	note := c.form.Note()
	g.work.Go(func() { g.runCarry(c, out) }) // Serve waits for this call, and then for that goroutine
	limit := control.RateLimitToPB(g.links.quota.Lowest(c.principal.Project != ""))
	return &controlpb.CarryResponse{CarryId: c.id[:], Limit: limit, Note: note}, nil
}

// newCarry checks a node's request and reserves its place. From then on the caller must take it out
// of the table or run it.
func (g *Gateway) newCarry(id control.Identity, req *controlpb.CarryRequest) (*carry, error) {
	if !g.profile().GatewayOnly {
		return nil, g.forbidden("site %s is not gateway_only; its nodes dial for themselves", g.site)
	}
	asker, err := control.ProcessFromPB(req.Asker)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: asker: %w", g.who, wire.ErrMalformed, err)
	}
	target, err := control.ProcessFromPB(req.Target)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: target: %w", g.who, wire.ErrMalformed, err)
	}
	if !g.registry.RunsAt(id.Node(), asker) && !g.registry.RunsAt(id.Node(), target) {
		return nil, g.forbidden("%v may not carry between %v and rank %d: neither is registered at its node", id, asker, target.Rank)
	}
	if k := len(req.Addresses); k == 0 || k > maxAddresses {
		return nil, fmt.Errorf("%s: %w: %d addresses to dial, want 1 to %d", g.who, wire.ErrMalformed, k, maxAddresses)
	}
	c := &carry{forwardedLink: forwardedLink{kind: "carry", job: asker.Job, ranks: []uint32{asker.Rank, target.Rank}, node: id.Name, id: fmt.Sprintf("%x", req.Link)}, lan: make(chan lanEnd, 1)}
	rand.Read(c.id[:])
	other := target
	if !g.registry.RunsAt(id.Node(), asker) {
		other = asker
	}
	c.peer = g.resolver.NodeOf(other)
	c.principal = g.registry.Principal(asker, target)
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.addrs, err = g.checkAll(req.Addresses); err != nil {
		return nil, fmt.Errorf("%s: %w", g.who, err)
	}
	if err := g.carries.add(c.id, c); err != nil {
		return nil, fmt.Errorf("%s: %w", g.who, err)
	}
	return c, nil
}

// checkAll refuses a list with any address that may not be dialled: a node that requests one of
// those is not trusted with the others.
func (g *Gateway) checkAll(texts []string) ([]outward, error) {
	var addrs []outward
	for _, text := range texts {
		addr, err := g.allowed.check(text, time.Now())
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, outward{addr, g.allowed.isProxy(addr)})
	}
	return addrs, nil
}
