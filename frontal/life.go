package frontal

import (
	"fmt"
	"reflect"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/permit"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
)

// liveKeys are the settings that take effect while the frontal serves.
var liveKeys = append(ratelimit.LiveKeys(),
	"policy", "deny", "private", "node_networks", "encryption", "dial_timeout", "limits.links", "limits.links_per_node", "limits.processes", "limits.processes_per_node", "limits.waiting", "limits.waiting_per_node",
	"limits.half_open", "limits.half_open_per_source", "limits.peer_sessions", "limits.peer_streams", "limits.peer_calls", "limits.peer_bytes", "limits.peer_bytes_total",
	"profile.inbound", "profile.ports", "profile.filter", "profile.refusal", "profile.nat", "profile.egress",
	"profile.udp", "profile.udp_rate", "profile.mtu", "profile.idle_tcp", "profile.idle_udp", "profile.ipv6", "profile.ipv6_rules",
	"profile.privileged", "profile.high_ports_only", "profile.networks", "profile.forbidden",
)

// config returns the settings in effect, which are immutable; new ones replace them.
func (f *Frontal) config() *Config { return f.live.Load() }

// reload checks new settings and returns a function that applies the live keys. Links and sessions
// with brokers stay; helpers reconnect at once if their settings change.
func (f *Frontal) reload(next Config) (apply func(), err error) {
	old := f.config()
	merged := *old
	merged.Private, merged.NodeNetworks = next.Private, next.NodeNetworks
	merged.Deny, merged.Encryption, merged.Dial = next.Deny, next.Encryption, next.Dial
	merged.Policy = next.Policy
	merged.Limits = next.Limits
	merged.Limits.Cache, merged.Limits.Pending, merged.Limits.PendingPerNode = old.Limits.Cache, old.Limits.Pending, old.Limits.PendingPerNode // they need other tables
	state := old.Quota.State                                                                                                                   // read and written since the start
	merged.Quota, merged.Quota.State = next.Quota, state
	merged.Profile = next.Profile
	merged.Profile.GatewayOnly = old.Profile.GatewayOnly // it needs other listeners
	if err := merged.Check(); err != nil {
		return nil, fmt.Errorf("together with the keys that need a restart: %w", err)
	}
	own, err := permit.Load(string(merged.Policy)) // the file may have changed
	if err != nil {
		return nil, err
	}
	return func() {
		f.live.Store(&merged)
		f.half.SetMax(merged.Limits.HalfOpen, merged.Limits.HalfOpenPerSource)
		f.waits.SetMax(merged.Limits.Waiting, merged.Limits.WaitsPerNode)
		f.endpoint.SetBudget(merged.Limits.budget())
		f.gateway.Reload(merged.Limits.gateway(), merged.Quota.Rules())
		f.registry.SetMax(merged.Limits.Processes, merged.Limits.PerNode)
		changed := f.measure.Reload()
		switch {
		case f.permit.Change(own):
			f.work.Go(func() {
				f.joinAgain()
				f.resolver.Forget() // answers obtained under the previous policy
			})
		case changed:
			f.work.Go(f.joinAgain)
		}
		if changed || !reflect.DeepEqual(merged.Encryption, old.Encryption) {
			f.enterAgain()
		}
	}, nil
}

// drainQuiet is how long a draining frontal must be idle before it ends: by then, every peer that
// was given an address here has connected.
const drainQuiet = 15 * time.Second

// drain continues the existing links until they have ended, and the connections that a successor
// passes on. It accepts nothing else. It ends with the frontal's context at the latest.
func (f *Frontal) drain(hooks *daemon.Hooks) {
	f.stopMetrics() // a successor answers there
	hooks.LetGo()
	quiet := time.Duration(0) // without a listener there are no new connections
	if hooks.Succeeded() {
		quiet = drainQuiet
	}
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for last := time.Now(); ; {
		if f.gateway.LinkCount() > 0 {
			last = time.Now()
		} else if time.Since(last) >= quiet {
			return
		}
		select {
		case r := <-hooks.Returned():
			last = time.Now()
			f.work.Go(func() { f.gateway.GreetReturned(r) })
		case <-look.C:
		case <-f.ctx.Done():
			return
		}
	}
}
