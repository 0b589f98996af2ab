package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/agree"
	"github.com/isthmus-grid/isthmus/overlay"
)

// die ends this rank as a kill would: its links close without a goodbye, and its connector does not learn that it
// has finalized.
func die(c *Comm) {
	c.world.member.Connector = struct{ overlay.Connector }{c.world.member.Connector}
	c.world.engine.Close()
}

// linked sets up a link between every two ranks, so that it is certain which ranks notify which.
func linked(ctx context.Context, c *Comm) error {
	in := make([]int, c.Size())
	return Alltoall(ctx, c, make([]int, c.Size()), in)
}

// parted links every rank with every other, and then ends one of them.
func parted(ctx context.Context, c *Comm, dead int) error {
	if err := linked(ctx, c); err != nil {
		return err
	}
	if c.Rank() != dead {
		return Send(ctx, c, []int{0}, dead, MaxTag)
	}
	for r := range c.Size() {
		if r == dead {
			continue
		}
		if _, err := Recv(ctx, c, []int{0}, r, MaxTag); err != nil {
			return err
		}
	}
	die(c)
	return nil
}

// isFailure returns an error unless err is an ErrProcFailed that names the failed ranks.
func isFailure(what string, err error, ranks ...int) error {
	var failed *ProcFailedError
	if !errors.Is(err, ErrProcFailed) || !errors.As(err, &failed) || !slices.Equal(failed.Ranks, ranks) {
		return fmt.Errorf("%s: %v; want the failure of ranks %v", what, err, ranks)
	}
	return nil
}

// knows waits until this rank knows that another rank has failed.
func knows(ctx context.Context, c *Comm, rank int) error {
	if _, err := c.Probe(ctx, rank, MaxTag); !errors.Is(err, ErrProcFailed) {
		return fmt.Errorf("probing rank %d: %w", rank, err)
	}
	return nil
}

// Every call that needs a dead rank fails on every other rank, even if the two never exchanged a
// message.
func TestEveryCallFails(t *testing.T) {
	TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
		const dead = 2
		if err := parted(ctx, c, dead); err != nil || c.Rank() == dead {
			return err
		}
		if err := knows(ctx, c, dead); err != nil {
			return err
		}
		buf := make([]int, c.Size())
		var faults []error
		for name, err := range map[string]error{
			"Send":           Send(ctx, c, buf, dead, 0),
			"Ssend":          Ssend(ctx, c, buf, dead, 0),
			"large Send":     Send(ctx, c, make([]byte, 1<<20), dead, 0),
			"Recv":           second(Recv(ctx, c, buf, dead, 0)),
			"Recv any":       second(Recv(ctx, c, buf, AnySource, 0)),
			"Probe any":      second(c.Probe(ctx, AnySource, 0)),
			"Sendrecv":       second(Sendrecv(ctx, c, buf, 0, 3, buf, AnySource, 1)),
			"Barrier":        Barrier(ctx, c),
			"Bcast":          Bcast(ctx, c, buf, 0),
			"Allreduce":      Allreduce(ctx, c, buf, make([]int, len(buf)), Sum[int]),
			"Gather":         Gather(ctx, c, buf, make([]int, len(buf)*c.Size()), 1),
			"Dup":            second(c.Dup(ctx)),
			"Split":          second(c.Split(ctx, 0, 0)),
			"Idup":           second(c.Idup(ctx).Wait(ctx)),
			"Ibarrier":       second(Ibarrier(c).Wait(ctx)),
			"Iallreduce":     second(Iallreduce(c, buf, make([]int, len(buf)), Sum[int]).Wait(ctx)),
			"BarrierInit":    second(started(BarrierInit(c)).Wait(ctx)),
			"Isend":          second(Isend(c, buf, dead, 1).Wait(ctx)),
			"Mprobe of dead": second(c.Mprobe(ctx, dead, 0)),
		} {
			faults = append(faults, isFailure(name, err, dead))
		}
		_, _, err := c.Iprobe(dead, 0)
		faults = append(faults, isFailure("Iprobe", err, dead))
		g, err := c.GetFailed()
		if err != nil || g.Size() != 1 || c.WorldRank(dead) != g.g.WorldRank(0) {
			faults = append(faults, fmt.Errorf("GetFailed: %v, %v", g, err))
		}
		return errors.Join(faults...)
	})
}

func started(p *Persistent) *Persistent {
	p.Start() // Wait returns its error
	return p
}

