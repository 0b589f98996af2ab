//go:build system

package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// These tests kill a rank in the middle of an operation and check that all others notice, agree on
// it, shrink and continue, in bounded time.

const (
	// killsKey is the environment variable with the number of kills in TestKill; the default is
	// kills.
	killsKey = "ISTHMUS_TEST_KILLS"
	kills    = 40
	// doomKey marks, in the environment, a process as a rank of survive: "-" for one that lives,
	// otherwise the state in which it dies and the number of microseconds after which it does; but
	// before the late states unless that is one of them.
	doomKey = "ISTHMUS_TEST_DOOM"
	// killPatience bounds a job; what the survivors need is much less.
	killPatience = 4 * time.Minute
	// killReach is how long a rank may take to start or to answer before the others consider it
	// failed. On a busy machine it must not be short: a live rank that is considered failed is out
	// for good.
	killReach = 15 * time.Second
)

// A state is what a rank is doing. One without a function does not concern a communicator.
type state struct {
	name string
	do   func(ctx context.Context, c *mpilib.Comm) error
}

// states are what a rank can be doing when it is killed, in the order in which a job goes through
// them.
var states = []state{
	{"starting", nil},
	{"bcast", func(ctx context.Context, c *mpilib.Comm) error { return mpilib.Bcast(ctx, c, make([]byte, 1<<20), 0) }},
	{"computing", func(ctx context.Context, c *mpilib.Comm) error {
		for end := time.Now().Add(2 * time.Millisecond); time.Now().Before(end); {
		}
		return nil
	}},
	{"sending", func(ctx context.Context, c *mpilib.Comm) error { return ring(ctx, c, 1<<20, false) }},
	{"receiving", func(ctx context.Context, c *mpilib.Comm) error { return ring(ctx, c, 100, true) }},
	{"any source", anySource},
	{"probing", probing},
	{"allreduce", func(ctx context.Context, c *mpilib.Comm) error {
		return mpilib.Allreduce(ctx, c, make([]float64, 1<<14), make([]float64, 1<<14), mpilib.Sum[float64])
	}},
	{"alltoall", func(ctx context.Context, c *mpilib.Comm) error {
		return mpilib.Alltoall(ctx, c, make([]byte, c.Size()<<14), make([]byte, c.Size()<<14))
	}},
	{"split", func(ctx context.Context, c *mpilib.Comm) error {
		d, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		return d.Free()
	}},
	{"agreeing", func(ctx context.Context, c *mpilib.Comm) error { _, err := c.Agree(ctx, 1); return err }},
	{"shrinking", func(ctx context.Context, c *mpilib.Comm) error { _, err := c.Shrink(ctx); return err }},
	{"finalizing", nil},
}

// isLate reports whether a rank that dies in a state may take part in the last agreement, after
// which its death does not affect the others.
func isLate(name string) bool {
	return slices.ContainsFunc(states[len(states)-5:], func(s state) bool { return s.name == name })
}

// ring sends n bytes to the next rank; if first is set the receive is posted first.
func ring(ctx context.Context, c *mpilib.Comm, n int, first bool) error {
	next, last := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	if first {
		_, err := mpilib.Sendrecv(ctx, c, make([]byte, n), next, 1, make([]byte, n), last, 1)
		return err
	}
	out := mpilib.Isend(c, make([]byte, n), next, 2)
	_, inErr := mpilib.Recv(ctx, c, make([]byte, n), last, 2)
	_, outErr := out.Wait(ctx)
	return errors.Join(inErr, outErr)
}

// anySource makes the first rank receive from all.
func anySource(ctx context.Context, c *mpilib.Comm) error {
	if c.Rank() != 0 {
		return mpilib.Ssend(ctx, c, []int{1}, 0, 3)
	}
	for range c.Size() - 1 {
		if _, err := mpilib.Recv(ctx, c, []int{0}, mpilib.AnySource, 3); err != nil {
			return err
		}
	}
	return nil
}

