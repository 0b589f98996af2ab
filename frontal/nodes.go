package frontal

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

// nodesServer is what helpers ask of their frontal beside the directory.
type nodesServer struct {
	controlpb.UnimplementedNodesServer
	f *Frontal
}

// Enter tells a helper how its site connects and where the gateway carries.
func (n *nodesServer) Enter(ctx context.Context, req *controlpb.EnterRequest) (*controlpb.EnterResponse, error) {
	id, err := n.f.helperOf(ctx, "Enter")
	if err != nil {
		return nil, control.Status(err)
	}
	if err := n.f.hostEntered(control.SessionOf(ctx), req.Offer); err != nil {
		n.f.log.Warn("a helper's offer is not listed", "node", id.Node().String(), "error", err)
	}
	n.f.log.Info("helper entered", "node", id.Node().String(), "software", req.Software)
	return &controlpb.EnterResponse{
		Profile: control.ProfileToPB(n.f.profile()), Site: string(n.f.site),
		DataAddress: addrText(n.f.dataAddr), Epoch: n.f.epoch, Encryption: control.EncryptionToPB(n.f.config().Encryption.policy()),
	}, nil
}

// Carry dials for a node and gives it the id under which to be joined.
func (n *nodesServer) Carry(ctx context.Context, req *controlpb.CarryRequest) (*controlpb.CarryResponse, error) {
	id, err := n.f.helperOf(ctx, "Carry")
	if err != nil {
		return nil, control.Status(err)
	}
	c, err := n.f.newCarry(id, req)
	if err != nil {
		n.f.log.Warn("carry refused", "node", id.Node().String(), "addresses", req.Addresses, "job", req.Asker.GetJob(), "asker", req.Asker.GetRank(), "target", req.Target.GetRank(), "error", err)
		n.f.auditRefusal(id.String(), "carry", err)
		return nil, control.Status(err)
	}
	if req.SmallPackets {
		ctx = carrier.WithSmallPackets(ctx)
	}
	out, err := n.f.dialCarry(ctx, c)
	if err != nil {
		n.f.mu.Lock()
		n.f.carries.take(c.id)
		n.f.mu.Unlock()
		n.f.logLink(c.link, "not carried", err)
		return nil, control.Status(fmt.Errorf("%s: %w", n.f.who, err))
	}
	note := c.form.Note()
	n.f.work.Go(func() { n.f.runCarry(c, out) }) // Serve waits for this call, and then for that
	limit := control.RateLimitToPB(n.f.links.quota.Lowest(c.principal.Project != ""))
	return &controlpb.CarryResponse{CarryId: c.id[:], Limit: limit, Note: note}, nil
}

// newCarry checks a node's request and reserves its place: from then on the
// caller takes it out of the table or runs it.
func (f *Frontal) newCarry(id control.Identity, req *controlpb.CarryRequest) (*carry, error) {
	if !f.profile().GatewayOnly {
		return nil, f.forbidden("site %s is not gateway_only; its nodes dial for themselves", f.site)
	}
	asker, err := control.ProcessFromPB(req.Asker)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: asker: %w", f.who, wire.ErrMalformed, err)
	}
	target, err := control.ProcessFromPB(req.Target)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: target: %w", f.who, wire.ErrMalformed, err)
	}
	if f.runsAt(id, asker) != nil && f.runsAt(id, target) != nil {
		return nil, f.forbidden("%v may not carry between %v and rank %d: neither is registered at its node", id, asker, target.Rank)
	}
	if k := len(req.Addresses); k == 0 || k > maxAddresses {
		return nil, fmt.Errorf("%s: %w: %d addresses to dial, want 1 to %d", f.who, wire.ErrMalformed, k, maxAddresses)
	}
	c := &carry{link: link{kind: "carry", job: asker.Job, ranks: []uint32{asker.Rank, target.Rank}, node: id.Name, id: fmt.Sprintf("%x", req.Link)}, lan: make(chan lanEnd, 1)}
	rand.Read(c.id[:])
	other := target
	if f.runsAt(id, asker) != nil {
		other = asker
	}
	c.peer = f.resolver.NodeOf(other)
	c.principal = f.registry.Principal(asker, target)
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.addrs, err = f.checkAll(req.Addresses); err != nil {
		return nil, fmt.Errorf("%s: %w", f.who, err)
	}
	if err := f.carries.add(c.id, c); err != nil {
		return nil, fmt.Errorf("%s: %w", f.who, err)
	}
	return c, nil
}

// checkAll refuses a list with any address that may not be dialled: who asks
// for one of those is not to be trusted with the others.
func (f *Frontal) checkAll(texts []string) ([]outward, error) {
	var addrs []outward
	for _, text := range texts {
		addr, err := f.allowed.check(text, time.Now())
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, outward{addr, f.allowed.isProxy(addr)})
	}
	return addrs, nil
}
