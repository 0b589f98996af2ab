package sealed

import "sync"

// Buffers come in two sizes: for any one record, and for bulk reads and writes. Fewer records at a
// time would wake the other end more often; more would leave the caches before they are sent.
const (
	gather    = 16 // records in one write
	smallSize = 17 << 10
	largeSize = 257 << 10
)

// The buffers are large enough for their purpose.
const (
	_ = uint(smallSize - maxRecord)
	_ = uint(smallSize - reserve - (maxContent + overhead))
	_ = uint(largeSize - reserve - gather*(maxContent+overhead))
)

var (
	smallBuffers = bufferPool(smallSize)
	largeBuffers = bufferPool(largeSize)
)

func bufferPool(size int) *sync.Pool {
	return &sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

// buffer is memory from a pool, or none.
type buffer struct {
	mem  *[]byte
	pool *sync.Pool
}

func getBuffer(from *sync.Pool) buffer { return buffer{from.Get().(*[]byte), from} }

func (b buffer) bytes() []byte {
	if b.mem == nil {
		return nil
	}
	return *b.mem
}

// giveBack returns the memory to the pool; it must not be used any more.
func (b *buffer) giveBack() {
	if b.mem != nil {
		b.pool.Put(b.mem)
	}
	*b = buffer{}
}
