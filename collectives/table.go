package collectives

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// Needs is a set of conditions of which an algorithm needs all for a correct result.
type Needs uint8

const (
	// Commutative requires a commutative operator.
	Commutative Needs = 1 << iota
	// CommutativeOrOrdered requires a commutative operator or an ordered Layout.
	CommutativeOrOrdered
	// Ordered requires an ordered Layout.
	Ordered
	// SharedMemory requires ranks that are all on one node, a Comm with a SharedBuffer, and a call
	// whose data fits it.
	SharedMemory

	// Nothing allows any operator, and ranks in any layout.
	Nothing Needs = 0
)

// Has reports whether a condition is in the set.
func (n Needs) Has(condition Needs) bool { return n&condition != 0 }

// Algorithm is one way to carry out one collective: a line of the table.
type Algorithm struct {
	Collective operation.Operation
	// Name is unique within the collective, "ring".
	Name string
	// Summary says in a few words when it is best.
	Summary string

	// Needs restricts it; where it would give wrong results it is refused.
	Needs Needs
	// Places reports whether it uses where ranks are. Where all are together it does the same as
	// another algorithm.
	Places bool
	// Flits is the maximum number of pieces into which it cuts messages between places (all
	// messages, if it does not use places), unless Find is given another; 0 if it cuts none.
	Flits int

	// MinBytes, MaxBytes and MinRanks say where it is chosen among ranks that are
	// together, by the Bytes of a Shape and the number of ranks; 0 is no limit. Outside
	// it still works, only slower.
	MinBytes, MaxBytes, MinRanks int

	plan func(p *plan) // makes p one rank's part; nil: it needs SharedMemory

	// Of an algorithm that needs SharedMemory: whether the data of a call fits, and what
	// carries out one rank's part.
	fits func(size int, s Shape) bool
	post func(c posting, ctx context.Context) error
}

