package mpilib

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/mpilib/internal/join"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
	"github.com/isthmus-grid/isthmus/overlay"
)

// milestoneJob is a job of two ranks with two replicas and spare numbers, whose processes are goroutines of a test. Its
// program adds up numbers, with all kinds of calls, until the test says that it is enough.
type milestoneJob struct {
	t         *testing.T
	ctx       context.Context
	dir       string
	key       jobkey.Key
	table     replica.Table
	newcomers int
	processes sync.WaitGroup

	enough   atomic.Bool
	rounds   [8]atomic.Int64          // by process: that it has come to
	worlds   [8]atomic.Pointer[World] // by process
	killed   [8]atomic.Bool
	admitted [8]chan struct{} // closed when a newcomer goes on
	sums     sync.Map         // by process: what came out
}

func newMilestoneJob(t *testing.T, table replica.Table, newcomers int) *milestoneJob {
	dir := testkit.ShortDir(t)
	key, err := jobkey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	j := &milestoneJob{t: t, ctx: ctx, dir: dir, key: key, table: table, newcomers: newcomers}
	for q := range j.admitted {
		j.admitted[q] = make(chan struct{})
	}
	return j
}

// start starts process number as a replica of a rank.
func (j *milestoneJob) start(number, rank, which int, f func(context.Context, *World) error) {
	j.processes.Go(func() {
		conn, err := local.Listen(j.dir, overlay.ProcessName{Job: j.key.ID(), Rank: uint32(number)})
		if err != nil {
			j.t.Error(err)
			return
		}
		place := func(cfg *config) {
			cfg.replicas = join.Place{Replica: which, Replicas: 2, Table: j.table, Newcomers: j.newcomers,
				Places: []overlay.NodeID{{Site: "a", Name: "n"}, {Site: "b", Name: "n"}}} // also of who comes later
			if number >= 4 {
				cfg.replicas.Number = number
			}
		}
		w, err := Init(j.ctx, WithConnector(conn, j.key, rank, 2), place, WithConnectTimeout(30*time.Second))
		if err == nil {
			j.worlds[number].Store(w)
			err = errors.Join(f(j.ctx, w), w.Finalize(j.ctx))
		}
		if err != nil && !j.killed[number].Load() {
			j.t.Errorf("process %d: %v", number, err)
		}
	})
}

// kill ends a process as if it had died.
func (j *milestoneJob) kill(number int) {
	j.killed[number].Store(true)
	j.worlds[number].Load().engine.Close()
}

// program is that of process number.
func (j *milestoneJob) program(number int) func(context.Context, *World) error {
	return func(ctx context.Context, w *World) error {
		c := w.Comm()
		me, other := c.Rank(), 1-c.Rank()
		round, sum := uint64(0), uint64(0)
		save := func() ([]byte, error) {
			return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, round), sum), nil
		}
		load := func(b []byte) error {
			round, sum = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
			return nil
		}
		for first := true; ; first = false {
			if err := w.Milestone(ctx, save, load); err != nil {
				return err
			}
			if first && number >= 4 {
				close(j.admitted[number])
			}
			j.rounds[number].Store(int64(round))
			if next, err := j.round(ctx, w, me, other, round); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			} else if next == 0 {
				break
			} else {
				sum += next
			}
			round++
		}
		if want := round * (round + 1); sum != want {
			return fmt.Errorf("after %d rounds the sum is %d, want %d", round, sum, want)
		}
		j.sums.Store(number, sum)
		return nil
	}
}

// round returns twice the number of a round plus one, which takes messages, collective calls, a receive from any source, a
// communicator and a decision; 0 if there are no more.
func (j *milestoneJob) round(ctx context.Context, w *World, me, other int, round uint64) (uint64, error) {
	c := w.Comm()
	enough, err := w.Decide(ctx, func() []byte { return fmt.Append(nil, j.enough.Load()) })
	if err != nil {
		return 0, err
	}
	goOn := []uint64{1}
	if string(enough) == "true" {
		goOn[0] = 0
	}
	if err := Bcast(ctx, c, goOn, 0); err != nil || goOn[0] == 0 {
		return 0, err
	}
	got := []uint64{0}
	in := Irecv(c, got, AnySource, 3)
	if err := Send(ctx, c, []uint64{round}, other, 3); err != nil {
		return 0, err
	}
	if _, err := in.Wait(ctx); err != nil || got[0] != round {
		return 0, fmt.Errorf("received %d: %w", got[0], err)
	}
	d, err := c.Dup(ctx)
	if err != nil {
		return 0, err
	}
	sum := []uint64{0}
	if err := Allreduce(ctx, d, []uint64{round + 1}, sum, Sum[uint64]); err != nil {
		return 0, err
	}
	if p, err := listed(ctx, d); err != nil || !p.Apart() {
		return 0, fmt.Errorf("algorithms are chosen as if all ranks were together: %w", err)
	}
	if site, err := w.NewSession().Group(ctx, PsetSite); err != nil || site.Size() != 1 {
		return 0, fmt.Errorf("at the site of rank %d are %v: %w", me, site, err)
	}
	return sum[0], d.Free()
}

// await waits until a process has gone on for some rounds.
func (j *milestoneJob) await(number int, more int64) {
	for from := j.rounds[number].Load(); j.rounds[number].Load() < from+more; {
		select {
		case <-time.After(time.Millisecond):
		case <-j.ctx.Done():
			j.t.Fatalf("process %d does not go on", number)
		}
	}
}

func (j *milestoneJob) awaitAdmitted(number int) {
	select {
	case <-j.admitted[number]:
	case <-j.ctx.Done():
		j.t.Fatalf("process %d is not admitted", number)
	}
}

