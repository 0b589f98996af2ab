package mpilib

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The rules of the standard hold for ranks with replicas too, whichever replica dies. With -replicated
// every world of the tests has two processes for each rank, and with -killed one of these dies in each world.
var (
	replicated = flag.Bool("replicated", false, "make each world of the tests with two processes for each rank")
	killed     = flag.Bool("killed", false, "as -replicated, and kill a random process in each world")
	killSeed   = flag.Uint64("killseed", 1, "which processes -killed kills, and when")
)

// replicatedWays are ways of which -replicated uses one in turn, instead of the others.
var replicatedWays = []way{
	{name: "two replicas, parallel", path: alike(0), apart: true, copies: true, table: replica.Parallel},
	{name: "two replicas, primary", path: alike(0), apart: true, copies: true, table: replica.Primary},
	{name: "slow, two replicas, parallel", path: alike(0), apart: true, slow: true, copies: true, table: replica.Parallel},
	{name: "slow direct, two replicas, primary", path: alike(overlay.Direct), slow: true, copies: true, table: replica.Primary},
}

// refused are the tests of what ranks with replicas cannot do, and the call that is refused there. A world of such
// a test either fails with ErrReplicated, or makes no such call and passes; TestMain sees to it that at least one is refused.
var refused = map[string]string{
	"TestStandard_3_9_ActiveAndInactive":   "Cancel",
	"TestStandard_3_5_LaterReceive":        "Cancel",
	"TestStandard_3_8_4_CancelReceive":     "Cancel",
	"TestStandard_3_8_4_CancelSend":        "Cancel",
	"TestStandard_3_8_4_CancelMatchedSend": "Cancel",
	"TestStandard_3_8_4_CancelRace":        "Cancel",
	"TestStandard_3_8_4_CancelSelf":        "Cancel",
	"TestCollectivesOfPartsAndSlices":      "Init",
	"TestReductionsOfPartsAndSlices":       "Init",
	"TestStandard_6_9_2_NamedReductions":   "Init",
	"TestStandard_4_2_ProcNull":            "Parrived",
	"TestStandard_4_2_Partitions":          "Parrived",
	"TestStandard_4_2_Datatypes":           "Parrived",
	"TestStandard_4_2_1_Sizes":             "Parrived",
	"TestStandard_4_2_States":              "Test",
	"TestBadCollectiveArguments":           "context ended",
	"TestGivenUp":                          "context ended",
	"TestIdupGivenUp":                      "context ended",
	"TestGivingUp":                         "context ended",
	"TestGivingUpHalfWay":                  "context ended",
	"TestStandard_WaitGivenUp":             "context ended",
}

// unalike are tests of programs whose replicas would not act alike, and why.
var unalike = map[string]string{
	"TestConcurrentDups":            "several goroutines make communicators",
	"TestCreateGroup":               "several goroutines make communicators",
	"TestTraffic":                   "two goroutines use one communicator",
	"TestStandard_3_8_2_MprobeRace": "several goroutines probe on one communicator",
}

// refusals are the tests of refused that ran, and whether a world of theirs was refused.
var refusals = struct {
	sync.Mutex
	of map[string]bool
}{of: map[string]bool{}}