// table lists every algorithm. For ranks that are together the first line of a collective that fits
// is chosen, so each collective has a line that fits everything. The limits are round figures for a
// network inside one site; those of lines that need SharedMemory are where the lines below them
// have been measured to be as fast (docs/decisions/0026-shared-buffers.md).
var table = []Algorithm{
	{Collective: operation.Barrier, Name: sharedBuffer, Summary: "one step over memory that all share", Needs: SharedMemory, fits: fitsOneStep, post: posting.barrier},
	{Collective: operation.Barrier, Name: "dissemination", Summary: "log2(p) rounds, every rank alike", plan: barrierDissemination},
	{Collective: operation.Barrier, Name: "two-level", Summary: "one message between each two places", Places: true, plan: barrierTwoLevel},
	{Collective: operation.Barrier, Name: "two-level-star", Summary: "fewest messages between places, by way of one of them", Places: true, plan: barrierTwoLevelStar},

	{Collective: operation.Bcast, Name: sharedBuffer, Summary: "a step over memory that all share for each piece", Needs: SharedMemory, MaxBytes: 512 << 10, fits: fitsVector, post: posting.bcast},
	{Collective: operation.Bcast, Name: "scatter-allgather", Summary: "no bytes more than twice, long vectors", MinBytes: 128 << 10, MinRanks: 6, plan: bcastScatterAllgather},
	{Collective: operation.Bcast, Name: "binomial", Summary: "log2(p) rounds of the whole vector", plan: bcastBinomial},
	{Collective: operation.Bcast, Name: "chain", Summary: "pipelined, neighbours only, long vectors", Flits: 1, plan: bcastChain},
	{Collective: operation.Bcast, Name: "binary-tree", Summary: "pipelined, long vectors and many ranks", Flits: 1, plan: bcastBinaryTree},
	{Collective: operation.Bcast, Name: "two-level", Summary: "one message to each place", Places: true, Flits: 1, plan: bcastTwoLevel},
	{Collective: operation.Bcast, Name: "full-lane", Summary: "every rank of a place carries a share", Places: true, Flits: 1, plan: bcastFullLane},
	{Collective: operation.Bcast, Name: "two-hop", Summary: "least bytes on every link, long vectors", Places: true, Flits: 1, plan: bcastTwoHop},
	{Collective: operation.Bcast, Name: "mixed", Summary: "two hops, and straight what is sent last", Places: true, Flits: 3, plan: bcastMixed},

	{Collective: operation.Reduce, Name: sharedBuffer, Summary: "in rank order over memory that all share, each rank a share of long vectors", Needs: SharedMemory, fits: fitsReduction, post: posting.reduceToRoot},
	{Collective: operation.Reduce, Name: "rabenseifner", Summary: "no bytes more than twice, long vectors, in rank order", MinBytes: 64 << 10, MinRanks: 4, plan: reduceRabenseifner},
	{Collective: operation.Reduce, Name: "binomial", Summary: "log2(p) rounds of the whole vector, in rank order if it matters", plan: reduceBinomial},
	{Collective: operation.Reduce, Name: "chain", Summary: "pipelined, neighbours only, long vectors, in rank order if it matters", Flits: 1, plan: reduceChain},
	{Collective: operation.Reduce, Name: "two-level", Summary: "one message from each place", Needs: CommutativeOrOrdered, Places: true, Flits: 1, plan: reduceTwoLevel},
	{Collective: operation.Reduce, Name: "full-lane", Summary: "every rank of a place carries a share", Needs: CommutativeOrOrdered, Places: true, Flits: 1, plan: reduceFullLane},
	{Collective: operation.Reduce, Name: "two-hop", Summary: "least bytes on every link, long vectors", Needs: CommutativeOrOrdered, Places: true, Flits: 1, plan: reduceTwoHop},
	{Collective: operation.Reduce, Name: "mixed", Summary: "two hops, and straight what is sent last", Needs: CommutativeOrOrdered, Places: true, Flits: 3, plan: reduceMixed},

	{Collective: operation.Allreduce, Name: sharedBuffer, Summary: "in rank order over memory that all share, each rank a share of long vectors", Needs: SharedMemory, fits: fitsReduction, post: posting.allreduce},
	{Collective: operation.Allreduce, Name: "ring", Summary: "least bytes, long vectors", Needs: Commutative, MinBytes: 64 << 10, plan: allreduceRing},
	{Collective: operation.Allreduce, Name: "rabenseifner", Summary: "least bytes in few rounds, long vectors, in rank order", MinBytes: 32 << 10, MinRanks: 4, plan: allreduceRabenseifner},
	{Collective: operation.Allreduce, Name: "recursive-doubling", Summary: "fewest rounds, in rank order", plan: allreduceRecursiveDoubling},
	{Collective: operation.Allreduce, Name: "two-level", Summary: "one message between each two places", Needs: CommutativeOrOrdered, Places: true, Flits: 1, plan: allreduceTwoLevel},
	{Collective: operation.Allreduce, Name: "two-level-star", Summary: "fewest messages between places, by way of one of them", Needs: CommutativeOrOrdered, Places: true, Flits: 1, plan: allreduceTwoLevelStar},
	{Collective: operation.Allreduce, Name: "full-lane", Summary: "every rank of a place carries a share", Needs: CommutativeOrOrdered, Places: true, Flits: 1, plan: allreduceFullLane},
	{Collective: operation.Allreduce, Name: "two-step", Summary: "least bytes on every link, long vectors", Needs: CommutativeOrOrdered, Places: true, Flits: 1, plan: allreduceTwoStep},
	{Collective: operation.Allreduce, Name: "mixed", Summary: "two steps, and at once what is sent last", Needs: CommutativeOrOrdered, Places: true, Flits: 2, plan: allreduceMixed},

	{Collective: operation.Gather, Name: sharedBuffer, Summary: "every block posted once in memory that all share", Needs: SharedMemory, MaxBytes: 512 << 10, fits: fitsBlocks, post: posting.gatherToRoot},
	{Collective: operation.Gather, Name: "binomial", Summary: "fewest messages at the root, small blocks", MaxBytes: 4 << 10, MinRanks: 4, plan: gatherBinomial},
	{Collective: operation.Gather, Name: "linear", Summary: "every block straight into place", plan: gatherLinear},
	{Collective: operation.Gather, Name: "two-level", Summary: "one message from each place, small blocks", Places: true, Flits: 1, plan: gatherTwoLevel},
	{Collective: operation.Gatherv, Name: "linear", Summary: "every block straight into place", plan: gatherLinear},

	{Collective: operation.Allgather, Name: sharedBuffer, Summary: "every block posted once in memory that all share", Needs: SharedMemory, MaxBytes: 1 << 20, fits: fitsBlocks, post: posting.allgather},
	{Collective: operation.Allgather, Name: "bruck", Summary: "fewest rounds, small blocks", MaxBytes: 4 << 10, MinRanks: 3, plan: allgatherBruck},
	{Collective: operation.Allgather, Name: "recursive-doubling", Summary: "fewest rounds without copies, blocks of middling size", MaxBytes: 32 << 10, MinRanks: 4, plan: allgatherRecursiveDoubling},
	{Collective: operation.Allgather, Name: "ring", Summary: "no copies, neighbours only", plan: allgatherRing},
	{Collective: operation.Allgather, Name: "full-lane", Summary: "every rank of a place carries a share", Places: true, plan: allgatherFullLane},
	{Collective: operation.Allgather, Name: "two-level", Summary: "one message between each two places", Places: true, Flits: 1, plan: allgatherTwoLevel},
	{Collective: operation.Allgatherv, Name: sharedBuffer, Summary: "one step over memory that all share", Needs: SharedMemory, fits: fitsOneStep, post: posting.allgatherv},
	{Collective: operation.Allgatherv, Name: "ring", Summary: "no copies, neighbours only", plan: allgatherRing},
	{Collective: operation.Allgatherv, Name: "full-lane", Summary: "every rank of a place carries a share", Places: true, plan: allgatherFullLane},
	{Collective: operation.Allgatherv, Name: "two-level", Summary: "one message between each two places", Places: true, Flits: 1, plan: allgatherTwoLevel},

	{Collective: operation.Scatter, Name: sharedBuffer, Summary: "all blocks posted once in memory that all share", Needs: SharedMemory, MaxBytes: 64 << 10, fits: fitsBlocks, post: posting.scatter},
	{Collective: operation.Scatter, Name: "binomial", Summary: "fewest messages at the root, small blocks", MaxBytes: 4 << 10, MinRanks: 4, plan: scatterBinomial},
	{Collective: operation.Scatter, Name: "linear", Summary: "every block straight from its place", plan: scatterLinear},
	{Collective: operation.Scatter, Name: "two-level", Summary: "one message to each place, small blocks", Places: true, Flits: 1, plan: scatterTwoLevel},
	{Collective: operation.Scatterv, Name: "linear", Summary: "every block straight from its place", plan: scatterLinear},

	{Collective: operation.Alltoall, Name: sharedBuffer, Summary: "every block posted once in memory that all share", Needs: SharedMemory, MaxBytes: 1 << 20, fits: fitsBlocks, post: posting.alltoall},
	{Collective: operation.Alltoall, Name: "bruck", Summary: "fewest messages, tiny blocks", MaxBytes: 256, MinRanks: 8, plan: alltoallBruck},
	{Collective: operation.Alltoall, Name: "pairwise", Summary: "every block straight into place", plan: alltoallPairwise},
	{Collective: operation.Alltoall, Name: "two-level", Summary: "one message between each two places, small blocks", Places: true, plan: alltoallTwoLevel},
	{Collective: operation.Alltoallv, Name: "pairwise", Summary: "every block straight into place", plan: alltoallPairwise},

	{Collective: operation.ReduceScatter, Name: sharedBuffer, Summary: "one step over memory that all share, in rank order", Needs: SharedMemory, fits: fitsOneStep, post: posting.reduceScatter},
	{Collective: operation.ReduceScatter, Name: "two-level", Summary: "one message between each two places", Needs: CommutativeOrOrdered, Places: true, plan: reduceScatterTwoLevel},
	{Collective: operation.ReduceScatter, Name: "full-lane", Summary: "every rank of a place carries a share", Needs: CommutativeOrOrdered, Places: true, plan: reduceScatterFullLane},
	{Collective: operation.ReduceScatter, Name: "pairwise", Summary: "every block straight, in rank order", plan: reduceScatterPairwise},
	{Collective: operation.ReduceScatter, Name: "recursive-halving", Summary: "fewest messages, short blocks", Needs: Commutative, plan: reduceScatterRecursiveHalving},
	{Collective: operation.ReduceScatterBlock, Name: sharedBuffer, Summary: "blocks reduced from memory that all share, in rank order", Needs: SharedMemory, fits: fitsReductionOfBlocks, post: posting.reduceScatterBlock},
	{Collective: operation.ReduceScatterBlock, Name: "two-level", Summary: "one message between each two places", Needs: CommutativeOrOrdered, Places: true, plan: reduceScatterTwoLevel},
	{Collective: operation.ReduceScatterBlock, Name: "full-lane", Summary: "every rank of a place carries a share", Needs: CommutativeOrOrdered, Places: true, plan: reduceScatterFullLane},
	{Collective: operation.ReduceScatterBlock, Name: "pairwise", Summary: "every block straight, in rank order", plan: reduceScatterPairwise},
	{Collective: operation.ReduceScatterBlock, Name: "recursive-halving", Summary: "fewest messages, short blocks", Needs: Commutative, plan: reduceScatterRecursiveHalving},

	{Collective: operation.Scan, Name: sharedBuffer, Summary: "vectors of the ranks below read from memory that all share", Needs: SharedMemory, fits: fitsScan, post: posting.scan},
	{Collective: operation.Scan, Name: "recursive-doubling", Summary: "log2(p) rounds", plan: scanRecursiveDoubling},
	{Collective: operation.Scan, Name: "chain", Summary: "pipelined, neighbours only, long vectors", Flits: 1, plan: scanChain},
	{Collective: operation.Scan, Name: "two-level", Summary: "one message between each two places", Needs: Ordered, Places: true, plan: scanTwoLevel},
	{Collective: operation.Scan, Name: "full-lane", Summary: "every rank of a place carries a share", Needs: Ordered, Places: true, Flits: 1, plan: scanFullLane},
	{Collective: operation.Scan, Name: "allgather", Summary: "all vectors to all, wherever ranks are", Places: true, plan: scanAllgather},
	{Collective: operation.Exscan, Name: sharedBuffer, Summary: "vectors of the ranks below read from memory that all share", Needs: SharedMemory, fits: fitsScan, post: posting.exscan},
	{Collective: operation.Exscan, Name: "recursive-doubling", Summary: "log2(p) rounds", plan: exscanRecursiveDoubling},
	{Collective: operation.Exscan, Name: "chain", Summary: "pipelined, neighbours only, long vectors", Flits: 1, plan: exscanChain},
	{Collective: operation.Exscan, Name: "two-level", Summary: "one message between each two places", Needs: Ordered, Places: true, plan: exscanTwoLevel},
	{Collective: operation.Exscan, Name: "full-lane", Summary: "every rank of a place carries a share", Needs: Ordered, Places: true, Flits: 1, plan: exscanFullLane},
	{Collective: operation.Exscan, Name: "allgather", Summary: "all vectors to all, wherever ranks are", Places: true, plan: exscanAllgather},
}

