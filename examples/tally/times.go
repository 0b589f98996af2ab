package tally

import (
	"context"
	"encoding/binary"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Slowest returns the greatest of all ranks' times, each for itself. Where ranks have replicas, whose times differ, one of each
// rank's counts.
func Slowest(ctx context.Context, comm *mpilib.Comm, times ...float64) ([]float64, error) {
	mine, err := Decided(ctx, comm, times)
	if err != nil {
		return nil, err
	}
	slowest := make([]float64, len(mine))
	return slowest, mpilib.Allreduce(ctx, comm, mine, slowest, mpilib.Max)
}

// Decided returns the numbers of one of a rank's replicas, the same in all of them, which call it; they may be times, or
// others that differ.
func Decided[T ~int64 | ~uint64 | ~float64](ctx context.Context, comm *mpilib.Comm, numbers []T) ([]T, error) {
	same, err := comm.World().Decide(ctx, func() []byte {
		b, _ := binary.Append(nil, binary.BigEndian, numbers) // fails only for types without a size
		return b
	})
	if err != nil {
		return nil, err
	}
	mine := make([]T, len(numbers))
	_, err = binary.Decode(same, binary.BigEndian, mine)
	return mine, err
}
