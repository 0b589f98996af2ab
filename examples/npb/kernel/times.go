package kernel

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Slowest returns the greatest of all ranks' times, each for itself. Where ranks have replicas, whose times differ, one of each
// rank's counts.
func Slowest(ctx context.Context, comm *mpilib.Comm, times ...float64) ([]float64, error) {
	same, err := comm.World().Decide(ctx, func() []byte {
		var b []byte
		for _, t := range times {
			b = binary.BigEndian.AppendUint64(b, math.Float64bits(t))
		}
		return b
	})
	if err != nil {
		return nil, err
	}
	mine, slowest := make([]float64, len(times)), make([]float64, len(times))
	for i := range mine {
		mine[i] = math.Float64frombits(binary.BigEndian.Uint64(same[8*i:]))
	}
	return slowest, mpilib.Allreduce(ctx, comm, mine, slowest, mpilib.Max)
}
