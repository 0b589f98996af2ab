// Package copypool keeps the memory of copied messages for the next ones.
package copypool

import (
	"math/bits"
	"slices"
)

// A Pool keeps copies that are no longer needed for the next ones: programs send messages of the same sizes again and
// again, and without it the collector would run after each few megabytes. The zero value is ready. Not safe for
// concurrent use.
type Pool struct {
	free  [maxPooledBits + 1][][]byte // by the bits of the length
	bytes int
}

const (
	maxPooledBits = 20      // larger copies are not kept,
	maxPooled     = 8 << 20 // nor more bytes than these
)

// Clone returns a copy of b, which the caller owns.
func (p *Pool) Clone(b []byte) []byte {
	class := bits.Len(uint(len(b)))
	if class > maxPooledBits || len(p.free[class]) == 0 {
		return slices.Clone(b)
	}
	last := len(p.free[class]) - 1
	old := p.free[class][last]
	p.free[class][last] = nil
	p.free[class] = p.free[class][:last]
	p.bytes -= cap(old)
	return append(old[:0], b...)
}

// Put gives the pool a copy to which nothing refers any more, and reports whether it keeps it.
func (p *Pool) Put(b []byte) bool {
	class := bits.Len(uint(len(b)))
	if len(b) == 0 || class > maxPooledBits || p.bytes+cap(b) > maxPooled {
		return false
	}
	p.free[class] = append(p.free[class], b)
	p.bytes += cap(b)
	return true
}
