// Package factor is the program tsqr: the QR factorization of a tall and skinny
// matrix whose rows lie on ranks of several sites, in two ways. "columns" goes
// over all ranks column by column, as ScaLAPACK does, with two allreduces for
// each. "tsqr" has each domain, a part of a cluster or a single rank, factor its
// own rows and combines the domains' factors in pairs up a tree that crosses
// between sites once for each site (Demmel, Grigori, Hoemmen, Langou,
// "Communication-optimal parallel and sequential QR and LU factorizations",
// LAPACK working note 204). Both run the same arithmetic (package qr), and each
// result is proved by what defines it. Clusters are the groups of the job, or its
// sites (package clusters).
//
// Rows lie on ranks in rank order, in equal parts. State lives in a run.
package factor

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/examples/clusters"
	"github.com/isthmus-grid/isthmus/examples/pace"
	"github.com/isthmus-grid/isthmus/examples/tally"
	"github.com/isthmus-grid/isthmus/examples/tsqr/qr"
	"github.com/isthmus-grid/isthmus/mpilib"
)

const (
	tagFactor = 1 // a packed R goes up the tree
	tagQ      = 2 // a part of Q comes down
)

// problem is one factorization, the same on every rank.
type problem struct {
	rows, cols int
	seed       uint64
	prove      bool
}

// solver is this rank's part of one way to solve problems.
type solver struct {
	comm      *mpilib.Comm
	domain    *mpilib.Comm // its first rank has the domain's first rows
	layout    layout
	processor *pace.Processor // counts flops
}

// newSolver makes the domain's communicator, which is the caller's to free. A
// collective call.
func newSolver(ctx context.Context, comm *mpilib.Comm, domains int, mflops float64) (*solver, error) {
	places, err := comm.Places(ctx)
	if err != nil {
		return nil, err
	}
	l := newLayout(places, clusters.Of(places, comm.World().JobGroups()), domains)
	domain, err := comm.Split(ctx, l.domain[comm.Rank()], comm.Rank())
	if err != nil {
		return nil, err
	}
	return &solver{comm, domain, l, pace.New(mflops * 1e6)}, nil
}

// rowsOf returns which rows a rank has.
func (p problem) rowsOf(rank, ranks int) (first, count int) {
	first = rank * p.rows / ranks
	return first, (rank+1)*p.rows/ranks - first
}

// check refuses matrices of which a rank would not have enough rows for a
// triangle.
func (p problem) check(ranks int) error {
	if p.cols < 1 || p.rows/ranks < p.cols {
		return fmt.Errorf("a matrix of %d x %d on %d ranks: each needs at least as many rows as there are columns; give %d rows or more",
			p.rows, p.cols, ranks, ranks*max(p.cols, 1))
	}
	return nil
}

// factors is what a rank has of Q and R before Q is made.
type factors struct {
	crew  *crew
	panel *qr.Panel
	pairs []pair     // those that this leader combined, in order
	up    int        // whom it sent its factor to, or -1
	r     *qr.Matrix // on rank 0, its diagonal positive
	signs *qr.Matrix // on rank 0: what made it so
}

// A pair came of the factor of another leader.
type pair struct {
	from int
	*qr.Pair
}

// outcome of one run on one rank.
type outcome struct {
	seconds float64 // until R was there, or this rank had done its part
	traffic tally.Traffic
	sums    int
	q, r    *qr.Matrix // this rank's rows of Q if asked for; R on rank 0 only
}

// run makes this rank's rows, factors and, if asked to, forms Q. All ranks begin
// at once.
func (s *solver) run(ctx context.Context, p problem, withQ bool) (outcome, error) {
	first, count := p.rowsOf(s.comm.Rank(), s.comm.Size())
	a := qr.Random(p.seed, first, count, p.cols)
	if err := mpilib.Barrier(ctx, s.comm); err != nil {
		return outcome{}, err
	}
	before, begun := tally.Sent(s.comm, s.layout.places), time.Now()
	f, err := s.factor(ctx, a)
	if err != nil {
		return outcome{}, fmt.Errorf("factoring: %w", err)
	}
	o := outcome{seconds: time.Since(begun).Seconds(), traffic: tally.Sent(s.comm, s.layout.places).Since(before), sums: f.crew.sums, r: f.r}
	if !withQ {
		return o, nil
	}
	if o.q, err = s.formQ(ctx, f, p.cols); err != nil {
		return outcome{}, fmt.Errorf("forming Q: %w", err)
	}
	return o, nil
}

// factor is the timed part: domains, then the tree. a is overwritten.
func (s *solver) factor(ctx context.Context, a *qr.Matrix) (f factors, err error) {
	f.up = -1
	f.crew = &crew{ctx: ctx, domain: s.domain, processor: s.processor}
	if f.panel, err = qr.Factor(a, s.domain.Rank() == 0, f.crew); err != nil {
		return f, err
	}
	if s.domain.Rank() != 0 {
		return f, nil
	}
	r := f.panel.R()
	for _, step := range s.layout.steps {
		switch s.comm.Rank() {
		case step.to:
			if err := s.take(ctx, step.from, r, &f); err != nil {
				return f, err
			}
		case step.from:
			f.up = step.to
			if err := mpilib.Send(ctx, s.comm, qr.Pack(r), step.to, tagFactor); err != nil {
				return f, err
			}
		}
	}
	if f.up == -1 {
		f.r, f.signs = r, qr.Normalize(r)
	}
	return f, nil
}

// take receives a factor and combines it into r.
func (s *solver) take(ctx context.Context, from int, r *qr.Matrix, f *factors) error {
	packed := make([]float64, qr.Packed(r.Cols))
	if _, err := mpilib.Recv(ctx, s.comm, packed, from, tagFactor); err != nil {
		return err
	}
	return s.processor.Do(ctx, qr.PairFlops(r.Cols), func() {
		f.pairs = append(f.pairs, pair{from, qr.Combine(r, qr.Unpack(r.Cols, packed))})
	})
}

// formQ goes back down the tree and through the domains. It is there to prove R,
// so no slower processor is played here.
func (s *solver) formQ(ctx context.Context, f factors, cols int) (*qr.Matrix, error) {
	c := f.signs
	if f.up != -1 {
		c = qr.New(cols, cols)
		if _, err := mpilib.Recv(ctx, s.comm, c.Data, f.up, tagQ); err != nil {
			return nil, err
		}
	}
	f.crew.processor = pace.New(0)
	for i := len(f.pairs) - 1; i >= 0; i-- {
		lower := f.pairs[i].Apply(c)
		if err := mpilib.Send(ctx, s.comm, lower.Data, f.pairs[i].from, tagQ); err != nil {
			return nil, err
		}
	}
	return f.panel.Apply(c)
}

// crew is the domain as package qr sees it.
type crew struct {
	ctx       context.Context
	domain    *mpilib.Comm
	processor *pace.Processor
	sums      int // that took messages
}

func (c *crew) Sum(v []float64) error {
	if c.domain.Size() == 1 {
		return nil
	}
	c.sums++
	return mpilib.Allreduce(c.ctx, c.domain, v, v, mpilib.Sum)
}

func (c *crew) Compute(flops float64, f func()) error { return c.processor.Do(c.ctx, flops, f) }
