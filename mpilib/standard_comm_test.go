package mpilib

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Groups and communicators (chapter 7 of MPI-4.1), compared with a simple model: lists of world
// ranks.

// shared returns random numbers that are the same on every rank.
func shared(n, which int) *rand.Rand { return rand.New(rand.NewPCG(uint64(n), uint64(which))) }

// speaks checks that the members of c are the listed world ranks: each member sends its world rank
// to all others.
func speaks(ctx context.Context, c *Comm, want []int) error {
	if c == nil {
		return errors.New("no communicator")
	}
	if c.Size() != len(want) || c.Rank() != slices.Index(want, c.World().Comm().Rank()) {
		return fmt.Errorf("%s: rank %d of %d, want %v", c.Name(), c.Rank(), c.Size(), want)
	}
	var open []*Request
	got := make([][]int, len(want))
	for r, world := range want {
		if c.WorldRank(r) != world {
			return fmt.Errorf("%s: rank %d is %d in the world, want %d", c.Name(), r, c.WorldRank(r), world)
		}
		got[r] = []int{-1}
		open = append(open, Irecv(c, got[r], r, 4), Isend(c, []int{want[c.Rank()]}, r, 4))
	}
	if _, err := Waitall(ctx, open...); err != nil {
		return err
	}
	for r, world := range want {
		if got[r][0] != world {
			return fmt.Errorf("%s: rank %d says that it is %d, want %d", c.Name(), r, got[r][0], world)
		}
	}
	sum := []int{0}
	err := Allreduce(ctx, c, []int{1}, sum, Sum)
	if sum[0] != len(want) && err == nil {
		err = fmt.Errorf("%s: %d of %d took part in a collective", c.Name(), sum[0], len(want))
	}
	return err
}

// 7.1.1, 7.2.1: a message is received in the communicator in which it was sent, and in no other,
// also with wildcards and with equal groups.
func TestStandard_7_1_1_Contexts(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		standardWorld(t, n, func(ctx context.Context, c *Comm) error {
			var comms []*Comm
			for range 4 {
				d, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				comms = append(comms, d)
			}
			next := (c.Rank() + 1) % n
			var out, in []*Request
			got := make([][]int, len(comms))
			for i := len(comms) - 1; i >= 0; i-- { // in reverse of the order of the sends
				out = append(out, Isend(comms[i], []int{i}, next, 3))
			}
			for i, d := range comms {
				got[i] = []int{-1}
				in = append(in, Irecv(d, got[i], AnySource, AnyTag))
			}
			if _, err := Waitall(ctx, append(in, out...)...); err != nil {
				return err
			}
			for i := range comms {
				if got[i][0] != i {
					return fmt.Errorf("communicator %d received what was sent in %d", i, got[i][0])
				}
			}
			return nil
		})
	}
}

// 7.1.1: messages and collective calls of one communicator never match each other: a receive with
// both wildcards stays pending during the group's collectives.
func TestStandard_7_1_1_CollectivesApart(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		standardWorld(t, n, func(ctx context.Context, c *Comm) error {
			got := []int{-1}
			open := Irecv(c, got, AnySource, AnyTag)
			all := make([]int, n)
			for root := range n {
				value := []int{c.Rank()}
				err1, err2 := Bcast(ctx, c, value, root), Allgather(ctx, c, []int{c.Rank()}, all)
				if err := errors.Join(err1, err2); err != nil || value[0] != root {
					return fmt.Errorf("root %d: %d, %w", root, value[0], err)
				}
			}
			dup, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			// With replicas the message may be in the buffer already, for those that are ahead.
			if _, done, err := open.Test(); done || got[0] != -1 && c.World().Replicas() == 1 {
				return fmt.Errorf("a receive got %d of a collective: %v", got[0], err)
			}
			err1 := Barrier(ctx, c) // all have checked
			err2 := Send(ctx, c, []int{7}, (c.Rank()+1)%n, 1)
			_, err3 := open.Wait(ctx)
			if got[0] != 7 {
				err = fmt.Errorf("got %d", got[0])
			}
			return errors.Join(err, err1, err2, err3, dup.Free())
		})
	}
}

