package mpilib

import (
	"context"
	"fmt"
	"testing"
)

// BenchmarkPingPong measures a round trip over Unix sockets between two ranks
// of one process.
func BenchmarkPingPong(b *testing.B) {
	for _, n := range []int{1, 1 << 10, 1 << 16, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(2 * int64(n))
			TestWorld(b, 2, func(ctx context.Context, c *Comm) error {
				buf := make([]byte, n)
				if err := Barrier(ctx, c); err != nil {
					return err
				}
				for range b.N {
					if c.Rank() == 0 {
						if err := Send(ctx, c, buf, 1, 0); err != nil {
							return err
						}
					}
					if _, err := Recv(ctx, c, buf, 1-c.Rank(), 0); err != nil {
						return err
					}
					if c.Rank() == 1 {
						if err := Send(ctx, c, buf, 0, 0); err != nil {
							return err
						}
					}
				}
				return nil
			})
		})
	}
}

// BenchmarkStream measures small messages in one direction, 64 outstanding.
func BenchmarkStream(b *testing.B) {
	b.ReportAllocs()
	TestWorld(b, 2, func(ctx context.Context, c *Comm) error {
		buf := make([]byte, 16)
		if err := Barrier(ctx, c); err != nil {
			return err
		}
		for range b.N {
			if c.Rank() == 0 {
				if err := Send(ctx, c, buf, 1, 0); err != nil {
					return err
				}
			} else if _, err := Recv(ctx, c, buf, 0, 0); err != nil {
				return err
			}
		}
		return nil
	})
}
