package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
)

// MPI-4.1, section 7.4.2: a duplicate has the same group and another context,
// so that messages of one cannot match receives of the other.
func TestDupSeparates(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			next, before := (c.Rank()+1)%n, (c.Rank()+n-1)%n
			in := []int{0}
			onDup := Irecv(d, in, AnySource, AnyTag)
			out := Isend(c, []int{1}, next, 5)
			got := []int{0}
			if st, err := Recv(ctx, c, got, AnySource, AnyTag); err != nil || got[0] != 1 || st.Source != before {
				return fmt.Errorf("on the parent: %+v, %v", st, err)
			}
			if _, done, _ := onDup.Test(); done {
				return errors.New("the duplicate got the parent's message")
			}
			if err := Barrier(ctx, c); err != nil { // all ranks have checked
				return err
			}
			if err := Send(ctx, d, []int{2}, next, 6); err != nil {
				return err
			}
			if _, err := Waitall(ctx, onDup, out); err != nil || in[0] != 2 {
				return fmt.Errorf("on the duplicate: %d, %v", in[0], err)
			}
			return nil
		})
	})
}

// MPI-4.1, section 7.4.2: several idups and other collectives of one communicator may be pending at
// once.
func TestIdup(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			var pending []*Pending[*Comm]
			for range 4 {
				pending = append(pending, c.Idup(ctx))
			}
			if err := ringWorks(ctx, c, 50); err != nil {
				return err
			}
			contexts := map[uint32]bool{}
			for i := range pending {
				d, err := pending[len(pending)-1-i].Wait(ctx)
				if err != nil {
					return err
				}
				if again, done, err := pending[len(pending)-1-i].Test(); again != d || !done || err != nil {
					return fmt.Errorf("Test after Wait: %v %v %v", again, done, err)
				}
				contexts[d.core.Context] = true
				if err := ringWorks(ctx, d, i); err != nil {
					return err
				}
			}
			if len(contexts) != len(pending) {
				return fmt.Errorf("contexts %v", contexts)
			}
			return nil
		})
	})
}

// A Request of an Idup completes with it, after its result was taken, and has its error.
func TestIdupRequest(t *testing.T) {
	anyWay(t, 3, func(ctx context.Context, c *Comm) error {
		var made [2]*Comm
		var errs [2]error
		start := func(i int, from *Comm) *Request {
			return from.Idup(ctx).Request(func(d *Comm, err error) { made[i], errs[i] = d, err })
		}
		in := []int{0}
		requests := []*Request{start(0, c), start(1, c), Irecv(c, in, c.Rank(), 3)}
		if err := Send(ctx, c, []int{8}, c.Rank(), 3); err != nil {
			return err
		}
		if _, err := Waitall(ctx, requests...); err != nil || in[0] != 8 {
			return fmt.Errorf("%d, %v", in[0], err)
		}
		if err := errors.Join(errs[0], errs[1], ringWorks(ctx, made[1], 1), ringWorks(ctx, made[0], 2), made[0].Free()); err != nil {
			return err
		}
		_, err := start(0, made[0]).Wait(ctx)
		return errors.Join(expect(err, ErrFreed, "Idup"), expect(errs[0], ErrFreed))
	})
}

// A rank allocates the contexts of its Idups in the order of the calls, whichever completes first: replicas of a rank must
// allocate the same.
func TestIdupOrder(t *testing.T) {
	const calls = 64
	ordered := func(ctx context.Context, c *Comm) error {
		var pending []*Pending[*Comm]
		for range calls {
			pending = append(pending, c.Idup(ctx))
		}
		last := map[uint32]uint32{} // of each process, which all allocate their own
		for i, p := range pending {
			d, err := p.Wait(ctx)
			if err != nil {
				return err
			}
			all := []uint32{d.core.Context}
			if d.inner != nil {
				all = append(all, d.inner.core.Context)
			}
			for _, id := range all {
				from := id / comm.ContextsPerComm % uint32(c.world.comm.Size())
				if id <= last[from] {
					return fmt.Errorf("call %d: context %d after %d", i, id, last[from])
				}
			}
			for _, id := range all {
				from := id / comm.ContextsPerComm % uint32(c.world.comm.Size())
				last[from] = max(last[from], id)
			}
		}
		return nil
	}
	anyWay(t, 2, func(ctx context.Context, c *Comm) error {
		if err := ordered(ctx, c); err != nil {
			return err
		}
		_, inter, err := halves(ctx, c)
		if err != nil {
			return err
		}
		return ordered(ctx, inter)
	})
}

