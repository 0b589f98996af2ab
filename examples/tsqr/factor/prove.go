package factor

import (
	"context"
	"math"

	"github.com/isthmus-grid/isthmus/examples/tsqr/qr"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// proof is how far a factorization is from what defines it: Q R = A, Q'Q = I.
// An R with a positive diagonal that fulfils both is the only one.
type proof struct {
	Residual      float64 `json:"residual"`      // norm of A - QR over that of A
	Orthogonality float64 `json:"orthogonality"` // norm of Q'Q - I
	Triangular    bool    `json:"triangular"`    // R is, and its diagonal is positive
}

// good holds it against what rounding explains.
func (p proof) good(cols int) bool {
	return p.Triangular && p.Residual <= 1e-14*math.Sqrt(float64(cols)) && p.Orthogonality <= 1e-13
}

// prove has all ranks check their rows, and returns the same on each.
func prove(ctx context.Context, comm *mpilib.Comm, p problem, o outcome) (proof, error) {
	r := qr.New(p.cols, p.cols)
	if o.r != nil {
		r = o.r
	}
	if err := mpilib.Bcast(ctx, comm, r.Data, 0); err != nil {
		return proof{}, err
	}
	first, count := p.rowsOf(comm.Rank(), comm.Size())
	a := qr.Random(p.seed, first, count, p.cols)
	gram := qr.Gram(o.q)
	sums := append([]float64{qr.SumOfSquares(qr.Minus(a, qr.Times(o.q, r))), qr.SumOfSquares(a)}, gram.Data...)
	if err := mpilib.Allreduce(ctx, comm, sums, sums, mpilib.Sum); err != nil {
		return proof{}, err
	}
	copy(gram.Data, sums[2:])
	return proof{
		Residual:      math.Sqrt(sums[0] / sums[1]),
		Orthogonality: qr.Norm(qr.Minus(gram, qr.Identity(p.cols))),
		Triangular:    triangular(r),
	}, nil
}

func triangular(r *qr.Matrix) bool {
	for j := range r.Cols {
		for i := range r.Rows {
			if v := r.At(i, j); i > j && v != 0 || i == j && !(v > 0) {
				return false
			}
		}
	}
	return true
}
