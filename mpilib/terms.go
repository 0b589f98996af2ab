package mpilib

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
)

// callKind is a collective call that makes a communicator.
type callKind uint64

const (
	callDup callKind = iota + 1
	callCreate
	callCreateGroup
	callSplit
	callSplitType
	callIntercommCreate
	callMerge
	callCommFromGroup
	callCartCreate
	callCartSub
	callGraphCreate
	callDistGraphCreateAdjacent
	callDistGraphCreate
	callAccept
	callConnect
)

var callNames = map[callKind]string{
	callDup: "Dup", callCreate: "Create", callCreateGroup: "CreateGroup", callSplit: "Split", callSplitType: "SplitType",
	callIntercommCreate: "IntercommCreate", callMerge: "Merge", callCommFromGroup: "CommFromGroup",
	callCartCreate: "CartCreate", callCartSub: "CartSub", callGraphCreate: "GraphCreate",
	callDistGraphCreateAdjacent: "DistGraphCreateAdjacent", callDistGraphCreate: "DistGraphCreate",
	callAccept: "Accept", callConnect: "Connect",
}

func (k callKind) String() string {
	if name, ok := callNames[k]; ok {
		return name
	}
	return fmt.Sprintf("call %d", uint64(k))
}

// terms is what a rank brings to a collective call that makes a communicator.
type terms struct {
	kind  callKind
	args  [maxArgs]arg // those that must be equal on all ranks
	fault error        // what is wrong with this rank's arguments
	word  uint64       // rank 0's reaches all, also when the call fails
}

const maxArgs = 4

// arg is an argument that must be equal on all ranks.
type arg struct {
	name   string
	value  uint64
	number bool // value is the argument itself, not its hash
}

func numberArg(name string, v int) arg { return arg{name, uint64(int64(v)), true} }

// listArg stands for a list, or anything else that prints as what it is.
func listArg(name string, v any) arg {
	h := fnv.New64a()
	fmt.Fprintf(h, "%v", v)
	return arg{name: name, value: h.Sum64()}
}

// groupArg stands for all members of a group.
func groupArg(name string, g *group.Group) arg {
	h := fnv.New64a()
	var b [4]byte
	for world := range g.WorldRanks() {
		binary.LittleEndian.PutUint32(b[:], uint32(world))
		h.Write(b[:])
	}
	return arg{name: name, value: h.Sum64()}
}

// settle makes sure that all ranks are in the same call with equal arguments,
// none of them with bad ones, and returns a new context. It fails on all ranks
// or on none, so that no rank waits for another that has left with an error.
//
// One allreduce of the maxima of everything and of its complement: a value is
// equal everywhere if they are complements. The new context is asked for by
// one rank after the other in turn, so that none runs out of them early.
func settle(ctx context.Context, call *collectiveCall, t terms) (id uint32, err error) {
	id, _, err = settleWord(ctx, call, t)
	return id, err
}

// settleWord is settle that also returns rank 0's word.
func settleWord(ctx context.Context, call *collectiveCall, t terms) (id uint32, word uint64, err error) {
	if call.Rank() == call.tag/schedule.Slots%call.Size() && t.fault == nil {
		id, t.fault = call.comm.world.newContext()
	}
	const blame, first, fresh = 2 * (1 + maxArgs), 2*(1+maxArgs) + 1, 2*(1+maxArgs) + 2
	var in, out [fresh + 1]uint64
	for i, v := range t.values() {
		in[2*i], in[2*i+1] = v, ^v
	}
	if t.fault != nil {
		in[blame] = uint64(call.Rank() + 1)
	}
	if call.Rank() == 0 {
		in[first] = t.word
	}
	in[fresh] = uint64(id)
	if err := reduceAll(ctx, call, in[:], out[:], Max[uint64]); err != nil {
		return 0, 0, err
	}
	word = out[first]
	same := true
	for i := range 1 + maxArgs {
		same = same && out[2*i] == ^out[2*i+1]
	}
	blamed := int(out[blame]) - 1
	switch {
	case !same:
		return 0, word, errors.Join(t.fault, t.differ(ctx, call))
	case t.fault != nil:
		return 0, word, t.fault
	case blamed >= 0:
		return 0, word, fmt.Errorf("%w: %s gave bad arguments; see its error", ErrMismatch, call.who(blamed))
	}
	return uint32(out[fresh]), word, nil
}

func (t terms) values() (v [1 + maxArgs]uint64) {
	v[0] = uint64(t.kind)
	for i, a := range t.args {
		v[i+1] = a.value
	}
	return v
}

// differ finds out who did not do the same as this rank. All ranks call it.
func (t terms) differ(ctx context.Context, call *collectiveCall) error {
	mine := t.values()
	all, err := allgather(ctx, call, mine)
	if err != nil {
		return err
	}
	for r, v := range all {
		if v[0] != mine[0] {
			return fmt.Errorf("%w: %s calls %v and this rank %v; all must call the same", ErrMismatch, call.who(r), callKind(v[0]), t.kind)
		}
	}
	for r, v := range all {
		for i, a := range t.args {
			switch {
			case v[i+1] == a.value:
			case a.number:
				return fmt.Errorf("%w: %s is %d on %s and %d on this one; all must give the same", ErrMismatch, a.name, int64(v[i+1]), call.who(r), int64(a.value))
			default:
				return fmt.Errorf("%w: %s of %s is not that of this one; all must give the same", ErrMismatch, a.name, call.who(r))
			}
		}
	}
	return fmt.Errorf("%w: but with what cannot be seen from here", ErrMismatch)
}

// who names a rank of the call, and its process where that is not the same.
func (c *collectiveCall) who(r int) string {
	if world := c.comm.WorldRank(r); world != r {
		return fmt.Sprintf("rank %d (%d of the world)", r, world)
	}
	return fmt.Sprintf("rank %d", r)
}

// amongMembers returns a call that only the members of g make, this process
// among them. Its ranks are by world rank, so that members who give the same
// group in another order meet, and are told.
func (w *World) amongMembers(name string, g *group.Group, context uint32, tag int) (*collectiveCall, error) {
	sorted, err := group.Of(slices.Sorted(g.WorldRanks()))
	if err != nil {
		return nil, err
	}
	return &collectiveCall{comm: newComm(w, name, sorted, context), context: context, tag: tag}, nil
}

// reduceAll is Allreduce within a call.
func reduceAll[T Elem](ctx context.Context, call *collectiveCall, in, out []T, op Op[T]) error {
	s, r, _, err := buffer.Views(in, out)
	if err != nil {
		return err
	}
	o, err := bytesOp(op)
	if err != nil {
		return err
	}
	return collectives.Allreduce(ctx, call, s, r, o)
}

// allgather returns what every rank gives, by rank.
func allgather[T Elem](ctx context.Context, call *collectiveCall, mine T) ([]T, error) {
	all := make([]T, call.Size())
	s, r, _, err := buffer.Views([]T{mine}, all)
	if err != nil {
		return nil, err
	}
	return all, collectives.Allgather(ctx, call, s, r)
}

// bcast sends root's values to all within a call.
func bcast[T Elem](ctx context.Context, call *collectiveCall, values []T, root int) error {
	b, err := buffer.View(values)
	if err != nil {
		return err
	}
	return collectives.Bcast(ctx, call, b, root)
}
