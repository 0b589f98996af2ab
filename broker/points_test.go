package broker

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
)

const testLease = time.Minute

var (
	testKey  = keyOf("run:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	testJob  = testKey.ID()
	otherKey = keyOf("run:HxECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	otherJob = otherKey.ID()
	zero     = time.Unix(1_000_000, 0)
)

func at(d time.Duration) time.Time { return zero.Add(d) }

func rank(r uint32) overlay.ProcessName { return overlay.ProcessName{Job: testJob, Rank: r} }

func keyOf(text string) jobkey.Key {
	k, err := jobkey.Parse(text)
	if err != nil {
		panic(err)
	}
	return k
}

// signed signs the point with the test's job key.
func signed(p overlay.AccessPoint) overlay.AccessPoint {
	key := testKey
	if p.Process.Job == otherJob {
		key = otherKey
	}
	p.Proof = string(key.Auth().Prove(p.Process, p.Generation, p.Node))
	return p
}

func pointOf(site overlay.SiteID, name overlay.ProcessName, generation overlay.Generation) overlay.AccessPoint {
	return overlay.AccessPoint{
		Process: name, Generation: generation, Node: overlay.NodeID{Site: site, Name: "n1"},
		Local: netip.MustParseAddrPort("10.1.0.1:4001"), Public: netip.MustParseAddrPort("192.0.2.1:4001"),
	}
}

func wantErr(t *testing.T, what string, err, class error, text string) {
	t.Helper()
	if !errors.Is(err, class) || err.Error() != text {
		t.Errorf("%s:\n got %v\nwant %s (class %v)", what, err, text, class)
	}
}

func lookup(m *registry.Registry, name overlay.ProcessName) registry.Entry {
	return m.Lookup(nil, []overlay.ProcessName{name})[0]
}
