package mpilib

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// sparesJob is a job with spare numbers, whose processes are goroutines of a test.
type sparesJob struct {
	t         *testing.T
	ctx       context.Context
	dir       string
	key       jobkey.Key
	ranks     int
	spares    int
	processes sync.WaitGroup
}

func newSparesJob(t *testing.T, ranks, spares int) *sparesJob {
	dir := testkit.ShortDir(t)
	key, err := jobkey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return &sparesJob{t: t, ctx: ctx, dir: dir, key: key, ranks: ranks, spares: spares}
}

// start runs f as process number, which is one that replaces another if there are replacements.
func (j *sparesJob) start(number int, f func(context.Context, *World) error, replacements ...int) {
	j.processes.Go(func() {
		conn, err := local.Listen(j.dir, overlay.ProcessName{Job: j.key.ID(), Rank: uint32(number)})
		if err != nil {
			j.t.Error(err)
			return
		}
		w, err := Init(j.ctx, WithConnector(conn, j.key, number, j.ranks), WithSpares(j.spares, replacements...))
		if err == nil {
			err = errors.Join(f(j.ctx, w), w.Finalize(j.ctx))
		}
		if err != nil {
			j.t.Errorf("process %d: %v", number, err)
		}
	})
}

// A process that replaces a lost one gets what was sent to its number before it was started, reaches all by
// messages and slots, and is found by a receive from any source once the loss is acknowledged.
func TestReplacement(t *testing.T) {
	j := newSparesJob(t, 3, 2)
	dead := make(chan struct{})
	for rank := range 3 {
		j.start(rank, func(ctx context.Context, w *World) error {
			r := w.Replacements()
			if w.Comm().Size() != 3 || r.Comm.Size() != 5 || r.Ranks != 3 || r.Rank() != rank || r.Comm.Rank() != rank {
				return fmt.Errorf("rank %d of %d, %d of %d numbers, %+v", w.Comm().Rank(), w.Comm().Size(), r.Comm.Rank(), r.Comm.Size(), r)
			}
			if _, err := w.Comm().Dup(ctx); err != nil { // a context besides that of the numbers
				return err
			}
			if err := parted(ctx, w.Comm(), 2); err != nil {
				return err
			}
			switch rank {
			case 2:
				close(dead)
				return nil
			case 1:
				if _, err := r.Comm.Probe(ctx, AnySource, 5); !errors.Is(err, ErrProcFailed) {
					return fmt.Errorf("rank 2 has died: %v", err)
				}
				if _, err := r.Comm.AckFailed(5); err != nil {
					return err
				}
				st, err := r.Comm.Probe(ctx, AnySource, 5)
				if err != nil || st.Source != 3 {
					return fmt.Errorf("a message from %d: %v", st.Source, err)
				}
				_, err = Recv(ctx, r.Comm, []int{0}, 3, 5)
				return err
			}
			early := Isend(r.Comm, []int{7}, 3, 4) // waits for the start
			<-dead
			slot, err := GetFrom[int](r.Comm, 3, 1, 1)
			if err != nil {
				return err
			}
			j.start(3, replacing, 2)
			v := []int{0}
			if err := slot.Await(ctx, 0); err != nil {
				return err
			}
			if n, _, err := slot.Get(v); err != nil || n != 1 || v[0] != 9 {
				return fmt.Errorf("value %d is %d: %v", n, v[0], err)
			}
			_, err = early.Wait(ctx)
			return errors.Join(err, Send(ctx, r.Comm, []int{1}, 3, 6))
		})
	}
	j.processes.Wait()
}

// replacing is a process that replaces rank 2 of 3, as the first one.
func replacing(ctx context.Context, w *World) error {
	r := w.Replacements()
	if w.Comm().Size() != 1 || w.Comm().Rank() != 0 || r.Rank() != 2 || r.Comm.Rank() != 3 {
		return fmt.Errorf("rank %d of %d, number %d with rank %d", w.Comm().Rank(), w.Comm().Size(), r.Comm.Rank(), r.Rank())
	}
	v := []int{0}
	if _, err := Recv(ctx, r.Comm, v, 0, 4); err != nil || v[0] != 7 {
		return fmt.Errorf("received %d: %w", v[0], err)
	}
	slot, err := PutTo[int](r.Comm, 0, 1, 1)
	if err == nil {
		err = slot.Put(1, []int{9})
	}
	if err := errors.Join(err, Send(ctx, r.Comm, []int{1}, 1, 5)); err != nil {
		return err
	}
	_, err = Recv(ctx, r.Comm, v, 0, 6) // a value that waits is dropped by Finalize
	return err
}

// Jobs without spare numbers have none.
func TestNoReplacements(t *testing.T) {
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if r := c.World().Replacements(); r != nil {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}
