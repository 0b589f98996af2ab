package link

import "sync"

// An outbox holds the bytes of the sending stream from the first that the peer
// has not acknowledged to the last. Small writes are copied into chunks, large
// ones are lent by their owner until they are acknowledged or taken back.
type outbox struct {
	pieces []piece // the first head are empty
	head   int
	end    uint64 // offset behind the last byte
}

// A piece is a run of bytes. It is a chunk's, which may still grow, or lent.
type piece struct {
	off   uint64
	data  []byte
	chunk *chunk // nil: lent
}

func (p *piece) end() uint64 { return p.off + uint64(len(p.data)) }

// A chunk is memory for copied bytes.
type chunk [chunkSize]byte

const (
	chunkSize = 64 << 10
	// lendFrom is the size from which a write is lent and not copied.
	lendFrom = 16 << 10
)

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// add appends a copy of b.
func (o *outbox) add(b []byte) {
	for len(b) > 0 {
		p := o.tail()
		if p == nil || p.chunk == nil || len(p.data) == chunkSize {
			c := chunks.Get().(*chunk)
			o.push(piece{off: o.end, data: c[:0], chunk: c})
			p = o.tail()
		}
		n := copy(p.chunk[len(p.data):], b)
		p.data = p.chunk[:len(p.data)+n]
		o.end += uint64(n)
		b = b[n:]
	}
}

// lend appends b itself.
func (o *outbox) lend(b []byte) {
	o.push(piece{off: o.end, data: b})
	o.end += uint64(len(b))
}

func (o *outbox) push(p piece) {
	if o.head > 64 && o.head > len(o.pieces)/2 {
		n := copy(o.pieces, o.pieces[o.head:])
		clear(o.pieces[n:])
		o.pieces, o.head = o.pieces[:n], 0
	}
	o.pieces = append(o.pieces, p)
}

func (o *outbox) tail() *piece {
	if len(o.pieces) == o.head {
		return nil
	}
	return &o.pieces[len(o.pieces)-1]
}

// gather appends to iov the memory of n bytes from off on.
func (o *outbox) gather(iov [][]byte, off uint64, n int) [][]byte {
	for i := o.find(off); n > 0; i++ {
		p := &o.pieces[i]
		part := p.data[off-p.off:]
		if len(part) > n {
			part = part[:n]
		}
		if len(part) > 0 {
			iov = append(iov, part)
		}
		off += uint64(len(part))
		n -= len(part)
	}
	return iov
}

// find returns the piece that holds off.
func (o *outbox) find(off uint64) int {
	lo, hi := o.head, len(o.pieces)-1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if o.pieces[mid].off <= off {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// free lets go of everything below off.
func (o *outbox) free(off uint64) {
	for o.head < len(o.pieces) {
		p := &o.pieces[o.head]
		if p.end() > off {
			return
		}
		if p.chunk != nil {
			chunks.Put(p.chunk)
		}
		*p = piece{}
		o.head++
	}
	o.pieces, o.head = o.pieces[:0], 0
}

// own copies what is still held of lent bytes between from and to, so that
// their owner can have them back.
func (o *outbox) own(from, to uint64) {
	var kept []piece
	for i := o.head; i < len(o.pieces); i++ {
		p := o.pieces[i]
		if p.chunk != nil || p.end() <= from || p.off >= to {
			kept = append(kept, p)
			continue
		}
		for off, b := p.off, p.data; len(b) > 0; {
			c := chunks.Get().(*chunk)
			n := copy(c[:], b)
			kept = append(kept, piece{off: off, data: c[:n], chunk: c})
			off, b = off+uint64(n), b[n:]
		}
	}
	o.pieces, o.head = append(o.pieces[:0], kept...), 0
}
