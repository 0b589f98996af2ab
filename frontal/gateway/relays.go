package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// AllowedFor is how long an address that the broker named may be dialled for a node. Helpers dial
// at once; a slow one asks again.
const AllowedFor = 2 * time.Minute

// returnLinger is how long a connect-id stays valid after its signalling request: the broker's
// event that the target connected may overtake the connection.
const returnLinger = 10 * time.Second

// AllowRelay permits dialling the proxy of a relay for a while.
func (g *Gateway) AllowRelay(a *controlpb.Assignment, keep time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, addr := range a.GetAddresses() {
		g.allowed.nameFor(addr, false, time.Now(), keep)
	}
}

// ExpectReturn passes a connection that presents id to asker until the returned function is called,
// and a little longer; for life at most.
func (g *Gateway) ExpectReturn(id wire.ID, asker overlay.ProcessName, node string, life time.Duration) (release func(), err error) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.returns.add(id, returning{asker, node, now.Add(life + returnLinger)}, now); err != nil {
		return nil, fmt.Errorf("%s: %w", g.who, err)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.returns.end(id, time.Now().Add(returnLinger))
	}, nil
}

// AllowReserve permits dialling a reserve relay for the life of its ticket, plus a margin for the
// clocks. A gateway that dials it itself finds out how the proxy is reached now, because that would
// take time when the relay is needed.
func (g *Gateway) AllowReserve(a *controlpb.Assignment, lifeMS uint32) {
	life := min(time.Duration(lifeMS)*time.Millisecond, ticket.MaxLife) + ticket.Skew
	g.AllowRelay(a, life)
	if !g.profile().GatewayOnly || g.proxies == nil {
		return
	}
	g.mu.Lock()
	addrs, err := g.checkAll(a.GetAddresses())
	g.mu.Unlock()
	if err != nil {
		return
	}
	g.work.Go(func() { // Serve waits for the call that this is part of, and then for that goroutine
		ctx, cancel := context.WithTimeout(g.ctx, g.settings().Dial)
		defer cancel()
		route := g.wayOut()
		for _, addr := range addrs {
			if err := g.proxies.Prepare(ctx, addr.String(), route, life); err != nil {
				g.log.Debug("the proxy of a reserve does not answer", "proxy", a.Proxy, "error", err)
			}
		}
	})
}
