package broker

import (
	"sync"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/overlay"
)

// measurements are what sites measured of themselves, for admins to compare with the profiles; no
// decision uses them. There is at most one for each site that the registry knows. The zero value is
// ready.
type measurements struct {
	mu sync.Mutex // guards of
	of map[overlay.SiteID]probe.Measured
}

// note stores the measurement that a site sent when it joined, in place of the previous one. Nil
// removes it.
func (m *measurements) note(site overlay.SiteID, pb *controlpb.Measurement) error {
	measured, err := probe.FromPB(pb)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = make(map[overlay.SiteID]probe.Measured)
	}
	if pb == nil {
		delete(m.of, site)
	} else {
		m.of[site] = measured
	}
	return nil
}

// get returns the last measurement of a site, or nil.
func (m *measurements) get(site overlay.SiteID) *probe.Measured {
	m.mu.Lock()
	defer m.mu.Unlock()
	if measured, ok := m.of[site]; ok {
		return &measured
	}
	return nil
}

// keep removes the sites for which known is false.
func (m *measurements) keep(known func(overlay.SiteID) bool) {
	m.mu.Lock()
	var sites []overlay.SiteID
	for site := range m.of {
		sites = append(sites, site)
	}
	m.mu.Unlock()
	for _, site := range sites {
		if !known(site) {
			m.mu.Lock()
			delete(m.of, site)
			m.mu.Unlock()
		}
	}
}
