package mpilib

import (
	"context"
	"fmt"
	"testing"
	"unsafe"
)

// An ordinary request fits into a cache line, and a slab into a size class of the runtime.
func TestRequestFitsALine(t *testing.T) {
	if n := unsafe.Sizeof(Request{}); n > 64 {
		t.Errorf("a Request has %d bytes", n)
	}
	if n := unsafe.Sizeof(slab{}); n > 4096 {
		t.Errorf("a slab has %d bytes", n)
	}
}

// Transfers that are complete when they are started may share a Request, but only if their results
// are equal.
func TestCompletedRequestsTellTheirOwn(t *testing.T) {
	t.Setenv(EnvDebug, "") // the debug mode needs separate Requests
	t.Setenv(EnvTrace, "")
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		peer := 1 - c.Rank()
		for round := range 60 {
			var sends, recvs [8]*Request
			words, bytes := make([]int32, 2), make([]byte, 8)
			count := func(i int) int { return (round + i/2) % 3 }
			for i := range sends {
				sends[i] = Isend(c, words[:count(i)], peer, i/4)
			}
			if err := Barrier(ctx, c); err != nil {
				return err
			}
			for i := range recvs {
				if i%2 == 0 {
					recvs[i] = Irecv(c, words, peer, i/4)
				} else {
					recvs[i] = Irecv(c, bytes, peer, i/4)
				}
			}
			got, err := Waitall(ctx, append(recvs[:], sends[:]...)...)
			if err != nil {
				return err
			}
			if err := sends[0].Cancel(); err != nil { // has no effect: all transfers that may share the Request are complete
				return err
			}
			for i, st := range got {
				want := Status{Source: peer, Tag: i % 8 / 4, Count: count(i % 8), Bytes: 4 * count(i%8)}
				if i%2 == 1 || i >= 8 { // a receive of bytes, or a send, whose status counts bytes
					want.Count = want.Bytes
				}
				if i >= 8 {
					want.Source = c.Rank()
				}
				if st != want {
					return fmt.Errorf("round %d, transfer %d: %+v, want %+v", round, i, st, want)
				}
			}
			if n, st, err := Waitany(ctx, sends[:]...); n != 0 || st != got[8] || err != nil {
				return fmt.Errorf("round %d: Waitany: %d, %+v, %v", round, n, st, err)
			}
		}
		return nil
	})
}
