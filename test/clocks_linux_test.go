package test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/grid"
	"github.com/isthmus-grid/isthmus/internal/jobkey"
	"github.com/isthmus-grid/isthmus/link/probe"
	"github.com/isthmus-grid/isthmus/link/sealed"
)

// skewed is a rank at a node whose clock is ahead by so much, as far as its
// certificate goes: neither can a test set a clock of this machine, nor give a
// process one of its own.
func (w *world) skewed(key jobkey.Key, node string, rank, size uint32, ahead time.Duration) *member {
	w.t.Helper()
	r, err := probe.JoinFor(w.ctx, w.Grid, node, key, rank, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Identity.Credentials = sync.OnceValues(func() (sealed.Credentials, error) {
		return key.CertificatesBy(func() time.Time { return time.Now().Add(ahead) }, rank, r.Identity.Generation)
	})
	return w.served(r, size)
}

// Ranks at sites whose clocks differ by ten minutes are linked, encrypted, whichever
// of them dials; by days they are not, and both ends are told why.
func TestClocksDiffer(t *testing.T) {
	w := newWorld(t, siteClosed+siteOpen, grid.Config{})
	for _, ahead := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		for _, nodes := range [][2]string{{"closed/n1", "open/n1"}, {"open/n1", "closed/n1"}} {
			key := newKey(t, "clocks")
			j := &joint{a: w.skewed(key, nodes[0], 0, 2, ahead), b: w.member(key, nodes[1], 1, 2)}
			w.connect(j)
			if j.near.Path.Cipher == "" {
				t.Errorf("%v from %s: %v is not encrypted", ahead, nodes[0], j.near.Path)
			}
			w.exchange(j)
			j.end(t)
		}
	}
	key := newKey(t, "clocks")
	a, b := w.skewed(key, "closed/n1", 0, 2, 72*time.Hour), w.member(key, "open/n1", 1, 2)
	for m, peer := range map[*member]uint32{a: 1, b: 0} {
		if err := m.mesh.Connect(w.ctx, peer); err == nil || !strings.Contains(err.Error(), "by NTP") {
			t.Errorf("rank %d, with clocks three days apart: %v", 1-peer, err)
		}
	}
}