// unrefused returns the tests of refused that ran, but could do what they say they cannot.
func unrefused() (names []string) {
	for name, was := range refusals.of {
		if !was {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// limitedWorld is testWorld for a test that may be about what ranks with replicas cannot do.
func limitedWorld(t *testing.T, ranks int, connect func(overlay.ProcessName) (overlay.Connector, error), f func(context.Context, *Comm) error, opts ...Option) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	call, limited := refused[name]
	if !limited {
		testWorld(t, ranks, connect, f, opts...)
		return
	}
	c := &collected{T: t}
	testWorld(c, ranks, connect, f, opts...)
	text := c.text.String()
	was := strings.Contains(text, call) && strings.Contains(text, ErrReplicated.Error())
	if text != "" && !was {
		t.Errorf("want that %s is refused: %s", call, text)
	}
	refusals.Lock()
	defer refusals.Unlock()
	refusals.of[name] = refusals.of[name] || was
}

// A fuse kills one process of a world when that has read from its connections often enough.
type fuse struct {
	victim int

	mu     sync.Mutex
	left   int // reads
	worlds map[int]*World
	member *member // the victim's
	blown  bool
	dying  sync.WaitGroup
}

// newFuse chooses a process of a test's world, one of n, and a moment.
func newFuse(t *testing.T, n int) *fuse {
	h := fnv.New64a()
	fmt.Fprint(h, t.Name(), turn(t))
	random := rand.New(rand.NewPCG(*killSeed, h.Sum64()))
	return &fuse{victim: random.IntN(n), left: 1 + random.IntN(4<<random.IntN(10)), worlds: map[int]*World{}}
}

// among is f for a world in which u may kill a process.
func (u *fuse) among(f func(context.Context, *Comm) error) func(context.Context, *Comm) error {
	return func(ctx context.Context, c *Comm) error {
		w := c.World()
		process := w.config.place.Process()
		u.mu.Lock()
		u.worlds[process] = w
		late := u.blown && process != u.victim
		u.mu.Unlock()
		if late {
			w.dead([]uint32{uint32(u.victim)}, "killed by the test before this one began")
		}
		return f(ctx, c)
	}
}

// killed reports whether a process has been killed.
func (u *fuse) killed(process int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.blown && process == u.victim
}

// burn counts a read of the victim's. Its links then break, nobody can reach it any more, and the others hear of that, in any order.
func (u *fuse) burn() {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.worlds[u.victim]
	if u.left--; u.left > 0 || u.blown || w == nil {
		return
	}
	u.end(w)
}

// blow kills the victim now.
func (u *fuse) blow() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.end(u.worlds[u.victim])
}

// end kills the victim, whose world is w. mu is held.
func (u *fuse) end(w *World) {
	u.blown = true
	u.member.vanish()
	u.dying.Go(w.engine.Close)
	for process, other := range u.worlds {
		if process != u.victim {
			u.dying.Go(func() { other.dead([]uint32{uint32(u.victim)}, "killed by the test") })
		}
	}
}

// mortal is a connection of the victim's. Once it is dead, nothing leaves it any more: it must not report the others, whose links
// break, as dead.
type mortal struct {
	net.Conn
	fuse *fuse
}

func (m mortal) Read(b []byte) (int, error) {
	m.fuse.burn()
	return m.Conn.Read(b)
}

func (m mortal) Write(b []byte) (int, error) {
	if m.fuse.killed(m.fuse.victim) {
		return 0, net.ErrClosed
	}
	return m.Conn.Write(b)
}

func (m mortal) CloseWrite() error { return m.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// replicated is world for a way with replicas.
func (w way) replicated(t *testing.T, ranks int, m *meeting, f func(context.Context, *Comm) error, opts ...Option) {
	t.Helper()
	opts = append([]Option{withReplicas(2, w.table)}, opts...)
	if !*killed {
		limitedWorld(t, ranks, m.join, f, opts...)
		return
	}
	u := newFuse(t, 2*ranks)
	m.fuse = u
	opts = append(opts, func(cfg *config) { cfg.killed = u.killed }, WithConnectTimeout(3*time.Second)) // what is being dialled when it dies stays silent
	failed := t.Failed()
	limitedWorld(t, ranks, m.join, u.among(f), opts...)
	u.dying.Wait()
	if t.Failed() && !failed {
		t.Logf("process %d of that world was to die; it did: %t", u.victim, u.blown)
	}
	if u.blown {
		deaths.Lock()
		deaths.n++
		deaths.Unlock()
	}
}

// deaths counts the processes killed.
var deaths struct {
	sync.Mutex
	n int
}

// reportReplicated says what the tests of replicated ways found together, and returns the status of the tests.
func reportReplicated(status int) int {
	if *killed {
		fmt.Fprintf(os.Stderr, "%d processes were killed\n", deaths.n)
	}
	if names := unrefused(); len(names) > 0 {
		fmt.Fprintf(os.Stderr, "what these tests do is not refused to ranks with replicas: %v\n", names)
		return 1
	}
	return status
}
