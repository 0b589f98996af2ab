package mpilib

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The rules of the standard do not depend on how ranks are connected. So the tests connect their
// worlds in all ways: on one node, between nodes of a site, through a proxy, and in all of these at
// once; each also over sockets with random delays, so that messages arrive at different times, and
// in different orders from different peers.
//
// A run of the tests uses the ways in turn, one for each world. With -every each world is connected
// in each way, with 1 to 9 ranks. Worlds of more than maxEvery ranks, which take most of the time
// and check no additional rule, use maxTurns of the ways then, different ones each time.
var everyWay = flag.Bool("every", false, "make each world of the tests in every way, with up to 9 ranks (go test -timeout 1h; best one part of the tests at a time)")

const (
	maxEvery = 5
	maxTurns = 3
)

// A way is a kind of connection between the ranks of a world.
type way struct {
	name   string
	path   func(a, b int) overlay.Technique // between two ranks; 0 is the same node
	places func(rank int) (site, node string)
	slow   bool // with delays (slowness)
	apart  bool // without shared memory
	copies bool // each rank has two processes,
	table  replica.Table
}

var ways = []way{
	{name: "local", path: alike(0)},
	{name: "mixed", path: mixedPath, places: mixedPlace},
	{name: "direct", path: alike(overlay.Direct), places: ownNode},
	{name: "relay", path: alike(overlay.Relay), places: ownSite},
	{name: "unshared", path: alike(0), apart: true},
	{name: "slow unshared", path: alike(0), apart: true, slow: true},
	{name: "slow mixed", path: mixedPath, places: mixedPlace, slow: true},
	{name: "slow local", path: alike(0), slow: true},
	{name: "slow direct", path: alike(overlay.Direct), places: ownNode, slow: true},
	{name: "slow relay", path: alike(overlay.Relay), places: ownSite, slow: true},
}

func alike(t overlay.Technique) func(int, int) overlay.Technique {
	return func(int, int) overlay.Technique { return t }
}

func ownNode(rank int) (site, node string) { return "site", fmt.Sprintf("node%d", rank) }
func ownSite(rank int) (site, node string) { return fmt.Sprintf("site%d", rank), "node" }

// mixedPlace has two sites of two nodes. Already the first ranks have a relayed path, a direct path
// and a common node.
func mixedPlace(rank int) (site, node string) {
	at := [...]struct{ site, node string }{
		{"a", "1"}, {"b", "1"}, {"a", "2"}, {"a", "1"}, {"b", "1"}, {"b", "2"}, {"a", "2"}, {"b", "2"}, {"a", "1"},
	}[rank%9]
	return at.site, at.node
}

func mixedPath(a, b int) overlay.Technique {
	siteA, nodeA := mixedPlace(a)
	siteB, nodeB := mixedPlace(b)
	switch {
	case siteA != siteB:
		return overlay.Relay
	case nodeA != nodeB:
		return overlay.Direct
	}
	return 0
}

// turns counts the worlds of each test, so that a test's worlds use the same ways regardless of
// other tests.
var turns = struct {
	sync.Mutex
	of map[string]uint32
}{of: map[string]uint32{}}

// turn returns consecutive numbers in the calls of one test, from a start that depends on the test.
func turn(t *testing.T) int {
	turns.Lock()
	defer turns.Unlock()
	at, known := turns.of[t.Name()]
	if !known {
		h := fnv.New32a()
		h.Write([]byte(t.Name()))
		at = h.Sum32() % 1000
	}
	turns.of[t.Name()] = at + 1
	return int(at)
}

// anyWay is TestWorld in one of the ways, or with -every in each.
func anyWay(t *testing.T, ranks int, f func(ctx context.Context, c *Comm) error, opts ...Option) {
	t.Helper()
	if *inJob {
		within(t, ranks, f)
		return
	}
	turns := 1
	switch {
	case *everyWay && ranks <= maxEvery:
		turns = len(ways)
	case *everyWay:
		turns = maxTurns
	}
	among := ways
	if *replicated || *killed {
		name, _, _ := strings.Cut(t.Name(), "/")
		if why := unalike[name]; why != "" {
			t.Skip("replicas do not act alike: " + why)
		}
		among = replicatedWays
	}
	for range turns {
		among[turn(t)%len(among)].world(t, ranks, f, opts...)
	}
}

// world is TestWorld with ranks connected in this way.
func (w way) world(t *testing.T, ranks int, f func(ctx context.Context, c *Comm) error, opts ...Option) {
	t.Helper()
	dir := testkit.ShortDir(t)
	m := newMeeting(t, dir, w)
	defer m.close()
	if w.places != nil {
		opts = append([]Option{WithPlaces(w.places)}, opts...) // a test's own options have precedence
	}
	if w.apart {
		opts = append([]Option{WithoutSharedMemory()}, opts...)
	}
	failed := t.Failed()
	if w.copies {
		w.replicated(t, ranks, m, f, opts...)
	} else {
		testWorld(t, ranks, m.join, f, opts...)
	}
	if t.Failed() && !failed {
		t.Logf("that world had %d ranks, way %q", ranks, w.name)
	}
}

// Every way connects ranks as specified; otherwise the tests would prove nothing.
func TestWays(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			w.world(t, 5, func(ctx context.Context, c *Comm) error {
				if err := Alltoall(ctx, c, make([]int, 5), make([]int, 5)); err != nil {
					return err
				}
				for other := range 5 { // sets up a link with each rank
					if _, err := Sendrecv(ctx, c, []int{1}, other, 0, []int{0}, other, 0); err != nil {
						return err
					}
				}
				// Shared memory is set up while messages are transferred.
				for {
					wrong := w.made(c)
					all, some := []bool{wrong == nil}, []bool{true}
					if err := Allreduce(ctx, c, all, some, LAnd); err != nil {
						return errors.Join(err, wrong)
					} else if some[0] {
						return nil
					}
				}
			})
		})
	}
}

// made returns an error for links of c that are not of this way.
func (w way) made(c *Comm) error {
	for _, l := range c.world.Links() {
		want, via, sealed := "local", "shared memory", false
		if t := w.path(c.Rank(), l.Peer); t != 0 {
			want, via, sealed = t.String(), "", t == overlay.Relay
		} else if w.apart {
			via = ""
		}
		if l.Technique != want || l.Via != via || sealed != (l.Cipher != "") {
			return fmt.Errorf("link with %d: %+v, want %s by %q", l.Peer, l, want, via)
		}
	}
	return nil
}

// quiet is a log that is discarded.
var quiet = slog.New(slog.DiscardHandler)
