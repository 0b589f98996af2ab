package mpilib

import "github.com/isthmus-grid/isthmus/overlay"

// WithPlace pretends that this process runs on a node of a site, whatever the
// helper says. Tests use it to lay out sites within one machine.
func WithPlace(site, node string) Option {
	return WithPlaces(func(int) (string, string) { return site, node })
}

// WithPlaces is WithPlace for all ranks of a TestWorld: where says the place of
// each rank of the world.
func WithPlaces(where func(rank int) (site, node string)) Option {
	return func(cfg *config) {
		cfg.where = func(rank int) overlay.NodeID {
			site, node := where(rank)
			return overlay.NodeID{Site: overlay.SiteID(site), Name: node}
		}
	}
}