// A rank that waits for a rank that waits for a dead one gets an error, too, although it cannot
// detect the death itself.
func TestNobodyHangsInCollectives(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Comm) error{
		"Barrier":   Barrier,
		"Bcast":     func(ctx context.Context, c *Comm) error { return Bcast(ctx, c, make([]byte, 1<<20), 0) },
		"Allreduce": func(ctx context.Context, c *Comm) error { return Allreduce(ctx, c, []int{1}, []int{0}, Sum[int]) },
		"Alltoall":  linked,
		"Split":     func(ctx context.Context, c *Comm) error { return second(c.Split(ctx, c.Rank()%2, 0)) },
	} {
		for dead := range either(2, 5) {
			t.Run(fmt.Sprintf("%s/%d", name, dead), func(t *testing.T) {
				t.Parallel()
				TestWorld(t, 5, func(ctx context.Context, c *Comm) error {
					err := linked(ctx, c)
					if c.Rank() == dead {
						die(c)
						return err
					}
					for err == nil { // the first calls may still succeed
						err = call(ctx, c)
					}
					c.Agree(ctx, 0) // no rank leaves before all know of the failure
					return isFailure(name, err, dead)
				})
			})
		}
	}
}

// A rank that waits for a rank without having a link with it learns of its death from other ranks,
// with which it has no links at first either.
func TestUnlinkedDeath(t *testing.T) {
	var died atomic.Bool
	heard := newGate(3) // no rank leaves before all know of the failure, because its notifications would be lost
	TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 2 {
			if err := Send(ctx, c, []int{0}, 1, 0); err != nil {
				return err
			}
			if _, err := Recv(ctx, c, []int{0}, 1, 0); err != nil {
				return err
			}
			died.Store(true)
			die(c)
			return nil
		}
		if c.Rank() == 1 {
			if _, err := Recv(ctx, c, []int{0}, 2, 0); err != nil {
				return err
			}
			if err := Send(ctx, c, []int{0}, 2, 0); err != nil {
				return err
			}
		}
		source := []int{2, 2, 2, AnySource}[c.Rank()]
		_, err := Recv(ctx, c, []int{0}, source, 0)
		heard.come()
		if err := heard.wait(ctx); err != nil {
			return err
		}
		if !died.Load() {
			return fmt.Errorf("too early: %w", err)
		}
		return isFailure("Recv", err, 2)
	})
}

// A failure blocks a receive from any source until it is acknowledged; then the receive gets its
// message.
func TestPendingReceive(t *testing.T) {
	TestWorld(t, 3, func(ctx context.Context, c *Comm) error {
		if err := parted(ctx, c, 1); err != nil {
			return err
		}
		switch c.Rank() {
		case 1:
			return nil
		case 2:
			_, err := Recv(ctx, c, []int{0}, 0, 1) // until rank 0 permits it to send
			if err != nil {
				return err
			}
			return Send(ctx, c, []int{7}, 0, 2)
		}
		buf := []int{0}
		r := Irecv(c, buf, AnySource, 2)
		_, err := r.Wait(ctx)
		if fault := isFailure("Wait", err, 1); fault != nil || !errors.Is(err, ErrProcFailedPending) {
			return fmt.Errorf("%w (%w)", fault, err)
		}
		if _, done, err := r.Test(); done || !errors.Is(err, ErrProcFailedPending) {
			return fmt.Errorf("Test: %v, %w", done, err)
		}
		if i, _, err := Waitany(ctx, nil, r); i != 1 || !errors.Is(err, ErrProcFailedPending) {
			return fmt.Errorf("Waitany: %v, %w", i, err)
		}
		if n, err := c.AckFailed(0); n != 0 || err != nil {
			return fmt.Errorf("AckFailed(0): %d, %w", n, err)
		}
		if _, done, err := r.Test(); done || err == nil {
			return fmt.Errorf("Test: %v, %w", done, err)
		}
		if n, err := c.AckFailed(9); n != 1 || err != nil {
			return fmt.Errorf("AckFailed: %d, %w", n, err)
		}
		if _, done, err := r.Test(); done || err != nil {
			return fmt.Errorf("Test: %v, %w", done, err)
		}
		if _, ok, err := c.Iprobe(AnySource, 9); ok || err != nil {
			return fmt.Errorf("Iprobe: %v, %w", ok, err)
		}
		if err := Send(ctx, c, []int{0}, 2, 1); err != nil {
			return err
		}
		if st, err := r.Wait(ctx); err != nil || buf[0] != 7 || st.Source != 2 {
			return fmt.Errorf("%v %v %w", buf, st, err)
		}
		return nil
	})
}

