package sealed

import "sync"

// The sizes of buffers: for any one record; for what is written at once; for
// what is read at once when there is much.
const (
	gather    = 4 // records in one write: more leave the caches before they are sent
	smallSize = 17 << 10
	writeSize = 65 << 10
	readSize  = 256 << 10
)

// They hold what they are for.
const (
	_ = uint(smallSize - maxRecord)
	_ = uint(smallSize - reserve - (maxContent + overhead))
	_ = uint(writeSize - reserve - gather*(maxContent+overhead))
)

var (
	smallBuffers = bufferPool(smallSize)
	writeBuffers = bufferPool(writeSize)
	readBuffers  = bufferPool(readSize)
)

func bufferPool(size int) *sync.Pool {
	return &sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

// buffer is memory from a pool, or none.
type buffer struct {
	mem  *[]byte
	pool *sync.Pool
}

func borrow(from *sync.Pool) buffer { return buffer{from.Get().(*[]byte), from} }

func (b buffer) bytes() []byte {
	if b.mem == nil {
		return nil
	}
	return *b.mem
}

// giveBack returns the memory, which must not be used any more.
func (b *buffer) giveBack() {
	if b.mem != nil {
		b.pool.Put(b.mem)
	}
	*b = buffer{}
}
