//go:build system

package frontal

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate/coordinatetest"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func init() { enterLab = lab.Main }

// labEnd is a gateway's real end, on a host of the lab.
type labEnd struct {
	*coordinate.Side
	host *lab.Host
}

func (e labEnd) Ask(ctx context.Context, t overlay.Technique, peer string, port uint16, ex coordinate.Exchange) (c net.Conn, err error) {
	err = e.host.Do(func() (err error) { c, err = e.Side.Ask(ctx, t, peer, port, ex); return err })
	return c, err
}

func (e labEnd) Answer(ctx context.Context, t overlay.Technique, peer string, offer []byte, reply func([]byte) error) (c net.Conn, err error) {
	err = e.host.Do(func() (err error) { c, err = e.Side.Answer(ctx, t, peer, offer, reply); return err })
	return c, err
}

// standOn moves a frontal's end of coordinated traversals to a host. Its sessions stay on loopback.
func (r *rig) standOn(h *lab.Host, b coordinate.Reflectors) {
	r.f.gateway.NewEnd = func(ctx context.Context, ipv6 bool) (signalling.End, error) {
		e, err := r.f.gateway.Side(ctx, ipv6)
		if err != nil {
			return nil, err
		}
		side := e.(*coordinate.Side)
		if side.Profile, err = lab.Profile(h.Preset()); err != nil {
			return nil, err
		}
		side.Profile.Site, side.Profile.GatewayOnly = overlay.SiteID(h.Name()), true
		side.Address, side.PortPool, side.Engine = h.Addr(), nil, nil
		side.Permit = netrule.Rule{Private: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}.Foreign // those of the lab
		side.Reflectors = func(context.Context) (coordinate.Reflectors, error) { return b, nil }
		return labEnd{side, h}, nil
	}
}

// TestTraversalsThroughFirewalls: two gateways whose firewalls permit nothing inbound connect two
// nodes that have no route out.
func TestTraversalsThroughFirewalls(t *testing.T) {
	l, err := lab.Up(t.Context(), lab.Spec{
		WAN: lab.WAN{Default: wan.Shape{Delay: 5 * time.Millisecond}},
		Sites: []lab.Site{
			{Name: "v", Preset: lab.Public, Nodes: lab.Nodes(2)},
			{Name: "a", Preset: "stateful", Nodes: lab.Nodes(1)},
			{Name: "b", Preset: "stateful", Nodes: lab.Nodes(1)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	tcp, stun := coordinatetest.Reflectors(t, l.Host("v/n1"), l.Host("v/n2"))
	reflectors := coordinate.Reflectors{TCP: tcp, STUN: stun, Clocks: tcp[:1]}
	a, b, ha, hb, _ := two(t)
	a.standOn(l.Host("a/n1"), reflectors)
	b.standOn(l.Host("b/n1"), reflectors)
	for _, technique := range []overlay.Technique{overlay.SimultaneousOpen, overlay.HolePunching} {
		var call *helpersCall
		var accepted *controlpb.SignalEvent
		for range 3 { // a busy machine may miss an instant; a helper retries, too
			call = ha.begin(signalRequest(technique, 0))
			call.next(controlpb.SignalEvent_ASSIGNED)
			if accepted, err = call.stream.Recv(); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("%v: %v\n%s\n%s", technique, err, a.log, b.log)
		}
		near, far := a.fetch(accepted), hb.accept()
		frame, err := wire.Read(far)
		if err != nil || frame.(*wire.Intro).Technique != technique {
			t.Fatalf("%v: %+v, %v", technique, frame, err)
		}
		testkit.Exchange(t, near, far)
		call.next(controlpb.SignalEvent_CONNECTED)
	}
	if n := b.f.status().Links.Total; n != 2 {
		t.Errorf("%d links, want 2", n)
	}
}