// Revoke ends pending calls on all ranks, and does not affect other communicators.
func TestRevoke(t *testing.T) {
	TestWorld(t, 5, func(ctx context.Context, c *Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		prepared := BarrierInit(d)
		waits := map[int]func() error{
			1: func() error { return second(Recv(ctx, d, []int{0}, 2, 0)) },
			2: func() error { return Send(ctx, d, make([]byte, 1<<20), 3, 0) },
			3: func() error { return second(d.Probe(ctx, AnySource, 9)) },
			4: func() error { return second(Ibarrier(d).Wait(ctx)) },
		}
		if c.Rank() == 0 {
			for r := 1; r < 5; r++ {
				if _, err := Recv(ctx, c, []int{0}, r, 0); err != nil {
					return err
				}
			}
			if err := d.Revoke(); err != nil {
				return err
			}
		} else {
			if err := Send(ctx, c, []int{0}, 0, 0); err != nil {
				return err
			}
			if err := waits[c.Rank()](); !errors.Is(err, ErrRevoked) {
				return fmt.Errorf("what waited: %w", err)
			}
		}
		if !d.IsRevoked() || c.IsRevoked() {
			return fmt.Errorf("revoked: %v, and the parent: %v", d.IsRevoked(), c.IsRevoked())
		}
		buf := []int{0}
		for name, err := range map[string]error{
			"Send": Send(ctx, d, buf, 1, 0), "Recv": second(Recv(ctx, d, buf, 1, 0)), "Barrier": Barrier(ctx, d),
			"Ibarrier": second(Ibarrier(d).Wait(ctx)), "persistent Barrier": second(started(prepared).Wait(ctx)), "BarrierInit": second(started(BarrierInit(d)).Wait(ctx)),
			"Dup": second(d.Dup(ctx)), "Probe": second(d.Probe(ctx, 1, 0)), "Recv any": second(Recv(ctx, d, buf, AnySource, 0)),
			"CreateGroup": second(d.CreateGroup(ctx, d.Group(), 0)), "send to self": Send(ctx, d, buf, d.Rank(), 0),
		} {
			if !errors.Is(err, ErrRevoked) {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if v, err := d.Agree(ctx, ^uint64(0)&^(1<<c.Rank())); err != nil || v != ^uint64(0)&^31 {
			return fmt.Errorf("Agree: %x, %w", v, err)
		}
		s, err := d.Shrink(ctx)
		if err != nil || Compare(s, c) != Congruent {
			return fmt.Errorf("Shrink: %w", err)
		}
		if err := Barrier(ctx, s); err != nil {
			return err
		}
		return Barrier(ctx, c)
	})
}

// The remaining ranks shrink the communicator and continue, until another fails, and so on.
func TestShrink(t *testing.T) {
	const size = 6
	TestWorld(t, size, func(ctx context.Context, c *Comm) error {
		if err := parted(ctx, c, 0); err != nil || c.Rank() == 0 {
			return err
		}
		for dead := range size - 1 { // including rank 0, which leads the agreements
			if c.Rank() == 0 && dead > 0 {
				die(c)
				return nil
			}
			err := error(nil)
			for err == nil { // until the failure is known
				err = Allreduce(ctx, c, []int{1}, []int{0}, Sum[int])
			}
			if !errors.Is(err, ErrProcFailed) && !errors.Is(err, ErrRevoked) {
				return err
			}
			if err := c.Revoke(); err != nil {
				return err
			}
			if _, err := c.AckFailed(size); err != nil {
				return err
			}
			s, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			if s.Size() != c.Size()-1 || s.WorldRank(0) != dead+1 || s.Rank() != c.Rank()-1 {
				return fmt.Errorf("after %d deaths: rank %d of %d", dead+1, s.Rank(), s.Size())
			}
			sum := []int{0} // other ranks may already be in the next round, in which another rank dies
			err = Allreduce(ctx, s, []int{1}, sum, Sum[int])
			if err != nil && !errors.Is(err, ErrProcFailed) && !errors.Is(err, ErrRevoked) || err == nil && sum[0] != s.Size() {
				return fmt.Errorf("%d of %d: %w", sum[0], s.Size(), err)
			}
			c = s
		}
		return nil
	})
}

// Agree returns the same on all ranks, with an error if some rank has not acknowledged a failure.
func TestAgree(t *testing.T) {
	TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
		if v, err := c.Agree(ctx, 7&^(1<<c.Rank())|1<<10); err != nil || v != 1<<10 {
			return fmt.Errorf("with all: %x, %w", v, err)
		}
		if err := parted(ctx, c, 3); err != nil || c.Rank() == 3 {
			return err
		}
		if err := knows(ctx, c, 3); err != nil {
			return err
		}
		if c.Rank() > 0 {
			c.AckFailed(1)
		}
		v, err := c.Agree(ctx, 1<<c.Rank()|8)
		if fault := isFailure("Agree", err, 3); fault != nil || v != 8 {
			return fmt.Errorf("%x, %w", v, fault)
		}
		c.AckFailed(1)
		p := c.Iagree(ctx, 5)
		if v, err := p.Wait(ctx); err != nil || v != 5 {
			return fmt.Errorf("after all have acknowledged: %x, %w", v, err)
		}
		return nil
	})
}

