package broker

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/overlay"
)

// All processes of a job present the same grant, one after the other, so a verified grant is
// cached: briefly, until it expires or until a revocation.
const (
	rememberGrant = 10 * time.Second
	maxGrants     = 1024
)

// grants verifies the grants by which processes prove on whose behalf they run. Safe for concurrent
// use.
type grants struct {
	holder func(chain [][]byte) (grant.Holder, error)

	mu     sync.Mutex                      // guards the fields below
	judged map[[sha256.Size]byte]goodGrant // by the hash of the grant's text
	lists  uint64                          // revocation lists received so far: what was judged under an older one is not kept
}

// goodGrant is the content of a grant that was valid for its job.
type goodGrant struct {
	job       overlay.JobID
	principal overlay.Principal
	ends      time.Time // expiry of the grant
	forget    time.Time
}

func newGrants(creds *control.Credentials) *grants {
	return &grants{judged: make(map[[sha256.Size]byte]goodGrant), holder: func(chain [][]byte) (h grant.Holder, err error) {
		h.User, h.Projects, err = creds.User(chain)
		return h, err
	}}
}

// judge returns the principal on whose behalf a job runs by its grant, and until when. With
// grant.ErrExpired the principal is set.
func (g *grants) judge(text string, job overlay.JobID, now time.Time) (overlay.Principal, time.Time, error) {
	sum := sha256.Sum256([]byte(text))
	g.mu.Lock()
	j, known := g.judged[sum]
	lists := g.lists
	g.mu.Unlock()
	if known && j.job == job && now.Before(j.forget) && now.Before(j.ends) {
		return j.principal, j.ends, nil
	}
	parsed, err := grant.Parse([]byte(text))
	if err != nil {
		return overlay.Principal{}, time.Time{}, malformed(err)
	}
	principal, err := parsed.Judge(job, now, g.holder)
	if err != nil {
		return principal, parsed.Expires, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lists != lists { // a list that arrived meanwhile may revoke the grant
		return principal, parsed.Expires, nil
	}
	if len(g.judged) >= maxGrants {
		clear(g.judged)
	}
	g.judged[sum] = goodGrant{job, principal, parsed.Expires, now.Add(rememberGrant)}
	return principal, parsed.Expires, nil
}

// forget drops the cache, so that all grants are verified anew. Call it after a new revocation list
// takes effect.
func (g *grants) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lists++
	clear(g.judged)
}

// read fills in the principal of an access point's grant, if it has one. An expired grant is
// accepted only from a process that is already registered by it: its helper or frontal has
// reconnected, and its links are left alone.
func (b *Broker) read(point *overlay.AccessPoint, now time.Time) error {
	if point.Grant == "" {
		return nil
	}
	principal, until, err := b.grants.judge(point.Grant, point.Process.Job, now)
	if errors.Is(err, grant.ErrExpired) && b.registered(*point, principal) {
		err = nil
	}
	if err != nil {
		return err
	}
	point.Principal, point.Until, point.Grant = principal, until, ""
	return nil
}

// registered reports whether the process is registered for the principal in the same generation.
func (b *Broker) registered(point overlay.AccessPoint, principal overlay.Principal) bool {
	var found [1]registry.Entry
	e := b.registry.Lookup(found[:0], []overlay.ProcessName{point.Process})[0]
	return e.Site != nil && e.Point.Generation == point.Generation && e.Point.Principal == principal
}

// inTime returns an error if the process gets no new links because its grant has expired.
func inTime(point overlay.AccessPoint, now time.Time) error {
	if point.Until.IsZero() || now.Before(point.Until) {
		return nil
	}
	return fmt.Errorf("%w: the grant by which %v works for %v expired at %s: it gets no new links; start the job with a grant for longer (--valid)",
		overlay.ErrForbidden, point.Process, point.Principal, point.Until.UTC().Format(time.RFC3339))
}
