package meet

import (
	"context"
	"fmt"
	"io"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// meet is what the processes of both jobs do together: every one greets its
// opposite on the other side, all become one communicator and add up their
// ranks, and part.
func meet(ctx context.Context, inter *mpilib.Comm, how string, stdout io.Writer) error {
	greetings, err := greet(ctx, inter)
	if err != nil {
		return err
	}
	all, err := inter.Merge(ctx, how != "accepted") // who accepts comes first
	if err != nil {
		return err
	}
	sum := []int64{int64(all.Rank())}
	if err := mpilib.Allreduce(ctx, all, sum, sum, mpilib.Sum[int64]); err != nil {
		return err
	}
	if inter.Rank() == 0 {
		fmt.Fprintf(stdout, "%s a job of %d; %d greeted me; the ranks of all %d add up to %d\n",
			how, inter.RemoteSize(), greetings, all.Size(), sum[0])
	}
	if err := all.Disconnect(ctx); err != nil {
		return err
	}
	return inter.Disconnect(ctx)
}

// greet sends a message to the opposite rank, counted around where the other side
// has fewer, and receives those that have this one as theirs.
func greet(ctx context.Context, inter *mpilib.Comm) (greetings int, err error) {
	const tag = 1
	mine, theirs := inter.Size(), inter.RemoteSize()
	sent := mpilib.Isend(inter, []int64{int64(inter.Rank())}, inter.Rank()%theirs, tag)
	from := make([]int64, 1)
	for r := inter.Rank(); r < theirs; r += mine {
		if _, err := mpilib.Recv(ctx, inter, from, r, tag); err != nil {
			return 0, err
		}
		if from[0] != int64(r) {
			return 0, fmt.Errorf("rank %d of the other job says that it is %d", r, from[0])
		}
		greetings++
	}
	_, err = sent.Wait(ctx)
	return greetings, err
}
