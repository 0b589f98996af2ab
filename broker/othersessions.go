package broker

import (
	"fmt"
	"maps"
	"slices"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// maxSiteBrokers bounds the brokers that a frontal reports sessions with.
const maxSiteBrokers = 8

// BrokerSession is what a frontal reports of its session with a broker. Brokers do not know of each
// other in any other way, and decide nothing by it.
type BrokerSession struct {
	Broker string `json:"broker"`
	Open   bool   `json:"open"`
}

// brokerSessions validates and converts a report.
func brokerSessions(pb []*controlpb.BrokerSession) ([]BrokerSession, error) {
	if len(pb) > maxSiteBrokers {
		return nil, fmt.Errorf("sessions with %d brokers; at most %d are taken", len(pb), maxSiteBrokers)
	}
	var all []BrokerSession
	for _, s := range pb {
		if err := overlay.CheckName("broker", s.GetBroker()); err != nil {
			return nil, err
		}
		all = append(all, BrokerSession{s.GetBroker(), s.GetOpen()})
	}
	return all, nil
}

// setBrokers records a site's sessions with brokers, beside its list.
func (h *hosts) setBrokers(site overlay.SiteID, sessions []BrokerSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sites[site]; s != nil {
		s.brokers = sessions
	}
}

// brokers returns a site's sessions with brokers, none while its frontal is away.
func (h *hosts) brokers(site overlay.SiteID) []BrokerSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sites[site]; s != nil && s.holder != 0 {
		return s.brokers
	}
	return nil
}

// otherBrokers returns the names of the brokers, besides the one whose status it is, that sites have
// reported, sorted.
func (s Status) otherBrokers() []string {
	names := map[string]bool{}
	for _, site := range s.Sites {
		for _, session := range site.Brokers {
			names[session.Broker] = true
		}
	}
	delete(names, s.Broker)
	return slices.Sorted(maps.Keys(names))
}
