package checkpoint

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// A State is what a task saved after an iteration.
type State struct {
	Task      int
	Iteration uint64
	Data      []byte
}

// identity is what a state is known by.
type identity struct {
	task      int
	iteration uint64
	length    uint64
	sum       uint64 // the hash over all of these and the data
}

// identify returns the identity of a state.
func identify(s State) identity {
	h := newHash(s.Task, s.Iteration, uint64(len(s.Data)))
	h.Write(s.Data)
	return identity{s.Task, s.Iteration, uint64(len(s.Data)), h.Sum64()}
}

// newHash returns a hash to which the data is still to be written. The hash is XXH3, of 64 bits, of the task, the iteration and the
// length, each 8 bytes, the lowest first, and the data.
func newHash(task int, iteration, length uint64) *xxh3.Hasher {
	b := binary.LittleEndian.AppendUint64(nil, uint64(task))
	b = binary.LittleEndian.AppendUint64(b, iteration)
	b = binary.LittleEndian.AppendUint64(b, length)
	h := xxh3.New()
	h.Write(b)
	return h
}
