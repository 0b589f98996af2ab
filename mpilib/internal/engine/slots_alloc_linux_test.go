//go:build !race

package engine

import "testing"

// A Put and a Get allocate nothing, over the link and through shared memory, small or in many pieces.
func TestSlotsAllocateNothing(t *testing.T) {
	for name, pair := range map[string]func() [2]*Engine{
		"link":          func() [2]*Engine { es, _ := apart(t, plain); return es },
		"shared memory": func() [2]*Engine { es, _ := together(t); return es },
	} {
		for _, size := range []int{8, 200 << 10} {
			p, g := slotOf(t, pair(), size)
			b, number := make([]byte, size), uint64(0)
			each := testing.AllocsPerRun(200, func() {
				number++
				if err := p.Put(number, b); err != nil {
					t.Fatal(err)
				}
				for got := uint64(0); got < number; got, _ = g.Get(b) {
					if err := g.Await(t.Context(), got); err != nil {
						t.Fatal(err)
					}
				}
			})
			if each > 0 {
				t.Errorf("%s, %d bytes: %.1f allocations for each value", name, size, each)
			}
		}
	}
}
