package stream

import (
	"math/rand/v2"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// TestPages: at any distance between what is freed and what is put, every stored byte is there, and
// no free page is kept.
func TestPages(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	rounds := 1
	if testload.Full() {
		rounds = 8
	}
	for range rounds {
		var p pages
		kept := map[uint64]byte{} // some of the bytes
		var low, high uint64
		for range 1000 {
			switch rng.IntN(3) {
			case 0: // bytes that are stored elsewhere
				high = min(high+rng.Uint64N(1<<20), low+Window)
			case 1:
				n := min(rng.Uint64N(100<<10), low+Window-high)
				b := make([]byte, n)
				for i := 0; i < len(b); i += 1000 {
					b[i] = byte(rng.Uint32())
					kept[high+uint64(i)] = b[i]
				}
				p.put(high, b)
				high += n
			case 2:
				low += rng.Uint64N(high - low + 1)
				p.free(low)
				for off := range kept {
					if off < low {
						delete(kept, off)
					}
				}
			}
			for off, want := range kept {
				if got := p.get(off, 1); len(got) != 1 || got[0] != want {
					t.Fatalf("byte %d: got %v, want %d", off, got, want)
				}
			}
			n := 0
			for _, at := range p.ring {
				if at != nil {
					n++
				}
			}
			if most := int(high/pageSize-low/pageSize) + 1; n > most {
				t.Fatalf("%d pages for bytes %d to %d", n, low, high)
			}
		}
	}
}
