package mpilib

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// either returns all with the tag "system", and otherwise some of them.
func either[T any](some, all T) T {
	if testload.Full() {
		return all
	}
	return some
}

// sizes are the numbers of ranks of the worlds that rules are tested in.
func sizes(t *testing.T, f func(t *testing.T, n int)) {
	t.Helper()
	for _, n := range either([]int{1, 2, 5}, []int{1, 2, 3, 4, 6, 9}) {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { f(t, n) })
	}
}

// expect returns an error unless err is target and contains all of parts.
func expect(err, target error, parts ...string) error {
	if !errors.Is(err, target) {
		return fmt.Errorf("got error %v, want %v", err, target)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			return fmt.Errorf("error %q does not say %q", err, part)
		}
	}
	return nil
}

// ringWorks sends a token once around c; no message of another communicator may interfere.
func ringWorks(ctx context.Context, c *Comm, token int) error {
	n := c.Size()
	got := []int{-1}
	st, err := Sendrecv(ctx, c, []int{token*1000 + c.Rank()}, (c.Rank()+1)%n, 0, got, (c.Rank()+n-1)%n, 0)
	if err != nil {
		return err
	}
	if want := (c.Rank() + n - 1) % n; got[0] != token*1000+want || st.Source != want {
		return fmt.Errorf("%s: rank %d got %d from %d, want %d from %d", c.Name(), c.Rank(), got[0], st.Source, token*1000+want, want)
	}
	sum := []int{0}
	if err := Allreduce(ctx, c, []int{c.Rank() + token}, sum, Sum); err != nil {
		return err
	}
	if want := n*(n-1)/2 + n*token; sum[0] != want {
		return fmt.Errorf("%s: the sum is %d, want %d", c.Name(), sum[0], want)
	}
	return nil
}

// MPI-4.1, section 3.10: a transfer with MPI_PROC_NULL succeeds and returns as soon as possible;
// the status has source MPI_PROC_NULL, tag MPI_ANY_TAG and count 0, and buffers are unchanged.
func TestProcNull(t *testing.T) {
	anyWay(t, 1, func(ctx context.Context, c *Comm) error {
		if err := Send(ctx, c, []int{1}, ProcNull, 3); err != nil {
			return err
		}
		buf := []int{7}
		want := Status{Source: ProcNull, Tag: AnyTag}
		if st, err := Recv(ctx, c, buf, ProcNull, 3); err != nil || st != want || buf[0] != 7 {
			return fmt.Errorf("Recv: %+v, %v, buffer %v", st, err, buf)
		}
		if st, done, err := Irecv(c, buf, ProcNull, AnyTag).Test(); err != nil || !done || st != want {
			return fmt.Errorf("Irecv: %+v, %v, %v", st, done, err)
		}
		if st, err := c.Probe(ctx, ProcNull, 3); err != nil || st != want {
			return fmt.Errorf("Probe: %+v, %v", st, err)
		}
		if st, ok, err := c.Iprobe(ProcNull, 3); err != nil || !ok || st != want {
			return fmt.Errorf("Iprobe: %+v, %v, %v", st, ok, err)
		}
		if st, err := Sendrecv(ctx, c, buf, ProcNull, 0, buf, ProcNull, 0); err != nil || st != want {
			return fmt.Errorf("Sendrecv: %+v, %v", st, err)
		}
		if err := expect(Send(ctx, c, buf, ProcNull, -1), ErrTag); err != nil {
			return err
		}
		return expect(Send(ctx, c, buf, Undefined, 0), ErrRank, "send to rank -32766 of world")
	})
}

