package collectives

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Algorithm is one way to carry out one collective: a line of the table.
type Algorithm struct {
	// Collective is the operation's name in lower case, "allreduce".
	Collective string
	// Name is unique within the collective, "ring".
	Name string
	// Summary says in a few words what it is good for.
	Summary string

	// Commutative restricts it to commutative operators; it would give wrong
	// results with others and refuses them.
	Commutative bool

	// MinBytes, MaxBytes and MinRanks say where it is chosen, by the Bytes and
	// Ranks of a Shape; 0 is no limit. Outside it still works, only slower.
	MinBytes, MaxBytes, MinRanks int

	plan func(p *plan) // has p do one rank's part
}

// table lists every algorithm. Choosing takes the first line of a collective
// that fits, so each collective ends with a line that fits everything. The
// limits are round figures for a network inside one site.
var table = []Algorithm{
	{Collective: "barrier", Name: "dissemination", Summary: "log2(p) rounds, every rank alike", plan: barrierDissemination},
	{Collective: "bcast", Name: "binomial", Summary: "log2(p) rounds of the whole vector", plan: bcastBinomial},
	{Collective: "reduce", Name: "binomial", Summary: "log2(p) rounds of the whole vector, in rank order if it matters", plan: reduceBinomial},

	{Collective: "allreduce", Name: "ring", Summary: "least bytes, long vectors", Commutative: true, MinBytes: 64 << 10, plan: allreduceRing},
	{Collective: "allreduce", Name: "recursive-doubling", Summary: "fewest rounds, in rank order", plan: allreduceRecursiveDoubling},

	{Collective: "gather", Name: "binomial", Summary: "fewest messages at the root, small blocks", MaxBytes: 4 << 10, MinRanks: 4, plan: gatherBinomial},
	{Collective: "gather", Name: "linear", Summary: "every block straight into place", plan: gatherLinear},
	{Collective: "gatherv", Name: "linear", Summary: "every block straight into place", plan: gathervLinear},

	{Collective: "allgather", Name: "bruck", Summary: "fewest rounds, small blocks", MaxBytes: 4 << 10, MinRanks: 3, plan: allgatherBruck},
	{Collective: "allgather", Name: "ring", Summary: "no copies, neighbours only", plan: allgatherRing},

	{Collective: "scatter", Name: "binomial", Summary: "fewest messages at the root, small blocks", MaxBytes: 4 << 10, MinRanks: 4, plan: scatterBinomial},
	{Collective: "scatter", Name: "linear", Summary: "every block straight from its place", plan: scatterLinear},

	{Collective: "alltoall", Name: "bruck", Summary: "fewest messages, tiny blocks", MaxBytes: 256, MinRanks: 8, plan: alltoallBruck},
	{Collective: "alltoall", Name: "pairwise", Summary: "one partner at a time, no copies", plan: alltoallPairwise},
	{Collective: "alltoallv", Name: "pairwise", Summary: "everything posted at once, partners staggered", plan: alltoallvPairwise},
}

// Algorithms returns the lines of one collective, in the order of preference;
// none if there is no such collective.
func Algorithms(collective string) []Algorithm {
	var out []Algorithm
	for _, a := range table {
		if a.Collective == collective {
			out = append(out, a)
		}
	}
	return out
}

// Names returns the collectives that have algorithms, in the table's order.
func Names() []string {
	var out []string
	for _, a := range table {
		if !slices.Contains(out, a.Collective) {
			out = append(out, a.Collective)
		}
	}
	return out
}

// Find returns the algorithm with the given names. Its error lists the names
// there are.
func Find(collective, name string) (Algorithm, error) {
	var have []string
	for _, a := range Algorithms(collective) {
		if a.Name == name {
			return a, nil
		}
		have = append(have, a.Name)
	}
	if have == nil {
		return Algorithm{}, fmt.Errorf("collectives: no collective %q, have %s", collective, strings.Join(Names(), ", "))
	}
	return Algorithm{}, fmt.Errorf("collectives: %s has no algorithm %q, have %s", collective, name, strings.Join(have, ", "))
}

// Select returns the algorithm that a call of this shape runs. It fails only
// for a collective that does not exist.
func Select(collective string, s Shape) (Algorithm, error) {
	if !slices.Contains(Names(), collective) {
		return Algorithm{}, fmt.Errorf("collectives: no collective %q, have %s", collective, strings.Join(Names(), ", "))
	}
	return choose(collective, s), nil
}

// choose is Select for a collective known to exist; each has a last line
// without limits, which a test makes sure of.
func choose(collective string, s Shape) Algorithm {
	for _, a := range table {
		if a.Collective == collective && a.suits(s) {
			return a
		}
	}
	panic("collectives: the table has no line for " + collective)
}

func (a Algorithm) suits(s Shape) bool {
	return (s.Commutative || !a.Commutative) &&
		s.Ranks >= a.MinRanks && s.Bytes >= a.MinBytes && (a.MaxBytes == 0 || s.Bytes <= a.MaxBytes)
}

// Run carries out the call with this algorithm, whatever its shape. Every rank
// must run the same one. Arguments are checked as by the collective's own
// function, and an operator the algorithm cannot respect is refused.
func (a Algorithm) Run(ctx context.Context, c Comm, args *Args) error {
	if a.plan == nil {
		return fmt.Errorf("collectives: not an algorithm of the table, take one from Find: %w", ErrArgument)
	}
	if err := args.check(a.Collective, c.Rank(), c.Size()); err != nil {
		return fmt.Errorf("collectives: %s: %w", a.Collective, err)
	}
	if a.Commutative && !args.Op.Commutative {
		return fmt.Errorf("collectives: %s (%s): operator %q is not commutative, this algorithm needs one that is: %w",
			a.Collective, a.Name, args.Op.Name, ErrArgument)
	}
	return a.start(ctx, c, args)
}

// start runs it with checked arguments and names it in the error.
func (a Algorithm) start(ctx context.Context, c Comm, args *Args) error {
	p := newPlan(c.Rank(), c.Size(), args)
	a.plan(p)
	if err := p.run(ctx, c); err != nil {
		return fmt.Errorf("collectives: %s (%s) on rank %d of %d: %w", a.Collective, a.Name, c.Rank(), c.Size(), err)
	}
	return nil
}
