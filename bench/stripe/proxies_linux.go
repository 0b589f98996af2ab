package stripe

import (
	"context"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
)

// relays is a grid of two sites that connect by relays only, and two proxies.
type relays struct{ grid *grid.Grid }

func newRelays(ctx context.Context, o Options) (r relays, down func() error, err error) {
	leg := wan.Shape{Delay: o.RTT / 4} // a round trip crosses two legs each way
	spec := lab.Spec{
		WAN: lab.WAN{Default: leg},
		Sites: []lab.Site{
			{Name: "public", Preset: lab.Public, Nodes: []string{"broker", "proxy1", "proxy2"}},
			{Name: "left", Preset: "stateful", Nodes: []string{"n1"}},
			{Name: "right", Preset: "stateful", Nodes: []string{"n1"}},
		},
	}
	for _, site := range []string{"left", "right"} {
		for _, proxy := range []string{"public/proxy1", "public/proxy2"} {
			spec.WAN.Pairs = append(spec.WAN.Pairs, lab.PairSpec{
				From: site, To: proxy, Both: true, Apply: func(s *wan.Shape) { s.Rate = o.Proxy },
			})
		}
	}
	r.grid, down, err = grid.Up(ctx, spec, grid.Config{
		Binary: o.Binary, Broker: "public/broker", Proxies: []string{"public/proxy1", "public/proxy2"},
		Settings: map[string]map[string]any{"frontal": {"measure": "0s"}}, // or they would send packets of their own
		Profile: func(_ string, p overlay.SiteProfile) overlay.SiteProfile {
			for _, t := range overlay.Techniques() {
				if t != overlay.Relay {
					p.Forbidden = append(p.Forbidden, t)
				}
			}
			return p
		},
	})
	return r, down, err
}

// runLink is one link of carriers by relays.
func (r relays) runLink(ctx context.Context, carriers int) (result, error) {
	key, err := jobkey.New("stripe")
	if err != nil {
		return result{}, err
	}
	var ends [2]rank
	for i, node := range []string{"left/n1", "right/n1"} {
		p, err := probe.Join(ctx, r.grid, node, key, uint32(i))
		if err != nil {
			return result{}, err
		}
		defer p.Leave()
		ends[i] = rank{self: p.Identity, connector: p.Connector()}
	}
	return flow(ctx, ends[0], ends[1], carriers)
}