// An Idup that the other ranks never call ends with its context, and its Wait can return before.
func TestIdupGivenUp(t *testing.T) {
	anyWay(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 1 {
			_, err := Recv(ctx, c, []int{0}, 0, 0)
			return err
		}
		bounded, cancel := context.WithCancel(ctx)
		defer cancel()
		p := c.Idup(bounded)
		gone, leave := context.WithCancel(ctx)
		leave()
		if _, err := p.Wait(gone); expect(err, context.Canceled, "Idup on world, rank 0: not complete") != nil {
			return fmt.Errorf("Wait: %v", err)
		}
		if _, done, err := p.Test(); done {
			return fmt.Errorf("done: %v", err)
		}
		cancel()
		if _, err := p.Wait(ctx); expect(err, context.Canceled) != nil {
			return fmt.Errorf("after the end: %v", err)
		}
		return Send(ctx, c, []int{1}, 1, 0)
	})
}

// MPI-4.1, section 7.4.2: MPI_Comm_create, also with disjoint groups at once.
func TestCreate(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			var even, odd []int
			for r := n - 1; r >= 0; r-- {
				if r%2 == 0 {
					even = append(even, r)
				} else {
					odd = append(odd, r)
				}
			}
			ranks := even
			if c.Rank()%2 == 1 {
				ranks = odd
			}
			g, err := c.Group().Incl(ranks)
			if err != nil {
				return err
			}
			made, err := c.Create(ctx, g)
			if err != nil {
				return err
			}
			if got := members(made.Group()); !slices.Equal(got, ranks) {
				return fmt.Errorf("%s has %v, want %v", made.Name(), got, ranks)
			}
			if err := ringWorks(ctx, made, 1+c.Rank()%2); err != nil {
				return err
			}
			// All ranks give the same group: ranks outside it get nil, and all ranks for the empty
			// group.
			first, err := c.Group().Incl([]int{0})
			if err != nil {
				return err
			}
			alone, err := c.Create(ctx, first)
			if err != nil || (alone != nil) != (c.Rank() == 0) {
				return fmt.Errorf("rank %d: %v, %v", c.Rank(), alone, err)
			}
			none, err := c.Create(ctx, EmptyGroup)
			if none != nil || err != nil {
				return fmt.Errorf("of nobody: %v, %v", none, err)
			}
			return nil
		})
	})
}

// Members that give different groups get an error, and others continue.
func TestCreateMismatch(t *testing.T) {
	anyWay(t, 4, func(ctx context.Context, c *Comm) error {
		ranks := [][]int{{0, 1}, {1, 0}, {2, 3}, {2, 3}}[c.Rank()]
		g, err := c.Group().Incl(ranks)
		if err != nil {
			return err
		}
		made, err := c.Create(ctx, g)
		if c.Rank() < 2 {
			return expect(err, ErrMismatch, "Create on world", fmt.Sprintf("rank %d is in the group", 1-c.Rank()))
		}
		if err != nil {
			return err
		}
		if _, err := c.world.comms.self.Create(ctx, g); expect(err, ErrRank, "is not in self") != nil {
			return fmt.Errorf("not a subgroup: %v", err)
		}
		if _, err := c.world.comms.self.Create(ctx, nil); expect(err, ErrArg, "the group is nil") != nil {
			return fmt.Errorf("nil: %v", err)
		}
		return ringWorks(ctx, made, 4)
	})
}

