package mpilib

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

// trafficOf runs a program on ranks with replicas, and returns what each process had sent at the end of it.
func trafficOf(t *testing.T, ranks, replicas int, table replica.Table, f func(context.Context, *Comm) error) []ReplicaTraffic {
	t.Helper()
	all := make([]ReplicaTraffic, ranks*replicas)
	var worlds sync.Map
	TestWorld(t, ranks, func(ctx context.Context, c *Comm) error {
		worlds.Store(c.World().config.place.Process(), c.World())
		return f(ctx, c)
	}, withReplicas(replicas, table))
	worlds.Range(func(process, w any) bool {
		all[process.(int)] = w.(*World).ReplicaTraffic()
		return true
	})
	return all
}

// ring is a program that sends messages of 1 KiB round all ranks.
func ring(ctx context.Context, c *Comm) error {
	n, me := c.Size(), c.Rank()
	out, in := make([]byte, 1<<10), make([]byte, 1<<10)
	for range 1000 {
		if _, err := Sendrecv(ctx, c, out, (me+1)%n, 1, in, (me+n-1)%n, 1); err != nil {
			return err
		}
	}
	return nil
}

// sorts is a program of the calls that the NAS kernel IS makes for each iteration.
func sorts(ctx context.Context, c *Comm) error {
	n := c.Size()
	keys, sorted, sums := make([]int64, n*512), make([]int64, n*512), make([]int64, 128)
	for range 50 {
		if err := Allreduce(ctx, c, make([]int64, 128), sums, Sum[int64]); err != nil {
			return err
		}
		if err := Alltoall(ctx, c, make([]int64, n), make([]int64, n)); err != nil {
			return err
		}
		if err := Alltoall(ctx, c, keys, sorted); err != nil {
			return err
		}
	}
	return nil
}

// Each message of the program goes r times, acknowledgements are few, and with the table parallel little
// goes between sets of replicas, all to the end of the job.
func TestReplicaTraffic(t *testing.T) {
	const ranks = 4
	for name, program := range map[string]func(context.Context, *Comm) error{"ring": ring, "sorts": sorts} {
		for _, table := range tables {
			for _, replicas := range either([]int{2}, []int{2, 3}) {
				t.Run(fmt.Sprintf("%s/%v/%d replicas", name, table, replicas), func(t *testing.T) {
					var total ReplicaTraffic
					for process, got := range trafficOf(t, ranks, replicas, table, program) {
						want := got.Sends
						if table == replica.Primary {
							want = 0
							if process < ranks {
								want = uint64(replicas) * got.Sends
							}
						}
						if got.Data != want || got.Sends == 0 {
							t.Errorf("process %d: %d data messages for %d sends, want %d", process, got.Data, got.Sends, want)
						}
						total.Data += got.Data
						total.DataBytes += got.DataBytes
						total.Acks += got.Acks
						total.AckBytes += got.AckBytes
						total.Controls += got.Controls
						total.Across += got.Across
						total.AcrossBytes += got.AcrossBytes
					}
					t.Logf("%+v: acks %.3f, across %.4f", total, float64(total.Acks)/float64(total.Data), float64(total.AcrossBytes)/float64(total.DataBytes))
					if 20*total.Acks > total.Data {
						t.Errorf("%d acknowledgements of %d messages", total.Acks, total.Data)
					}
					// Each process asks each process of other ranks once at the end, and tells its own rank's that it is done.
					if processes := uint64(ranks * replicas); total.Controls > processes*(processes-1) {
						t.Errorf("%d other messages between %d processes", total.Controls, processes)
					}
					if table == replica.Parallel && 50*total.AcrossBytes > total.DataBytes {
						t.Errorf("%d bytes between sets of replicas, of %d bytes of data", total.AcrossBytes, total.DataBytes)
					}
				})
			}
		}
	}
}
