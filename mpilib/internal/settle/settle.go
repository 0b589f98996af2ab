// Package settle lets the ranks of a collective call that creates a communicator check that all of
// them make the same call with equal arguments, and agree on its context: in one reduction, and for
// the two groups of an intercommunicator in an exchange of their leaders.
//
// It does not know what is created: the caller passes a Call. It has no state of its own.
package settle

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Call is a collective call that creates a communicator, made by the ranks of one group.
type Call interface {
	collectives.Comm
	Rank() int
	Size() int
	WorldRank(rank int) int
	Allocator() int              // the rank whose turn it is to allocate a context
	NewContext() (uint32, error) // one that no other communicator of the job has
}

// Kind is a kind of collective call that creates a communicator.
type Kind uint64

// The calls.
const (
	Dup Kind = iota + 1
	Create
	CreateGroup
	Split
	SplitType
	IntercommCreate
	Merge
	CommFromGroup
	CartCreate
	CartSub
	GraphCreate
	DistGraphCreateAdjacent
	DistGraphCreate
	Accept
	Connect
)

var callNames = map[Kind]string{
	Dup: "Dup", Create: "Create", CreateGroup: "CreateGroup", Split: "Split", SplitType: "SplitType",
	IntercommCreate: "IntercommCreate", Merge: "Merge", CommFromGroup: "CommFromGroup",
	CartCreate: "CartCreate", CartSub: "CartSub", GraphCreate: "GraphCreate",
	DistGraphCreateAdjacent: "DistGraphCreateAdjacent", DistGraphCreate: "DistGraphCreate",
	Accept: "Accept", Connect: "Connect",
}

func (k Kind) String() string {
	if name, ok := callNames[k]; ok {
		return name
	}
	return fmt.Sprintf("call %d", uint64(k))
}

// Terms is a rank's contribution to a collective call that creates a communicator.
type Terms struct {
	Kind  Kind
	Args  [MaxArgs]Arg // those that must be equal on all ranks
	Fault error        // error in this rank's arguments
	Word  uint64       // rank 0's is sent to all, even if the call fails
}

// MaxArgs is the maximum number of arguments of a call.
const MaxArgs = 4

// Arg is an argument that must be equal on all ranks.
type Arg struct {
	name   string
	Value  uint64
	number bool // Value is the argument itself, not its hash
}

// Number converts a number.
func Number(name string, v int) Arg { return Arg{name, uint64(int64(v)), true} }

// List converts a list, or anything else that prints as itself.
func List(name string, v any) Arg {
	h := fnv.New64a()
	fmt.Fprintf(h, "%v", v)
	return Arg{name: name, Value: h.Sum64()}
}

// Group converts all members of a group.
func Group(name string, g *group.Group) Arg {
	h := fnv.New64a()
	var b [4]byte
	for world := range g.WorldRanks() {
		binary.LittleEndian.PutUint32(b[:], uint32(world))
		h.Write(b[:])
	}
	return Arg{name: name, Value: h.Sum64()}
}

// Settle ensures that all ranks are in the same call with equal and valid arguments, and returns a
// new context. It fails on all ranks or on none, so that no rank waits for another that has left
// with an error.
//
// It makes one allreduce of the maxima of everything and of its complement: a value is equal
// everywhere if they are complements. The ranks allocate the new contexts in turn, so that none
// runs out of them early.
func Settle(ctx context.Context, call Call, t Terms) (id uint32, err error) {
	id, _, err = SettleWord(ctx, call, t)
	return id, err
}

// SettleWord is Settle that also returns rank 0's word.
func SettleWord(ctx context.Context, call Call, t Terms) (id uint32, word uint64, err error) {
	if call.Rank() == call.Allocator() && t.Fault == nil {
		id, t.Fault = call.NewContext()
	}
	const blame, first, fresh = 2 * (1 + MaxArgs), 2*(1+MaxArgs) + 1, 2*(1+MaxArgs) + 2
	var in, out [fresh + 1]uint64
	for i, v := range t.values() {
		in[2*i], in[2*i+1] = v, ^v
	}
	if t.Fault != nil {
		in[blame] = uint64(call.Rank() + 1)
	}
	if call.Rank() == 0 {
		in[first] = t.Word
	}
	in[fresh] = uint64(id)
	if err := coll.Allreduce(ctx, call, in[:], out[:], coll.Max()); err != nil {
		return 0, 0, err
	}
	word = out[first]
	same := true
	for i := range 1 + MaxArgs {
		same = same && out[2*i] == ^out[2*i+1]
	}
	blamed := int(out[blame]) - 1
	switch {
	case !same:
		return 0, word, errors.Join(t.Fault, t.differ(ctx, call))
	case t.Fault != nil:
		return 0, word, t.Fault
	case blamed >= 0:
		return 0, word, fmt.Errorf("%w: %s gave bad arguments; see its error", mpi.ErrMismatch, RankName(call, blamed))
	}
	return uint32(out[fresh]), word, nil
}

func (t Terms) values() (v [1 + MaxArgs]uint64) {
	v[0] = uint64(t.Kind)
	for i, a := range t.Args {
		v[i+1] = a.Value
	}
	return v
}

// differ finds the ranks whose call differs from this rank's. All ranks call it.
func (t Terms) differ(ctx context.Context, call Call) error {
	mine := t.values()
	all, err := coll.Allgather(ctx, call, call.Size(), mine)
	if err != nil {
		return err
	}
	for r, v := range all {
		if v[0] != mine[0] {
			return fmt.Errorf("%w: %s calls %v and this rank %v; all must call the same", mpi.ErrMismatch, RankName(call, r), Kind(v[0]), t.Kind)
		}
	}
	for r, v := range all {
		for i, a := range t.Args {
			switch {
			case v[i+1] == a.Value:
			case a.number:
				return fmt.Errorf("%w: %s is %d on %s and %d on this one; all must give the same", mpi.ErrMismatch, a.name, int64(v[i+1]), RankName(call, r), int64(a.Value))
			default:
				return fmt.Errorf("%w: %s of %s is not that of this one; all must give the same", mpi.ErrMismatch, a.name, RankName(call, r))
			}
		}
	}
	return fmt.Errorf("%w: for a reason that this rank cannot determine", mpi.ErrMismatch)
}

// RankName names a rank of the call, and its process if the number differs.
func RankName(c Call, r int) string {
	if world := c.WorldRank(r); world != r {
		return fmt.Sprintf("rank %d (%d of the world)", r, world)
	}
	return fmt.Sprintf("rank %d", r)
}