// 7.3.2: union, intersection and difference obey the laws of sets, and their order is
// that of the first group, then of the second.
func TestStandard_7_3_2_Laws(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		standardWorld(t, n, func(_ context.Context, c *Comm) error {
			random, world := shared(n, 1), c.Group()
			pick := func() *Group {
				g, err := world.Incl(random.Perm(n)[:random.IntN(n+1)])
				if err != nil {
					panic(err) // an error of this test
				}
				return g
			}
			for range 40 {
				a, b, d := pick(), pick(), pick()
				for law, sides := range map[string][2]*Group{
					"union is associative":        {a.Union(b).Union(d), a.Union(b.Union(d))},
					"intersection is associative": {a.Intersection(b).Intersection(d), a.Intersection(b.Intersection(d))},
					"union with itself":           {a.Union(a), a},
					"intersection with itself":    {a.Intersection(a), a},
					"difference with itself":      {a.Difference(a), EmptyGroup},
					"difference of a union":       {a.Difference(b.Union(d)), a.Difference(b).Difference(d)},
					"parts of a union":            {a.Union(b), a.Union(b.Difference(a))},
					"parts of a group":            {a.Intersection(b), a.Difference(a.Difference(b))},
				} {
					if CompareGroups(sides[0], sides[1]) != Ident {
						return fmt.Errorf("%s: %v and %v, of %v, %v and %v", law, members(sides[0]), members(sides[1]), members(a), members(b), members(d))
					}
				}
				// Groups of the same members in different orders.
				for law, sides := range map[string][2]*Group{
					"union is commutative":        {a.Union(b), b.Union(a)},
					"intersection is commutative": {a.Intersection(b), b.Intersection(a)},
					"distribution":                {a.Union(b).Intersection(d), a.Intersection(d).Union(b.Intersection(d))},
				} {
					if got := CompareGroups(sides[0], sides[1]); got != Ident && got != Similar {
						return fmt.Errorf("%s: %v and %v, of %v, %v and %v", law, members(sides[0]), members(sides[1]), members(a), members(b), members(d))
					}
				}
			}
			return nil
		})
	}
}

// 7.4.2: Split creates one communicator for each colour, ordered by key and, where keys are equal,
// by rank. The parts can be split again, and ranks without a colour get none.
func TestStandard_7_4_2_Split(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		standardWorld(t, n, func(ctx context.Context, c *Comm) error {
			random := shared(n, 2)
			list := make([]int, n)
			for r := range list {
				list[r] = r
			}
			for depth := 0; c != nil && depth < 4; depth++ {
				colours, keys := make([]int, n), make([]int, n) // by world rank
				for r := range n {
					colours[r], keys[r] = random.IntN(3), random.IntN(5)-2
					if colours[r] == 2 && depth%2 == 1 {
						colours[r] = Undefined
					}
				}
				me := list[c.Rank()]
				part, err := c.Split(ctx, colours[me], keys[me])
				if err != nil {
					return err
				}
				if colours[me] == Undefined {
					if part != nil {
						return fmt.Errorf("a part for a rank without a colour: %s", part.Name())
					}
					return nil
				}
				list = slices.DeleteFunc(list, func(r int) bool { return colours[r] != colours[me] })
				slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
				if err := speaks(ctx, part, list); err != nil {
					return fmt.Errorf("depth %d: %w", depth, err)
				}
				c = part
			}
			return nil
		})
	}
}

// 7.4.2: Create and CreateGroup return a communicator of a group, in the group's order, and nil to
// other ranks.
func TestStandard_7_4_2_Create(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		standardWorld(t, n, func(ctx context.Context, c *Comm) error {
			random := shared(n, 3)
			for i := range 6 {
				list := random.Perm(n)[:random.IntN(n+1)]
				g, err := c.Group().Incl(list)
				if err != nil {
					return err
				}
				in := slices.Contains(list, c.Rank())
				made, err := c.Create(ctx, g)
				if err != nil || (made != nil) != in {
					return fmt.Errorf("Create of %v: %v, %v", list, made, err)
				}
				if !in {
					continue
				}
				alone, err := c.CreateGroup(ctx, g, i)
				if err := errors.Join(err, speaks(ctx, made, list), speaks(ctx, alone, list)); err != nil {
					return err
				}
				if Compare(made, alone) != Congruent || Compare(made, made) != Ident {
					return fmt.Errorf("%v and %v", Compare(made, alone), Compare(made, made))
				}
			}
			return nil
		})
	}
}