// Replicas die, others come in their place, and the ones they had their state from die too: the result is right, and
// the last newcomers have it.
func TestMilestone(t *testing.T) {
	for _, table := range tables {
		t.Run(table.String(), func(t *testing.T) {
			j := newMilestoneJob(t, table, 3)
			for number := range 4 {
				j.start(number, number%2, number/2, j.program(number))
			}
			j.await(3, 3)
			j.kill(3)
			j.await(1, 3)
			j.start(4, 1, 1, j.program(4))
			j.awaitAdmitted(4)
			j.await(4, 2)
			j.kill(1) // rank 1 is now only the newcomer
			j.await(4, 3)
			j.start(5, 1, 0, j.program(5)) // which another one has its state from
			j.awaitAdmitted(5)
			j.await(5, 2)
			j.kill(4)
			j.kill(0)
			j.await(2, 2)
			j.start(6, 0, 0, j.program(6))
			j.awaitAdmitted(6)
			j.await(6, 2)
			j.enough.Store(true)
			j.processes.Wait()
			for _, number := range []int{2, 5, 6} {
				if _, ok := j.sums.Load(number); !ok {
					t.Errorf("process %d has no result", number)
				}
			}
		})
	}
}

// A process that gives up at a milestone while somebody comes leaves the job, which goes on without it.
func TestMilestoneGivenUp(t *testing.T) {
	j := newMilestoneJob(t, replica.Parallel, 1)
	givesUp := make(chan struct{})
	for number := range 3 {
		if number != 2 {
			j.start(number, number%2, number/2, j.program(number))
		}
	}
	j.start(3, 1, 1, j.program(3))
	ctx, cancel := context.WithCancel(j.ctx)
	j.start(2, 0, 1, func(all context.Context, w *World) error {
		defer close(givesUp)
		err := j.program(2)(ctx, w)
		if !errors.Is(err, ErrReplicated) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "given up while a process came") {
			return fmt.Errorf("given up with %v", err)
		}
		if _, err := w.Now(all); !errors.Is(err, ErrReplicated) {
			return fmt.Errorf("another call: %v", err)
		}
		j.killed[2].Store(true) // it cannot end well
		return errors.New("it has left")
	})
	j.await(3, 2)
	j.kill(3)
	loads := make(chan struct{})
	j.start(4, 1, 1, func(all context.Context, w *World) error {
		err := w.Milestone(all, nil, func([]byte) error {
			close(loads)
			<-givesUp // all others wait at the milestone until then
			return errors.New("it does not load")
		})
		if err == nil || !strings.Contains(err.Error(), "it does not load") {
			return fmt.Errorf("loaded: %v", err)
		}
		return nil
	})
	<-loads
	cancel()
	<-givesUp
	j.await(0, 2)
	j.enough.Store(true)
	j.processes.Wait()
}

// What a process that comes could not have is refused, with the reason.
func TestMilestoneRefuses(t *testing.T) {
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		w := c.World()
		come := func(want string) error {
			err := w.Milestone(ctx, nil, nil)
			if want == "" && err != nil || want != "" && (!errors.Is(err, ErrReplicated) || !strings.Contains(err.Error(), want)) {
				return fmt.Errorf("want %q: %v", want, err)
			}
			return nil
		}
		if err := come(""); err != nil {
			return err
		}
		in := Irecv(c, []int{0}, 1-c.Rank(), 7)
		if w.Replica() == 0 { // in the other one it may be complete
			if err := come("a receive of a message from rank"); err != nil {
				return err
			}
		}
		if err := Send(ctx, c, []int{1}, 1-c.Rank(), 7); err != nil {
			return err
		}
		if _, err := in.Wait(ctx); err != nil {
			return err
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := come("a communicator exists"); err != nil {
			return err
		}
		if err := d.Free(); err != nil {
			return err
		}
		return come("")
	}, WithReplicas(2))
}

// Without replicas a milestone is nothing.
func TestMilestoneWithoutReplicas(t *testing.T) {
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error { return c.World().Milestone(ctx, nil, nil) })
}

// A process that comes can do nothing before its first milestone; if the job ends without it, it is told. A state that
// cannot be loaded is an error of that process only.
func TestNewcomer(t *testing.T) {
	j := newMilestoneJob(t, replica.Parallel, 2)
	for number := range 3 {
		j.start(number, number%2, number/2, j.program(number))
	}
	j.start(3, 1, 1, j.program(3))
	j.await(3, 2)
	j.kill(3)
	cannot := errors.New("cannot load")
	j.start(4, 1, 1, func(ctx context.Context, w *World) error {
		if err := Send(ctx, w.Comm(), []int{1}, 0, 1); err == nil || !strings.Contains(err.Error(), "first Milestone") {
			return fmt.Errorf("sent before the first milestone: %v", err)
		}
		if _, err := Recv(ctx, w.Comm(), []int{1}, AnySource, 1); err == nil {
			return errors.New("received before the first milestone")
		}
		if _, err := w.Now(ctx); err == nil {
			return errors.New("the time before the first milestone")
		}
		if err := w.Milestone(ctx, nil, func([]byte) error { return cannot }); !errors.Is(err, cannot) {
			return fmt.Errorf("loaded: %v", err)
		}
		close(j.admitted[4])
		return nil
	})
	j.awaitAdmitted(4) // it was not, but the others have gone on
	j.await(1, 2)
	j.enough.Store(true)
	j.start(5, 1, 1, func(ctx context.Context, w *World) error {
		if err := j.program(5)(ctx, w); !errors.Is(err, ErrFinalized) {
			return err // it may still have come in time
		}
		return nil
	})
	j.processes.Wait()
}
