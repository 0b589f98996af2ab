package engine

import (
	"fmt"
	"runtime"
	"testing"
)

// What a small message costs both sides in shared memory, beside the time until the other processor
// sees it: one goroutine sends and receives in turn. The receive takes it straight from the ring, or was
// posted before.
func BenchmarkSmallMessage(b *testing.B) {
	for _, size := range []int{8, 1 << 10} {
		for _, posted := range []bool{false, true} {
			b.Run(fmt.Sprintf("size=%d/posted=%v", size, posted), func(b *testing.B) {
				es, _ := together(b)
				in, out := make([]byte, size), make([]byte, size)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					exchange(b, es[i%2], es[1-i%2], out, in, posted)
				}
			})
		}
	}
}

// exchange sends out from one engine to another, which receives it into in.
func exchange(b *testing.B, from, to *Engine, out, in []byte, posted bool) {
	var r Handle
	if posted {
		to.StartRecv(&r, everyone{}, 0, from.Rank(), 5, in)
	}
	if !from.SendNow(everyone{}, 0, to.Rank(), 5, out, Standard) {
		b.Fatal("a small message is not sent at once")
	}
	if !posted {
		if _, ok := to.RecvNow(everyone{}, 0, from.Rank(), 5, in); ok {
			return
		}
		to.StartRecv(&r, everyone{}, 0, from.Rank(), 5, in) // another goroutine served the ring
	}
	for !r.Done() {
		runtime.Gosched()
	}
	if _, err := r.Result(); err != nil {
		b.Fatal(err)
	}
}