// probing makes every rank probe for the next one's message.
func probing(ctx context.Context, c *mpilib.Comm) error {
	next, last := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	if _, err := mpilib.Isend(c, []int{1}, last, 4).Wait(ctx); err != nil {
		return err
	}
	m, err := c.Mprobe(ctx, next, 4)
	if err != nil {
		return err
	}
	_, err = mpilib.MRecv(ctx, m, []int{0})
	return err
}

// survive is a rank: it goes through all states, and after each that failed somewhere it continues
// with the remaining ranks. It writes how many those are.
func survive() error {
	doom := os.Getenv(doomKey)
	end := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	die := func(state string) {
		name, micros, _ := strings.Cut(doom, ":")
		switch {
		case name == state:
			d, _ := strconv.Atoi(micros)
			time.AfterFunc(time.Duration(d)*time.Microsecond, end)
		case doom != "-" && isLate(state) && !isLate(name): // its time is longer than the states before took
			end()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), killPatience)
	defer cancel()
	die("starting")
	w, err := mpilib.Init(ctx, mpilib.WithConnectTimeout(killReach))
	if err != nil {
		return err
	}
	c := w.Comm()
	for _, s := range states {
		if s.do == nil {
			continue
		}
		die(s.name)
		if c, err = together(ctx, c, s.name, s.do); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	fmt.Println("left:", c.Size())
	die("finalizing")
	if doom != "-" {
		defer time.Sleep(killPatience) // until it is killed, if it was not yet
	}
	if err := w.Finalize(ctx); err != nil && !errors.Is(err, mpilib.ErrProcFailed) {
		return err
	}
	return nil
}

// together runs a function with c, agrees on whether all succeeded, and if not returns the
// communicator of the remaining ranks.
func together(ctx context.Context, c *mpilib.Comm, state string, do func(context.Context, *mpilib.Comm) error) (*mpilib.Comm, error) {
	well := uint64(1)
	if err := do(ctx, c); err != nil {
		fmt.Printf("%s: %v\n", state, err)
		if ctx.Err() != nil {
			return nil, err
		}
		well = 0
		if err := c.Revoke(); err != nil {
			return nil, err
		}
	}
	all, err := c.Agree(ctx, well)
	switch {
	case err != nil && !errors.Is(err, mpilib.ErrProcFailed):
		return nil, err
	case err == nil && all == 1:
		return c, nil
	}
	return c.Shrink(ctx)
}

// A killed is a job one rank of which is killed.
type killed struct {
	size, rank int
	state      string
	micros     int
}

func (k killed) String() string {
	return fmt.Sprintf("rank %d of %d, %s for %d us", k.rank, k.size, k.state, k.micros)
}

// command is an exec.Cmd, or one of a lab's.
type command interface {
	Start() error
	Wait() error
}

// run runs the job. rank creates the process of a rank, with the additions to its environment and
// its output. It returns the time from the death until the last survivor ended.
func (k killed) run(t *testing.T, rank func(r int, env []string, out io.Writer) command) time.Duration {
	t.Helper()
	outputs := make([]bytes.Buffer, k.size)
	errs := make([]error, k.size)
	ends := make([]time.Time, k.size)
	var ranks sync.WaitGroup
	for r := range k.size {
		doom := "-"
		if r == k.rank {
			doom = fmt.Sprintf("%s:%d", k.state, k.micros)
		}
		env := append(os.Environ(), doomKey+"="+doom, mpilib.EnvRank+"="+strconv.Itoa(r), mpilib.EnvSize+"="+strconv.Itoa(k.size))
		cmd := rank(r, env, &outputs[r])
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ranks.Go(func() {
			errs[r] = cmd.Wait()
			ends[r] = time.Now()
		})
	}
	ranks.Wait()
	k.check(t, outputs, errs)
	return slices.MaxFunc(ends, time.Time.Compare).Sub(ends[k.rank])
}

// check checks how the ranks ended and what they wrote.
func (k killed) check(t *testing.T, outputs []bytes.Buffer, errs []error) {
	t.Helper()
	left := map[string]bool{}
	for r := range outputs {
		status, _ := errs[r].(*exec.ExitError)
		switch {
		case r == k.rank:
			if status == nil || status.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Errorf("%v: it ended otherwise: %v", k, errs[r])
			}
			continue
		case errs[r] != nil:
			t.Errorf("%v: rank %d: %v", k, r, errs[r])
		}
		for line := range strings.Lines(outputs[r].String()) {
			if n, ok := strings.CutPrefix(line, "left: "); ok {
				left[strings.TrimSpace(n)] = true
			}
		}
	}
	if len(left) != 1 || !left[strconv.Itoa(k.size-1)] && !(isLate(k.state) && left[strconv.Itoa(k.size)]) {
		t.Errorf("%v: left are %v", k, left)
	}
	if t.Failed() {
		for r := range outputs {
			t.Logf("rank %d wrote:\n%s", r, outputs[r].String())
		}
	}
}