// 7.4.3: operations pending in a communicator that is freed complete as usual.
func TestStandard_7_4_3_Free(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		eachSize(t, n, func(ctx context.Context, c *Comm, size int) error {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			next, before := (c.Rank()+1)%n, (c.Rank()+n-1)%n
			buf := make([]byte, size)
			in := Irecv(d, buf, before, 1)
			out := Isend(d, pattern(size, c.Rank()), next, 1)
			if err := d.Free(); err != nil {
				return err
			}
			statuses, err := Waitall(ctx, in, out)
			if err != nil {
				return err
			}
			return isPattern(buf, statuses[0], size, before)
		})
	}
}

// 7.6.1, 7.6.2: in an intercommunicator, the ranks of messages are those of the other group,
// whichever ranks lead. Merge returns one group of both, in the order given by high.
func TestStandard_7_6_Intercommunicator(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(2) {
		standardWorld(t, n, func(ctx context.Context, c *Comm) error {
			random := shared(n, 4)
			for range 3 {
				sides := [2][]int{}
				order := random.Perm(n)
				cut := 1 + random.IntN(n-1)
				sides[0], sides[1] = order[:cut], order[cut:]
				mine := 0
				if slices.Contains(sides[1], c.Rank()) {
					mine = 1
				}
				half, err := c.Split(ctx, mine, slices.Index(sides[mine], c.Rank()))
				if err != nil {
					return err
				}
				leaders := [2]int{random.IntN(len(sides[0])), random.IntN(len(sides[1]))}
				inter, err := IntercommCreate(ctx, half, leaders[mine], c, sides[1-mine][leaders[1-mine]], 5)
				if err != nil {
					return err
				}
				if err := acrossSides(ctx, inter, sides[mine], sides[1-mine]); err != nil {
					return err
				}
				merged, err := inter.Merge(ctx, mine == 1)
				if err := errors.Join(err, speaks(ctx, merged, order)); err != nil {
					return fmt.Errorf("merged from %v: %w", sides, err)
				}
				if merged, err = inter.Merge(ctx, mine == 0); err != nil {
					return err
				}
				if err := speaks(ctx, merged, slices.Concat(sides[1], sides[0])); err != nil {
					return fmt.Errorf("merged from %v, the second first: %w", sides, err)
				}
			}
			return nil
		})
	}
}

// acrossSides sends each rank's world rank to all ranks of the other side, and checks them there.
func acrossSides(ctx context.Context, inter *Comm, mine, theirs []int) error {
	if inter.Size() != len(mine) || inter.RemoteSize() != len(theirs) {
		return fmt.Errorf("%d and %d, want %v and %v", inter.Size(), inter.RemoteSize(), mine, theirs)
	}
	var open []*Request
	got := make([][]int, len(theirs))
	for r := range theirs {
		got[r] = []int{-1}
		open = append(open, Irecv(inter, got[r], r, AnyTag), Isend(inter, []int{mine[inter.Rank()]}, r, inter.Rank()))
	}
	statuses, err := Waitall(ctx, open...)
	if err != nil {
		return err
	}
	for r, world := range theirs {
		if st := statuses[2*r]; got[r][0] != world || st.Source != r || st.Tag != r {
			return fmt.Errorf("from rank %d of the other side: %d, %+v, want %d", r, got[r][0], st, world)
		}
	}
	return nil
}

// 7.7.2: Dup calls the copy functions of the attributes with the values of the calling rank; Split
// and Create call none.
func TestStandard_7_7_2_Copies(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		standardWorld(t, n, func(ctx context.Context, c *Comm) error {
			copies, deletes := 0, 0
			key := NewKey(func(_ *Comm, v int) (int, bool, error) { copies++; return v + 1, v%2 == 0, nil },
				func(*Comm, int) error { deletes++; return nil })
			base, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			if err := key.Set(base, c.Rank()); err != nil {
				return err
			}
			dup, err := base.Dup(ctx)
			if err != nil {
				return err
			}
			v, ok := key.Get(dup)
			if copies != 1 || ok != (c.Rank()%2 == 0) || ok && v != c.Rank()+1 {
				return fmt.Errorf("%d copies, %d, %t", copies, v, ok)
			}
			split, err1 := base.Split(ctx, 0, 0)
			made, err2 := base.Create(ctx, base.Group())
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			_, inSplit := key.Get(split)
			_, inMade := key.Get(made)
			want := 1
			if ok {
				want++
			}
			if err := errors.Join(split.Free(), made.Free(), dup.Free(), base.Free()); err != nil || inSplit || inMade || copies != 1 || deletes != want {
				return fmt.Errorf("%t, %t, %d copies, %d deletes, want %d, %v", inSplit, inMade, copies, deletes, want, err)
			}
			return nil
		})
	}
}
