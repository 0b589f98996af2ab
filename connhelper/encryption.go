package connhelper

import (
	"log/slog"
	"sync"

	"github.com/isthmus-grid/isthmus/overlay"
)

// encryption is the site's encryption policy, as last received from the frontal, and what was
// logged about it.
type encryption struct {
	log  *slog.Logger
	here overlay.SiteID

	mu     sync.Mutex // guards the fields below
	policy overlay.Encryption
	logged map[overlay.SiteID]bool // the last logged decision for each other site
}

// maxLogged bounds the record of what was logged: a dialler names its site without proof. Beyond the
// bound, sites are logged again.
const maxLogged = 4096

func newEncryption(log *slog.Logger, here overlay.SiteID) *encryption {
	return &encryption{log: log, here: here, policy: overlay.DefaultEncryption(), logged: map[overlay.SiteID]bool{}}
}

// set replaces the policy.
func (e *encryption) set(p overlay.Encryption) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.policy = p
}

// seal reports whether the site wants a carrier by path encrypted. It logs the decision once for
// each site, and again when it changes.
func (e *encryption) seal(path overlay.Path) bool {
	if path.Technique == 0 {
		return false // one node
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	peer := path.Peer.Site
	seal := e.policy.Wants(e.here, peer)
	if before, known := e.logged[peer]; !known || before != seal {
		if len(e.logged) >= maxLogged {
			clear(e.logged)
		}
		e.logged[peer] = seal
		e.log.Info("encryption", "site", e.here, "peer_site", peer, "required", seal)
	}
	return seal
}
