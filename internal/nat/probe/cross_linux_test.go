//go:build system

package probe

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A SYN that follows one of the site's own comes in wherever connections are tracked, however
// strictly, and nowhere else.
func TestCross(t *testing.T) {
	presets := []string{"syn-drop", "syn-reset", "syn-drop-no-udp", "no-route/syn-drop-no-udp",
		"stateful", "stateful-reject", "stateful-strict", "stateful-strict-new", "stateful-noloose", "port-range", "no-udp", "no-route/stateful-strict"}
	var sites []lab.Site
	for _, preset := range presets {
		sites = append(sites, lab.Site{Preset: preset})
	}
	l, g := newLab(t, sites...)
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, preset := range presets {
		truth, err := lab.Profile(preset)
		if err != nil {
			t.Fatal(err)
		}
		host := l.Host(fmt.Sprintf("s%d/n1", i))
		if truth.GatewayOnly {
			host = l.Host(fmt.Sprintf("s%d/gw", i))
		}
		wg.Go(func() {
			want := truth.Filter != overlay.FilterStateless
			for more := repeats; ; more-- {
				c, err := crossed(t.Context(), g, Options{Grid: g, Ports: truth.Ports, Do: host.Do})
				if err == nil && c.Connected == want {
					return
				}
				if more == 0 {
					t.Errorf("%s: it came: %v, want %v (%v)", preset, c.Connected, want, err)
					return
				}
			}
		})
	}
}

// crossed measures only this, with or without UDP.
func crossed(ctx context.Context, g *labGrid, opts Options) (Cross, error) {
	b, err := g.Reflectors(ctx, &controlpb.ReflectorsRequest{})
	if err != nil {
		return Cross{}, err
	}
	points, _ := reflectors(b)
	m := &measurement{opts: opts.complete(), points: points, o: Observations{Ports: opts.Ports}}
	defer m.close()
	m.look(ctx)
	return m.crossed(ctx, m.o.outside(points[0]), points[1].tcp)
}
