package mpilib

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
)

// Comm is a communicator: an ordered group of processes whose messages match
// no other communicator's. Safe for concurrent use, but collectives must be
// called in the same order on every rank, and so from one goroutine at a time.
type Comm struct {
	world   *World
	name    string
	rank    int         // of this process
	ranks   []int       // world rank of each rank
	inverse map[int]int // rank of each world rank
	context uint32      // of point-to-point messages; the next is the collectives'

	mu    sync.Mutex
	calls int32 // collective calls begun; the tag of the next one's messages
}

func newComm(w *World, name string, ranks []int, context uint32) *Comm {
	c := &Comm{world: w, name: name, ranks: ranks, inverse: make(map[int]int, len(ranks)), context: context}
	for rank, global := range ranks {
		c.inverse[global] = rank
	}
	c.rank = c.inverse[w.engine.rank]
	return c
}

// Rank returns the caller's rank, 0 <= Rank() < Size().
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of processes.
func (c *Comm) Size() int { return len(c.ranks) }

// WorldRank returns the rank in the world of rank r of c, or AnySource if c
// has no such rank.
func (c *Comm) WorldRank(r int) int {
	if r < 0 || r >= len(c.ranks) {
		return AnySource
	}
	return c.ranks[r]
}

// Name returns the communicator's name for people: "world", "world dup 2".
func (c *Comm) Name() string { return c.name }

func (c *Comm) checkSend(dst, tag int) error {
	if dst < 0 || dst >= len(c.ranks) {
		return fmt.Errorf("%w: %d, communicator %s has ranks 0 to %d", ErrRank, dst, c.name, len(c.ranks)-1)
	}
	if tag < 0 || tag > MaxTag {
		return fmt.Errorf("%w: %d, tags are 0 to %d", ErrTag, tag, MaxTag)
	}
	return nil
}

func (c *Comm) checkRecv(src, tag int) error {
	if src == AnySource {
		src = 0
	}
	if tag == AnyTag {
		tag = 0
	}
	return c.checkSend(src, tag)
}

// worldSource is rank src, or AnySource, in terms of the world.
func (c *Comm) worldSource(src int) int {
	if src == AnySource {
		return AnySource
	}
	return c.ranks[src]
}

// Dup returns a communicator of the same processes in the same order
// (MPI_Comm_dup). A collective call.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	id, err := c.agreeContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("mpilib: Dup of %s: %w", c.name, err)
	}
	return newComm(c.world, fmt.Sprintf("%s dup %d", c.name, id/2), c.ranks, id), nil
}

// Undefined is the colour of a process that wants no part in a Split.
const Undefined = -1

// Split returns a communicator of the processes that gave the same colour,
// ordered by key and, where keys are equal, by rank in c (MPI_Comm_split). It
// returns nil to those whose colour is Undefined. A collective call.
func (c *Comm) Split(ctx context.Context, colour, key int) (*Comm, error) {
	if colour < 0 && colour != Undefined {
		return nil, fmt.Errorf("mpilib: Split of %s: colour %d is negative and not Undefined", c.name, colour)
	}
	mine := [2]int64{int64(colour), int64(key)}
	all := make([][2]int64, c.Size())
	if err := Allgather(ctx, c, [][2]int64{mine}, all); err != nil {
		return nil, fmt.Errorf("mpilib: Split of %s: %w", c.name, err)
	}
	id, err := c.agreeContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("mpilib: Split of %s: %w", c.name, err)
	}
	if colour == Undefined {
		return nil, nil
	}
	name := fmt.Sprintf("%s split %d colour %d", c.name, id/2, colour)
	return newComm(c.world, name, splitGroup(c.ranks, all, colour), id), nil
}

// splitGroup returns the world ranks of colour's members in their new order.
func splitGroup(ranks []int, all [][2]int64, colour int) []int {
	var members []int
	for r := range all {
		if all[r][0] == int64(colour) {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[a][1], all[b][1]) })
	for i, r := range members {
		members[i] = ranks[r]
	}
	return members
}

// agreeContext finds a context that no member uses: the greatest of their next
// free ones. Communicators of one Split share it, which is safe because their
// members are disjoint.
func (c *Comm) agreeContext(ctx context.Context) (uint32, error) {
	next := []uint32{c.world.engine.nextContext(0)}
	if err := Allreduce(ctx, c, next, next, Max); err != nil {
		return 0, err
	}
	c.world.engine.nextContext(next[0] + 2)
	return next[0], nil
}
