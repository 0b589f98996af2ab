package mg

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/examples/npb/random"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// candidate is a point and the random number drawn for it.
type candidate struct {
	Number uint64
	Point  int64 // counted in rows, rows in planes
}

// placeCharges sets v: every point of the finest grid draws a random number;
// the ten largest mark the sources, the ten smallest the sinks.
func (s *solver) placeCharges(ctx context.Context) error {
	n, planes, first := s.v.n, s.v.planes, s.finest().first
	own := extremes(n*n*first, n*n*planes)
	all := make([]candidate, len(own)*s.comm.Size())
	if err := mpilib.Allgather(ctx, s.comm, own, all); err != nil {
		return fmt.Errorf("extreme numbers: %w", err)
	}
	slices.SortFunc(all, byNumber)
	clear(s.v.a)
	for i := range charges {
		s.set(all[i].Point, -1)
		s.set(all[len(all)-1-i].Point, 1)
	}
	return nil
}

// set sets a point of v, if it is ours.
func (s *solver) set(point int64, charge float64) {
	n := s.v.n
	i, j, k := int(point)%n, int(point)/n%n, int(point)/(n*n)-s.finest().first
	if k >= 0 && k < s.v.planes {
		s.v.row(k, j)[i+1] = charge
	}
}

func byNumber(a, b candidate) int { return cmp.Compare(a.Number, b.Number) }

// extremes returns the ten smallest and the ten largest numbers of those that
// points first to first+count-1 draw, in ascending order.
func extremes(first, count int) []candidate {
	g := random.New(seed)
	g.Skip(uint64(first))
	var low, high []candidate // the extreme ones so far, in ascending order
	for point := int64(first); point < int64(first+count); point++ {
		c := candidate{g.Next(), point}
		if len(low) < charges || c.Number < low[charges-1].Number {
			low = insert(low, c)
			low = low[:min(len(low), charges)]
		}
		if len(high) < charges || c.Number > high[0].Number {
			high = insert(high, c)
			high = high[max(0, len(high)-charges):]
		}
	}
	return append(low, high...)
}

func insert(sorted []candidate, c candidate) []candidate {
	at, _ := slices.BinarySearchFunc(sorted, c, byNumber)
	return slices.Insert(sorted, at, c)
}