// Contexts are unique even if several goroutines create communicators from different parents
// concurrently, in any order.
func TestConcurrentDups(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			const parents, rounds = 4, 3
			made := make([][]*Comm, parents)
			for i := range made {
				parent, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				made[i] = []*Comm{parent}
			}
			errs := make([]error, parents)
			var makers sync.WaitGroup
			for i := range made {
				// Each rank starts with a different parent.
				i := (i + c.Rank()) % parents
				makers.Go(func() {
					for range rounds {
						d, err := made[i][0].Dup(ctx)
						if err != nil {
							errs[i] = err
							return
						}
						made[i] = append(made[i], d)
						if err := ringWorks(ctx, d, 10*i+len(made[i])); err != nil {
							errs[i] = err
							return
						}
					}
				})
			}
			makers.Wait()
			seen := map[uint32]string{}
			for _, list := range made {
				for _, d := range list {
					if other, twice := seen[d.core.Context]; twice {
						return fmt.Errorf("%s and %s have context %d", other, d.Name(), d.core.Context)
					}
					seen[d.core.Context] = d.Name()
				}
			}
			return errors.Join(errs...)
		})
	})
}

// MPI-4.1, section 7.4.2: colours determine the groups, and keys the order of the ranks.
func TestSplit(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			colour := c.Rank() % 3
			if colour == 2 {
				colour = Undefined
			}
			s, err := c.Split(ctx, colour, -c.Rank())
			if err != nil {
				return err
			}
			if colour == Undefined {
				if s != nil {
					return fmt.Errorf("rank %d is in %s", c.Rank(), s.Name())
				}
				return nil
			}
			for r := range s.Size() {
				if w := s.WorldRank(r); w%3 != colour || r > 0 && w > s.WorldRank(r-1) {
					return fmt.Errorf("rank %d of %s is %d", r, s.Name(), w)
				}
			}
			if s.WorldRank(s.Rank()) != c.Rank() || s.WorldRank(s.Size()) != Undefined {
				return fmt.Errorf("rank %d is %d in %s", c.Rank(), s.Rank(), s.Name())
			}
			return ringWorks(ctx, s, colour)
		})
	})
}

// If the calls of ranks differ, all ranks get an error that says so, and can continue.
func TestDisagreement(t *testing.T) {
	anyWay(t, 4, func(ctx context.Context, c *Comm) error {
		var err error
		if c.Rank() == 2 {
			_, err = c.Split(ctx, 0, 0)
		} else {
			_, err = c.Dup(ctx)
		}
		says := []string{"mpilib: Dup on world, rank", "rank 2 calls Split and this rank Dup"}
		if c.Rank() == 2 {
			says = []string{"mpilib: Split on world, rank 2", "rank 0 calls Dup and this rank Split"}
		}
		if err := expect(err, ErrMismatch, says...); err != nil {
			return err
		}
		colour := 0
		if c.Rank() == 3 {
			colour = -5
		}
		_, err = c.Split(ctx, colour, 0)
		if c.Rank() == 3 {
			err = expect(err, ErrArg, "rank 3", "colour -5 is negative and not Undefined")
		} else {
			err = expect(err, ErrMismatch, "rank 3 gave bad arguments; see its error")
		}
		if err != nil {
			return err
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		return ringWorks(ctx, d, 5)
	})
}

// MPI-4.1, section 9.3: the handler sees every error of the communicator's
// calls, and children inherit it.
func TestErrorHandler(t *testing.T) {
	anyWay(t, 2, func(ctx context.Context, c *Comm) error {
		mark := errors.New("seen")
		var seen []string
		c.SetErrorHandler(func(c *Comm, err error) error {
			seen = append(seen, c.Name())
			return fmt.Errorf("%w: %w", mark, err)
		})
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		d.SetName("child")
		for _, err := range []error{
			Send(ctx, c, []int{1}, 2, 0),
			Send(ctx, d, []int{1}, 0, -1),
			Bcast(ctx, d, []string{"x"}, 0),
			func() error { _, err := d.Probe(ctx, 7, 0); return err }(),
		} {
			if !errors.Is(err, mark) {
				return fmt.Errorf("not seen: %v", err)
			}
		}
		if got := fmt.Sprint(seen); got != "[world child child child]" {
			return fmt.Errorf("seen on %s", got)
		}
		d.SetErrorHandler(ErrorsReturn)
		c.SetErrorHandler(nil)
		return errors.Join(expect(Send(ctx, c, []int{1}, 2, 0), ErrRank), expect(Send(ctx, d, []int{1}, 2, 0), ErrRank, "of child"))
	})
}