// MPI-4.1, section 7.4.2: only members call MPI_Comm_create_group; tags separate concurrent calls,
// and it matches no other message.
func TestCreateGroup(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			// A receive that would match any message of the program stays unmatched.
			bait := Irecv(c, make([]int, 100), AnySource, AnyTag)
			type result struct {
				made *Comm
				err  error
			}
			results := make(chan result, 3)
			started := 0
			for tag, ranks := range [][]int{{n - 1, 0}, {0}, nil} {
				if tag == 2 { // all ranks except 0
					for r := 1; r < n; r++ {
						ranks = append(ranks, r)
					}
				}
				if slices.Sort(ranks); n == 1 && tag == 0 {
					ranks = []int{0}
				}
				if !slices.Contains(ranks, c.Rank()) {
					continue
				}
				g, err := c.Group().Incl(ranks)
				if err != nil {
					return err
				}
				started++
				go func() {
					made, err := c.CreateGroup(ctx, g, tag)
					if err == nil {
						err = ringWorks(ctx, made, tag)
					}
					results <- result{made, err}
				}()
			}
			contexts := map[uint32]bool{}
			for range started {
				r := <-results
				if r.err != nil {
					return r.err
				}
				contexts[r.made.core.Context] = true
			}
			if len(contexts) != started {
				return fmt.Errorf("%d communicators have contexts %v", started, contexts)
			}
			if _, done, err := bait.Test(); done {
				return fmt.Errorf("a receive of the program was matched: %v", err)
			}
			if _, err := Sendrecv(ctx, c, []int{1}, c.Rank(), 0, []int{0}, ProcNull, 0); err != nil {
				return err
			}
			_, err := bait.Wait(ctx)
			return err
		})
	})
}

func TestCreateGroupMisuse(t *testing.T) {
	anyWay(t, 3, func(ctx context.Context, c *Comm) error {
		g, err := c.Group().Incl([]int{0, 1})
		if err != nil {
			return err
		}
		if c.Rank() == 2 {
			made, err := c.CreateGroup(ctx, g, 0)
			if made != nil || err != nil {
				return fmt.Errorf("of others: %v, %v", made, err)
			}
			return nil
		}
		if _, err := c.CreateGroup(ctx, g, -1); expect(err, ErrTag) != nil {
			return err
		}
		other, err := c.Group().Incl([]int{c.Rank(), 1 - c.Rank()})
		if err != nil {
			return err
		}
		_, err = c.CreateGroup(ctx, other, 7)
		return expect(err, ErrMismatch, "CreateGroup on world", "the group of rank ")
	})
}

// MPI-4.1, section 7.4.3: calls on a freed communicator are refused; pending operations complete.
func TestFree(t *testing.T) {
	anyWay(t, 2, func(ctx context.Context, c *Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		got := []int{0}
		in := Irecv(d, got, 1-c.Rank(), 0)
		if c.Rank() == 0 {
			if err := Send(ctx, d, []int{3}, 1, 0); err != nil {
				return err
			}
			if err := d.Free(); err != nil {
				return err
			}
			if err := Barrier(ctx, c); err != nil {
				return err
			}
		} else {
			if err := Barrier(ctx, c); err != nil {
				return err
			}
			if err := Send(ctx, d, []int{3}, 0, 0); err != nil {
				return err
			}
			if err := d.Free(); err != nil {
				return err
			}
		}
		if st, err := in.Wait(ctx); err != nil || got[0] != 3 || st.Source != 1-c.Rank() {
			return fmt.Errorf("under way at Free: %+v, %v", st, err)
		}
		_, dupErr := d.Dup(ctx)
		_, idupErr := d.Idup(ctx).Wait(ctx)
		_, groupErr := d.CreateGroup(ctx, d.Group(), 0)
		_, probeErr := d.Probe(ctx, 0, 0)
		_, recvErr := Recv(ctx, d, got, 0, 0)
		return errors.Join(
			expect(d.Free(), ErrFreed, "Free on "+d.Name()), expect(dupErr, ErrFreed, "Dup on "+d.Name()), expect(idupErr, ErrFreed), expect(groupErr, ErrFreed),
			expect(probeErr, ErrFreed), expect(recvErr, ErrFreed, "receive from rank 0 of "+d.Name()),
			expect(Send(ctx, d, got, 0, 0), ErrFreed), expect(Barrier(ctx, d), ErrFreed), expect(d.SetInfo(nil), ErrFreed),
			expect(c.Free(), ErrArg, "lasts as long as the world"), expect(c.World().Self().Free(), ErrArg),
		)
	})
}

