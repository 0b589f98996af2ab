package tally

import (
	"context"
	"fmt"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Ranks 0 and 1 are of one site, 2 of another; each sends to the next.
func TestTraffic(t *testing.T) {
	mpilib.TestWorld(t, 3, func(ctx context.Context, comm *mpilib.Comm) error {
		places, err := comm.Places(ctx)
		if err != nil {
			return err
		}
		before := Sent(comm, places)
		next, previous := (comm.Rank()+1)%3, (comm.Rank()+2)%3
		if _, err := mpilib.Sendrecv(ctx, comm, make([]int64, 5), next, 1, make([]int64, 5), previous, 1); err != nil {
			return err
		}
		own := Sent(comm, places).Since(before)
		want := Traffic{Messages: 1, Bytes: 40}
		if comm.Rank() != 0 {
			want.WANMessages, want.WANBytes = 1, 40
		}
		all, err := own.Sum(ctx, comm)
		if own != want || all != (Traffic{3, 120, 2, 80}) {
			return fmt.Errorf("%+v of %+v, %v", own, all, err)
		}
		return err
	}, mpilib.WithPlaces(func(r int) (string, string) { return []string{"here", "here", "there"}[r], "n" }))
}
