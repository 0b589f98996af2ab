package shm

import (
	"fmt"
	"testing"
)

var sizes = []int{1, 8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKiB", n>>10)
	default:
		return fmt.Sprintf("%dB", n)
	}
}

// BenchmarkLatency is of half a round trip of a message between two processes,
// copied in and copied out.
func BenchmarkLatency(b *testing.B) {
	for _, size := range sizes {
		b.Run(sizeName(size), func(b *testing.B) {
			p := start(b, "serve", 0)
			msg, buf := make([]byte, size), make([]byte, size)
			b.SetBytes(int64(size))
			b.ResetTimer()
			for range (b.N + 1) / 2 {
				if err := p.send(opEcho, msg); err != nil {
					b.Fatal(err)
				}
				if _, _, err := p.recv(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStream is of messages in one direction, as fast as they go.
func BenchmarkStream(b *testing.B) {
	for _, size := range sizes {
		b.Run(sizeName(size), func(b *testing.B) {
			p := start(b, "serve", 0)
			msg := make([]byte, size)
			b.SetBytes(int64(size))
			b.ResetTimer()
			for range b.N {
				if err := p.send(opSink, msg); err != nil {
					b.Fatal(err)
				}
			}
			p.send(opEcho, nil)
			p.recv(msg)
		})
	}
}