// lines is the table by operation.
var lines = func() (by [operation.Count][]Algorithm) {
	for _, a := range table {
		by[a.Collective] = append(by[a.Collective], a)
	}
	return by
}()

// Algorithms returns the lines of one collective, in the order of preference;
// none if there is no such collective.
func Algorithms(collective operation.Operation) []Algorithm {
	if collective >= operation.Count {
		return nil
	}
	return slices.Clone(lines[collective])
}

// Operations returns the collectives that have algorithms, in the table's order.
func Operations() []operation.Operation {
	return slices.DeleteFunc(operation.All(), func(o operation.Operation) bool { return lines[o] == nil })
}

// Find returns the algorithm with the given names. A name followed by a number of flits,
// "two-level:8", is the algorithm with messages cut into that many; see Flits. The error lists the
// names that exist.
func Find(collective operation.Operation, name string) (Algorithm, error) {
	base, flits, cut := strings.Cut(name, ":")
	var have []string
	for _, a := range Algorithms(collective) {
		have = append(have, a.Name)
		if a.Name != base {
			continue
		}
		if !cut {
			return a, nil
		}
		n, err := strconv.Atoi(flits)
		if err != nil || n < 1 || n > maxFlits || a.Flits == 0 {
			return Algorithm{}, fmt.Errorf("collectives: %s of %s: %q is no number of flits from 1 to %d of an algorithm that has any", name, collective, flits, maxFlits)
		}
		return a.cut(n), nil
	}
	if have == nil {
		return Algorithm{}, unknown(collective)
	}
	return Algorithm{}, fmt.Errorf("collectives: %s has no algorithm %q, have %s", collective, name, strings.Join(have, ", "))
}

