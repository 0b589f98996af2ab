package grid

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
)

// settleTimeout bounds the time until all daemons have found each other. See readyTimeout.
const settleTimeout = 2 * time.Minute

// dialAdmin opens an admin's session with a broker or frontal at addr, from the daemon's own host.
func dialAdmin(ctx context.Context, creds *control.Credentials, d *Daemon, addr netip.Addr) (*control.Session, func(), error) {
	role, port := control.RoleBroker, brokerPort
	if d.Name != "broker" && d.Name != "broker 2" {
		role, port = control.RoleFrontal, frontalPort
	}
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)
	s, err := e.Dial(ctx, control.DialConfig{
		Addr: netip.AddrPortFrom(addr, uint16(port)).String(), Role: role,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return d.Host.Dial(ctx, "tcp", addr) },
	})
	if err != nil {
		e.Close()
		return nil, nil, err
	}
	return s, func() { s.Close(); e.Close() }, nil
}

// Status returns the status of the broker or a frontal, as `isthmus status
// --json` shows it.
func (g *Grid) Status(ctx context.Context, name string) (map[string]any, error) {
	s, done, err := g.Admin(ctx, name)
	if err != nil {
		return nil, err
	}
	defer done()
	return statusOf(ctx, s)
}

func statusOf(ctx context.Context, s *control.Session) (map[string]any, error) {
	r, err := controlpb.NewAdminClient(s.Conn()).Status(ctx, &controlpb.StatusRequest{})
	if err != nil {
		return nil, control.FromStatus(err)
	}
	var status map[string]any
	return status, json.Unmarshal(r.Json, &status)
}

// Settled waits until each running broker knows every site and proxy of the grid, and every frontal
// its helpers.
func (g *Grid) Settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for _, broker := range g.brokers() {
		if broker != "broker" && !g.Daemon(broker).Running() {
			continue
		}
		if err := g.until(ctx, broker, func(st map[string]any) bool {
			return length(st["sites"]) == len(g.sites) && length(st["proxies"]) == len(g.cfg.Proxies)
		}); err != nil {
			return fmt.Errorf("waited for %d sites and %d proxies to join the %s: %w", len(g.sites), len(g.cfg.Proxies), broker, err)
		}
	}
	for site := range g.sites {
		if err := g.until(ctx, "frontal "+site, func(st map[string]any) bool { return length(st["helpers"]) == g.helpers[site] }); err != nil {
			return fmt.Errorf("waited for %d helpers to join the frontal of %s: %w", g.helpers[site], site, err)
		}
	}
	return nil
}

// AwaitMeasured waits until the broker knows the measured profile of every site.
func (g *Grid) AwaitMeasured(ctx context.Context) error {
	var missing []string
	err := g.until(ctx, "broker", func(st map[string]any) bool {
		missing = unmeasured(st)
		return len(missing) == 0
	})
	if err != nil {
		return fmt.Errorf("waited for sites to measure themselves, missing is %v: %w", missing, err)
	}
	return nil
}

// unmeasured lists the sites in the broker's status that have no measured profile.
func unmeasured(status map[string]any) (missing []string) {
	sites, _ := status["sites"].([]any)
	for _, s := range sites {
		site, _ := s.(map[string]any)
		if site["measured"] == nil {
			profile, _ := site["profile"].(map[string]any)
			missing = append(missing, fmt.Sprint(profile["site"]))
		}
	}
	return missing
}

// until polls a daemon's status until ok returns true.
func (g *Grid) until(ctx context.Context, name string, ok func(map[string]any) bool) error {
	s, done, err := g.Admin(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	for {
		st, err := statusOf(ctx, s)
		if err != nil {
			return err
		}
		if ok(st) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; its last status: %v", ctx.Err(), st)
		case <-time.After(20 * time.Millisecond): // nothing announces the change
		}
	}
}

// length returns the length of a list or an object in a status.
func length(v any) int {
	switch v := v.(type) {
	case []any:
		return len(v)
	case map[string]any:
		return len(v)
	}
	return 0
}