// Both sides of an intercommunicator agree and shrink together.
func TestShrinkIntercomm(t *testing.T) {
	TestWorld(t, 5, func(ctx context.Context, c *Comm) error {
		local, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		inter, err := IntercommCreate(ctx, local, 0, c, 1-c.Rank()%2, 5)
		if err != nil {
			return err
		}
		if err := parted(ctx, c, 2); err != nil || c.Rank() == 2 {
			return err
		}
		if err := knows(ctx, c, 2); err != nil {
			return err
		}
		if err := inter.Revoke(); err != nil {
			return err
		}
		s, err := inter.Shrink(ctx)
		if err != nil {
			return err
		}
		if s.Size()+s.RemoteSize() != 4 || s.Size() != 2 {
			return fmt.Errorf("%d and %d are left", s.Size(), s.RemoteSize())
		}
		m, err := s.Merge(ctx, false)
		if err != nil {
			return err
		}
		return Barrier(ctx, m)
	})
}

// The helper's reports of dead nodes count like ended links, also for ranks without a link.
func TestHelperTellsOfTheDead(t *testing.T) {
	told := newGate(3)
	TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 3 {
			return told.wait(ctx) // it must not leave before
		}
		defer told.come()
		c.world.dead([]uint32{3, uint32(c.Rank()), 99}, "node siteb/b1 is silent")
		_, err := Recv(ctx, c, []int{0}, 3, 0)
		var failed *ProcFailedError
		if !errors.As(err, &failed) || !slices.Equal(failed.Ranks, []int{3}) {
			return fmt.Errorf("got %v", err)
		}
		return expect(err, ErrProcFailed, "node siteb/b1 is silent")
	})
}

// All processes exclude a process that is considered failed although it is alive. It learns of
// that, and does not report the others as failed.
func TestOutcast(t *testing.T) {
	TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
		if err := linked(ctx, c); err != nil {
			return err
		}
		if c.Rank() != 0 {
			if err := Send(ctx, c, []int{0}, 0, 0); err != nil {
				return err
			}
		}
		for r := 1; c.Rank() == 0 && r < 4; r++ {
			if _, err := Recv(ctx, c, []int{0}, r, 0); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			c.world.engine.MarkFailed(3, errors.New("a test says so"))
		}
		if c.Rank() == 3 {
			for r := range 3 {
				if err := knows(ctx, c, r); err != nil {
					return err
				}
			}
			if s, err := c.Shrink(ctx); !errors.Is(err, agree.ErrExpelled) || !errors.Is(err, ErrProcFailed) {
				return fmt.Errorf("an outcast shrinks to %v, %w", s, err)
			}
			return nil
		}
		if err := knows(ctx, c, 3); err != nil {
			return err
		}
		s, err := c.Shrink(ctx)
		if err != nil || s.Size() != 3 {
			return fmt.Errorf("%v, %w", s, err)
		}
		return Barrier(ctx, s)
	})
}

// An agreement proceeds without processes with which no member has a link, or will have, even if
// one of them should lead it.
func TestAgreeWithoutTheAbsent(t *testing.T) {
	for _, absent := range [][]int{{0, 1}, {1}, {1, 3}} {
		inBubble(t, fmt.Sprint(absent), func(t *testing.T) {
			memoryWorld(t, 4, func(ctx context.Context, c *Comm) error {
				if slices.Contains(absent, c.Rank()) {
					return nil // this rank leaves at once
				}
				flags, err := c.Agree(ctx, 1)
				if flags != 1 || !errors.Is(err, ErrProcFailed) {
					return fmt.Errorf("%d, %w", flags, err)
				}
				s, err := c.Shrink(ctx)
				if err != nil || s.Size() != 4-len(absent) {
					return fmt.Errorf("%v, %w", s, err)
				}
				return Barrier(ctx, s)
			}, nil, WithConnectTimeout(3*time.Second))
		})
	}
}

// A process that violates the protocol of agreements is disconnected.
func TestForeignNote(t *testing.T) {
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if err := Barrier(ctx, c); err != nil {
			return err
		}
		if c.Rank() == 1 {
			if err := c.world.engine.SendNote(0, c.core.Context, agree.Message{Kind: agree.Answer, Seq: 9}.Append(nil)); err != nil {
				return err
			}
			return knows(ctx, c, 0)
		}
		_, err := c.Agree(ctx, 1)
		return isFailure("Agree", err, 1)
	})
}

func second[T any](_ T, err error) error { return err }