// unknown is the error for an operation without algorithms.
func unknown(collective operation.Operation) error {
	var have []string
	for _, o := range Operations() {
		have = append(have, o.String())
	}
	return fmt.Errorf("collectives: no algorithm to choose for %v, have those of %s", collective, strings.Join(have, ", "))
}

// maxFlits is the maximum number of pieces into which a message is cut.
const maxFlits = 1024

// cut returns the algorithm with so many flits.
func (a Algorithm) cut(flits int) Algorithm {
	if flits != a.Flits {
		a.Name = fmt.Sprintf("%s:%d", a.Name, flits)
		a.Flits = flits
	}
	return a
}

// ErrSharedMemory is wrapped by the error of a call for which an algorithm is forced that needs
// SharedMemory, where there is none. Such a call has sent nothing.
var ErrSharedMemory = errors.New("no shared memory")

// group is what algorithms need to know of a communicator's ranks.
type group struct {
	size    int
	apart   bool // they are at several places
	ordered bool // their Layout is
}

// unmetNeeds returns those of an algorithm's needs that a call does not meet.
func (a *Algorithm) unmetNeeds(g group, s Shape) Needs {
	var met Needs
	if s.Commutative {
		met |= Commutative
	}
	if s.Commutative || g.ordered {
		met |= CommutativeOrOrdered
	}
	if g.ordered {
		met |= Ordered
	}
	if a.Needs.Has(SharedMemory) && !g.apart && s.Posts > 0 && g.size <= maxSharing && a.fits(g.size, s) {
		met |= SharedMemory
	}
	return a.Needs &^ met
}