// If any rank of a job on one node is killed, in any state, the others continue.
func TestKill(t *testing.T) {
	labtest.NeedLab(t) // its own folder and processes are looked after there
	n := kills
	if text := os.Getenv(killsKey); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	longest, longestStart := time.Duration(0), time.Duration(0)
	shm, _ := os.ReadDir("/dev/shm")
	for i := range n {
		state := states[i%len(states)].name
		size := 4 + rng.IntN(3)
		k := killed{size: size, rank: rng.IntN(size), state: state, micros: rng.IntN(4000)}
		switch {
		case i == 0:
			k.micros = 1e6 // longer than all states take
		case state == "starting":
			k.micros = rng.IntN(50000)
		}
		dir, err := os.MkdirTemp("", "isthmus")
		if err != nil {
			t.Fatal(err)
		}
		key := labtest.NewKey(t, "kill").String()
		took := k.run(t, func(_ int, env []string, out io.Writer) command {
			cmd := exec.Command(os.Args[0])
			cmd.Env, cmd.Stdout, cmd.Stderr = append(env, mpilib.EnvDir+"="+dir, jobkey.EnvKey+"="+key), out, out
			return cmd
		})
		if state == "starting" {
			longestStart = max(longestStart, took)
		} else {
			longest = max(longest, took)
		}
		// The last process to leave removes everything. If that is the one that was killed, its socket stays,
		// and what says that the others have left.
		files, err := os.ReadDir(dir)
		sockets := slices.DeleteFunc(slices.Clone(files), func(f os.DirEntry) bool { return !strings.HasSuffix(f.Name(), ".sock") })
		if len(sockets) > 1 || len(sockets) == 0 && len(files) > 0 || err != nil {
			t.Errorf("%v: left behind: %v, %v", k, files, err)
		}
		os.RemoveAll(dir)
		if t.Failed() {
			t.Fatalf("job %d with seed %d", i, seed)
		}
	}
	if now, _ := os.ReadDir("/dev/shm"); len(now) > len(shm) {
		t.Errorf("left in /dev/shm: %v", now)
	}
	t.Logf("%d kills: the last survivor was done %v after the death, %v where it was starting", n, longest, longestStart)
}

// Ranks of two closed sites survive the death of one of them, including those that share no node
// with it.
func TestKillOverTwoSites(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := labtest.NewWorld(t, labtest.SiteClosed+"  - {name: shed, preset: no-route/egress-443, nodes: 2}\n", grid.Config{
		Profile: func(_ string, p overlay.SiteProfile) overlay.SiteProfile { return p }, // whichever technique works first
	})
	nodes := []string{"closed/n1", "closed/n1", "closed/n2", "shed/n1", "shed/n2"}
	for _, k := range []killed{
		{5, 0, "allreduce", 500},
		{5, 2, "receiving", 0},
		{5, 3, "sending", 0},
		{5, 4, "starting", 300000},
	} {
		key := labtest.NewKey(t, "kill").String()
		took := k.run(t, func(r int, env []string, out io.Writer) command {
			cmd := w.Lab.Host(nodes[r]).Command(w.Ctx, os.Args[0])
			cmd.Env, cmd.Stdout, cmd.Stderr = append(env, mpilib.EnvHelper+"="+w.Socket(nodes[r]), jobkey.EnvKey+"="+key), out, out
			return cmd
		})
		t.Logf("%v: the last survivor was done %v after the death", k, took)
	}
}
