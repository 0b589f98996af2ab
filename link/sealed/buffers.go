package sealed

import "sync"

// Buffers come in two sizes: a small one has room for any one record, a large
// one for what is read or written at a time when there is much.
const (
	gather    = 16 // records in one write
	smallSize = 17 << 10
	largeSize = 257 << 10
)

// Both sizes hold what they are for.
const (
	_ = uint(smallSize - maxRecord - reserve)
	_ = uint(largeSize - gather*(maxContent+overhead) - reserve)
)

var (
	smallBuffers = sync.Pool{New: func() any { return new([smallSize]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([largeSize]byte) }}
)

// buffer is memory from a pool.
type buffer struct {
	small *[smallSize]byte
	large *[largeSize]byte
}

// borrow returns a buffer for n bytes in one of the two sizes, whichever is
// enough; a large one holds no more than largeSize.
func borrow(n int) buffer {
	if n <= smallSize {
		return buffer{small: smallBuffers.Get().(*[smallSize]byte)}
	}
	return buffer{large: largeBuffers.Get().(*[largeSize]byte)}
}

func (b buffer) bytes() []byte {
	switch {
	case b.large != nil:
		return b.large[:]
	case b.small != nil:
		return b.small[:]
	}
	return nil
}

// giveBack returns the memory, which must not be used any more.
func (b *buffer) giveBack() {
	switch {
	case b.large != nil:
		largeBuffers.Put(b.large)
	case b.small != nil:
		smallBuffers.Put(b.small)
	}
	*b = buffer{}
}