// refuses returns why the algorithm would give a wrong result; nil if it would not.
func (a *Algorithm) refuses(g group, s Shape) error {
	unmet := a.unmetNeeds(g, s)
	switch {
	case unmet.Has(Commutative):
		return fmt.Errorf("%s needs a commutative operator: %w", a.Name, ErrArgument)
	case unmet.Has(CommutativeOrOrdered):
		return fmt.Errorf("%s needs a commutative operator, or sites whose ranks follow one another: %w", a.Name, ErrArgument)
	case unmet.Has(Ordered):
		return fmt.Errorf("%s needs sites whose ranks follow one another: %w", a.Name, ErrArgument)
	case unmet.Has(SharedMemory) && g.apart:
		return fmt.Errorf("%s needs ranks that are all on one node, and these are on several: %w", a.Name, ErrSharedMemory)
	case unmet.Has(SharedMemory) && s.Posts == 0:
		return fmt.Errorf("%s needs memory that all ranks share, and this call has none: %w", a.Name, ErrSharedMemory)
	case unmet.Has(SharedMemory):
		return fmt.Errorf("%s has no room for %d bytes of each of %d ranks: %w", a.Name, s.Bytes, g.size, ErrSharedMemory)
	}
	return nil
}

// Schedule returns what a rank of a communicator does in a call. The arguments must be valid; only
// the buffers' lengths are used, and whether one lies in the other. An algorithm that needs
// SharedMemory sends no message and has no schedule; it must not be asked for one.
func (a Algorithm) Schedule(rank, size int, l Layout, args *Args) *schedule.Schedule {
	what := args.call(a.Collective)
	return a.schedule(rank, size, l, &what)
}

func (a *Algorithm) schedule(rank, size int, l Layout, c *call) *schedule.Schedule {
	p := newPlan(rank, size, l, a.Flits, c)
	a.plan(p)
	return p.b.Done()
}

// Run carries out the call with this algorithm, whatever its shape. Every rank must run the same
// one. Arguments are checked as by the collective's own function, and an algorithm that would give
// a wrong result is refused.
func (a Algorithm) Run(ctx context.Context, c Comm, args *Args) error {
	if a.plan == nil && a.post == nil {
		return fmt.Errorf("collectives: not an algorithm of the table, take one from Find: %w", ErrArgument)
	}
	p := c.Planner()
	err := args.check(a.Collective, p.rank, p.size)
	if err != nil {
		return fmt.Errorf("collectives: %s: %w", a.Collective, err)
	}
	what := args.call(a.Collective)
	s := what.shape(p.size)
	if b, ok := c.(SharedBuffer); ok {
		s.Posts = b.Posts()
	}
	if err := a.refuses(p.group, s); err != nil {
		return fmt.Errorf("collectives: %s: %w", a.Collective, err)
	}
	return a.run(ctx, c, args, &what)
}

// run carries out a checked call, and names the algorithm in the error.
func (a *Algorithm) run(ctx context.Context, c Comm, args *Args, what *call) error {
	p := c.Planner()
	if a.post != nil {
		return a.runShared(ctx, c.(SharedBuffer), p, args)
	}
	k, r := p.prepare(a, what)
	r.memory[schedule.Input], r.memory[schedule.Output], r.op = args.Send, args.Recv, args.Op
	err := r.runner.Run(ctx, c, &r.memory, r.apply)
	r.memory[schedule.Input], r.memory[schedule.Output], r.op = nil, nil, Op{}
	p.release(k, r)
	if err != nil {
		return fmt.Errorf("collectives: %s (%s) on rank %d of %d: %w", a.Collective, a.Name, p.rank, p.size, err)
	}
	return nil
}
