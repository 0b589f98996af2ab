package broker

// liveKeys are the settings that a reload changes while the broker serves.
var liveKeys = []string{
	"proxy_choice", "relay_limit", "limits.sessions", "limits.sites", "limits.proxies", "limits.processes",
	"limits.processes_per_site", "limits.waiting", "limits.waiting_per_site", "limits.names_per_site", "limits.half_open", "limits.half_open_per_source",
	"limits.enrolments", "limits.enrolments_per_source",
	"limits.peer_sessions", "limits.peer_streams", "limits.peer_calls", "limits.peer_bytes", "limits.peer_bytes_total", "limits.signalling", "limits.signalling_per_site",
}

// config returns the settings in effect. They are immutable; a reload replaces them. Keys that are
// not live are in cfg.
func (b *Broker) config() *Config { return b.live.Load() }

// reload returns a function that puts the live keys of new settings into effect.
func (b *Broker) reload(next Config) (apply func(), err error) {
	return func() {
		b.live.Store(&next)
		b.registry.SetLimits(next.Limits.registry())
		b.proxies.SetMax(next.Limits.Proxies)
		b.half.SetMax(next.Limits.HalfOpen, next.Limits.HalfOpenPerSource)
		b.observed.SetMax(next.Limits.HalfOpen, next.Limits.HalfOpenPerSource)
		if b.enrolment != nil {
			b.enrolment.SetMax(next.Limits.Enrolments, next.Limits.EnrolmentsPerSource)
		}
		b.waits.SetMax(0, next.Limits.WaitsPerSite)
		b.signalling.SetMax(next.Limits.Signalling, next.Limits.SignallingPerSite)
		b.endpoint.SetBudget(next.Limits.budget())
	}, nil
}
