package mg

import (
	"context"
	"fmt"
	"math"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// solver is one rank's part.
type solver struct {
	comm         *mpilib.Comm
	below, above int     // the neighbours' ranks
	levels       []level // coarsest first, 2, 4, 8, ... points wide
	v            grid    // the charges, on the finest level
	sums         sums
	messages     npb.Stopwatch
	requests     [4]*mpilib.Request
}

// level is one of the grids: the solution or a correction of it, and what is
// left of the right-hand side.
type level struct {
	u, r  grid
	whole bool // every rank has all planes
	first int  // of the rank's planes among all, wherever its own count
	// share is the rank's own planes of r, on the finest whole level, before
	// they are put together.
	share grid
}

const (
	tagUp = iota + 1
	tagDown
)

// newSolver makes the grids. Levels up to the given one are whole, up to one
// with a plane for each rank in any case; with one rank all are.
func newSolver(comm *mpilib.Comm, levels, whole int) *solver {
	rank, ranks := comm.Rank(), comm.Size()
	s := &solver{
		comm:   comm,
		below:  (rank + ranks - 1) % ranks,
		above:  (rank + 1) % ranks,
		levels: make([]level, levels),
		sums:   newSums(1 << levels),
	}
	for i := range s.levels {
		n := 2 << i
		own := n / ranks
		l := level{whole: ranks == 1 || n <= ranks || i+1 <= whole && i+1 < levels, first: rank * own}
		planes := own
		if l.whole {
			planes = n
		}
		l.u, l.r = newGrid(n, planes), newGrid(n, planes)
		if i > 0 && !l.whole && s.levels[i-1].whole {
			s.levels[i-1].share = newGrid(n/2, own/2)
		}
		s.levels[i] = l
	}
	finest := s.finest()
	s.v = newGrid(finest.u.n, finest.u.planes)
	return s
}

func (s *solver) finest() *level { return &s.levels[len(s.levels)-1] }

// solve does cycles from a solution of zero, and returns the norm of the
// residual.
func (s *solver) solve(ctx context.Context, cycles int) (norm float64, err error) {
	f := s.finest()
	clear(f.u.a)
	for c := range cycles + 1 {
		if c > 0 {
			if err := s.cycle(ctx); err != nil {
				return 0, fmt.Errorf("cycle %d: %w", c, err)
			}
		}
		s.sums.apply(f.r, s.v, f.u, laplacian)
		if err := s.exchange(ctx, f, f.r); err != nil {
			return 0, fmt.Errorf("cycle %d: %w", c, err)
		}
	}
	return s.norm(ctx, f.r)
}

// cycle improves the solution: what is left is handed down to the coarsest
// level, and the corrections come up from there.
func (s *solver) cycle(ctx context.Context) error {
	if err := ctx.Err(); err != nil { // one rank alone sends nothing that would see it
		return err
	}
	for i := len(s.levels) - 1; i > 0; i-- {
		if err := s.restrict(ctx, i); err != nil {
			return fmt.Errorf("down to %d points: %w", 1<<i, err)
		}
	}
	for i := range s.levels {
		if err := s.correct(ctx, i); err != nil {
			return fmt.Errorf("up to %d points: %w", 2<<i, err)
		}
	}
	return nil
}

// restrict sets the residual of level i-1 from that of level i.
func (s *solver) restrict(ctx context.Context, i int) error {
	fine, coarse := &s.levels[i], &s.levels[i-1]
	if fine.whole == coarse.whole {
		s.sums.restrict(coarse.r, fine.r)
		return s.exchange(ctx, coarse, coarse.r)
	}
	s.sums.restrict(coarse.share, fine.r)
	coarse.share.wrap()
	own, all := coarse.share.layers(0, coarse.share.planes), coarse.r.layers(0, coarse.r.planes)
	err := s.messages.Time(func() error { return mpilib.Allgather(ctx, s.comm, own, all) })
	coarse.r.wrapPlanes()
	return err
}

// correct sets the correction of level i from that of level i-1 and what is
// left on level i. On the finest level it adds to the solution.
func (s *solver) correct(ctx context.Context, i int) error {
	l := &s.levels[i]
	finest := l == s.finest()
	if !finest {
		clear(l.u.a)
	}
	if i > 0 {
		coarse := s.levels[i-1].u
		if s.levels[i-1].whole && !l.whole {
			coarse = coarse.part(s.levels[i-1].first, l.u.planes/2)
		}
		s.sums.prolong(l.u, coarse)
		left := l.r
		if finest {
			left = s.v
		}
		s.sums.apply(l.r, left, l.u, laplacian)
		if err := s.exchange(ctx, l, l.r); err != nil {
			return err
		}
	}
	s.sums.apply(l.u, l.u, l.r, smoother)
	return s.exchange(ctx, l, l.u)
}

// exchange fills g's border: around its planes from the planes themselves,
// below and above from the neighbours. Receives are up before anything is
// sent, so that no plane waits for its buffer.
func (s *solver) exchange(ctx context.Context, l *level, g grid) error {
	g.wrap()
	if l.whole {
		g.wrapPlanes()
		return nil
	}
	top := g.planes
	return s.messages.Time(func() error {
		s.requests[0] = mpilib.Irecv(s.comm, g.layers(-1, 0), s.below, tagUp)
		s.requests[1] = mpilib.Irecv(s.comm, g.layers(top, top+1), s.above, tagDown)
		s.requests[2] = mpilib.Isend(s.comm, g.layers(top-1, top), s.above, tagUp)
		s.requests[3] = mpilib.Isend(s.comm, g.layers(0, 1), s.below, tagDown)
		_, err := mpilib.Waitall(ctx, s.requests[:]...)
		return err
	})
}

// norm returns the root of the mean square.
func (s *solver) norm(ctx context.Context, g grid) (float64, error) {
	var sum [1]float64
	for k := range g.planes {
		for j := range g.n {
			for _, x := range g.row(k, j)[1 : g.n+1] {
				sum[0] += x * x
			}
		}
	}
	err := s.messages.Time(func() error { return mpilib.Allreduce(ctx, s.comm, sum[:], sum[:], mpilib.Sum) })
	if err != nil {
		return 0, fmt.Errorf("norm: %w", err)
	}
	n := float64(g.n)
	return math.Sqrt(sum[0] / (n * n * n)), nil
}