// MPI-4.1, section 7.4.3: an Idup that is pending when its communicator is freed completes.
func TestFreeDuringIdup(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			for i := range either(3, 10) {
				d, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				pending := d.Idup(ctx)
				if err := d.Free(); err != nil {
					return err
				}
				made, err := pending.Wait(ctx)
				if err != nil {
					return err
				}
				if err := errors.Join(ringWorks(ctx, made, i), made.Free()); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// MPI-4.1, section 7.4.2: MPI_Comm_split_type.
func TestSplitType(t *testing.T) {
	// Two sites, the first of two nodes.
	where := func(rank int) (string, string) {
		return []string{"a", "a", "b"}[rank%3], []string{"n1", "n2", "n1"}[rank%3]
	}
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			for _, split := range []SplitType{SplitShared, SplitNode, SplitSite} {
				s, err := c.SplitType(ctx, split, -c.Rank(), nil)
				if err != nil {
					return err
				}
				var want []int
				for r := n - 1; r >= 0; r-- {
					if r%3 == c.Rank()%3 || split == SplitSite && r%3 < 2 && c.Rank()%3 < 2 {
						want = append(want, r)
					}
				}
				if got := members(s.Group()); !slices.Equal(got, want) {
					return fmt.Errorf("%s has %v, want %v", s.Name(), got, want)
				}
				if err := ringWorks(ctx, s, int(split)); err != nil {
					return err
				}
			}
			split := SplitSite
			if c.Rank() == 0 {
				split = SplitType(Undefined)
			}
			s, err := c.SplitType(ctx, split, 0, nil)
			if err != nil || (s == nil) != (c.Rank() == 0) {
				return fmt.Errorf("%v, %v", s, err)
			}
			places, err := c.Places(ctx)
			if err != nil || len(places) != n || places[c.Rank()] != c.World().Place() || places[0].String() != "a/n1" {
				return fmt.Errorf("places %v, %v", places, err)
			}
			return nil
		}, WithPlaces(where))
	})
}

func TestSplitTypeMisuse(t *testing.T) {
	TestWorld(t, 3, func(ctx context.Context, c *Comm) error {
		one, err := c.SplitType(ctx, SplitNode, 0, nil) // without a helper all ranks count as on one node
		if err != nil || one.Size() != 3 {
			return fmt.Errorf("%v, %v", one, err)
		}
		_, err = c.SplitType(ctx, []SplitType{SplitSite, SplitSite, SplitNode}[c.Rank()], 0, nil)
		if err := expect(err, ErrMismatch, "SplitType on world", "on rank 2"); err != nil {
			return err
		}
		_, err = c.SplitType(ctx, 17, 0, nil)
		return expect(err, ErrArg, "no split type 17")
	})
	if _, err := Init(t.Context(), WithPlace("Not A Name", "x")); err == nil {
		t.Error("a place that is no name was taken")
	}
}

// A CreateGroup matches no message of the communicator's collectives, not even of a pending one
// whose number is its tag.
func TestCreateGroupBesideCollectives(t *testing.T) {
	anyWay(t, 2, func(ctx context.Context, c *Comm) error {
		call, err := c.core.Next(ctx)
		if err != nil {
			return err
		}
		out, in := []byte{byte(c.Rank() + 1)}, []byte{0}
		sent := call.Isend(1-c.Rank(), 0, out)
		made, err := c.CreateGroup(ctx, c.Group(), call.Tag)
		if err != nil {
			return err
		}
		if err := errors.Join(call.Irecv(1-c.Rank(), 0, in).Wait(ctx), sent.Wait(ctx)); err != nil || in[0] != byte(2-c.Rank()) {
			return fmt.Errorf("the collective got %d, %v", in[0], err)
		}
		return ringWorks(ctx, made, 3)
	})
}
