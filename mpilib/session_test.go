package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// MPI-4.1, section 11.3: from a process set to a group to a communicator,
// without the world's communicator.
func TestSession(t *testing.T) {
	where := func(rank int) (string, string) {
		return []string{"a", "a", "b"}[rank%3], []string{"n1", "n2", "n1"}[rank%3]
	}
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			s := c.World().NewSession()
			for _, pset := range s.Psets() {
				g, err := s.Group(ctx, pset)
				if err != nil {
					return err
				}
				var want []int
				for r := range n {
					if pset == PsetWorld || r == c.Rank() || pset == PsetSite && r%3/2 == c.Rank()%3/2 || pset == PsetNode && r%3 == c.Rank()%3 {
						want = append(want, r)
					}
				}
				if !slices.Equal(members(g), want) || g.Rank() != slices.Index(want, c.Rank()) {
					return fmt.Errorf("%s is %v, want %v", pset, g, want)
				}
				made, err := s.CommFromGroup(ctx, g, "org.example."+pset, nil)
				if err != nil {
					return err
				}
				if err := ringWorks(ctx, made, 2); err != nil {
					return err
				}
				child, err := made.Dup(ctx)
				if err != nil {
					return err
				}
				if err := made.Free(); err != nil {
					return err
				}
				if err := expect(s.Finalize(ctx), ErrArg, "1 communicators made from it are in use; Free them"); err != nil {
					return err
				}
				if err := child.Free(); err != nil {
					return err
				}
			}
			if err := s.Finalize(ctx); err != nil {
				return err
			}
			_, err := s.Group(ctx, PsetWorld)
			_, commErr := s.CommFromGroup(ctx, c.Group(), "x", nil)
			_, unknown := c.World().NewSession().Group(ctx, "mpi://MARS")
			return errors.Join(expect(err, ErrFinalized), expect(commErr, ErrFinalized), expect(unknown, ErrArg, "process set mpi://MARS"))
		}, WithPlaces(where))
	})
}

// Communicators with different tags are created concurrently over the same processes; members that
// disagree get an error.
func TestCommFromGroup(t *testing.T) {
	anyWay(t, 3, func(ctx context.Context, c *Comm) error {
		s := c.World().NewSession()
		g, err := s.Group(ctx, PsetWorld)
		if err != nil {
			return err
		}
		errs := make(chan error)
		for i := range 4 {
			go func() {
				tag := (i + c.Rank()) % 4
				made, err := s.CommFromGroup(ctx, g, fmt.Sprint(tag), nil)
				if err == nil {
					err = ringWorks(ctx, made, tag)
				}
				errs <- err
			}()
		}
		var all []error
		for range 4 {
			all = append(all, <-errs)
		}
		other, err := g.Incl([]int{c.Rank(), (c.Rank() + 1) % 3, (c.Rank() + 2) % 3})
		all = append(all, err)
		_, err = s.CommFromGroup(ctx, other, "differ", nil)
		all = append(all, expect(err, ErrMismatch, `CommFromGroup, tag "differ"`))
		outside, err := g.Excl([]int{c.Rank()})
		all = append(all, err)
		made, err := s.CommFromGroup(ctx, outside, "outside", nil)
		if made != nil || err != nil {
			all = append(all, fmt.Errorf("of others: %v, %v", made, err))
		}
		return errors.Join(all...)
	})
}

// MPI-4.1, section 11.3.1: a program can use only a session.
func TestNewSession(t *testing.T) {
	s, err := NewSession(t.Context(), func(c *config) { c.lookup = func(string) (string, bool) { return "", false } })
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Group(t.Context(), PsetSite)
	if err != nil || g.Size() != 1 {
		t.Fatalf("%v, %v", g, err)
	}
	c, err := s.CommFromGroup(t.Context(), g, "all", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ringWorks(t.Context(), c, 1); err != nil {
		t.Error(err)
	}
	if err := c.Free(); err != nil {
		t.Error(err)
	}
	if err := s.Finalize(t.Context()); err != nil {
		t.Error(err)
	}
	if err := expect(s.world.Comm().checkAlive(t.Context()), ErrFinalized); err != nil {
		t.Error(err)
	}
}

// checkAlive returns the result of a message to self.
func (c *Comm) checkAlive(ctx context.Context) error {
	_, err := Sendrecv(ctx, c, []int{1}, c.Rank(), 0, []int{0}, c.Rank(), 0)
	return err
}
