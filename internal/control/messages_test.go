package control

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// Messages are found however the data is split.
func TestMessages(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var all []byte
		var want []int
		for range random.IntN(6) {
			n := random.IntN(9)
			all = append(binary.BigEndian.AppendUint32(append(all, 0), uint32(n)), make([]byte, n)...)
			want = append(want, 5+n)
		}
		part := random.IntN(12)
		all = append(all, []byte{0, 0, 0, 0, 200, 1, 1, 1, 1, 1, 1, 1}[:part]...)
		var m messages
		for left := all; len(left) > 0; {
			n := 1 + random.IntN(len(left))
			m.scan(left[:n])
			left = left[n:]
		}
		if !slices.Equal(m.whole, want) || m.cost != part {
			t.Fatalf("of % x: %v and %d, want %v and %d", all, m.whole, m.cost, want, part)
		}
	}
}
