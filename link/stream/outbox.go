package stream

import "sort"

// An outbox holds the bytes of the sending stream that the peer has not acknowledged. Small writes
// are copied; large ones are sent from the caller's memory, which the caller must not change until
// they are acknowledged or reclaimed.
type outbox struct {
	pages    pages
	zeroCopy []zeroCopySpan // by offset
	end      uint64         // offset after the last byte
}

// A zeroCopySpan is the caller's memory, from which bytes are sent.
type zeroCopySpan struct {
	off  uint64
	data []byte
}

func (l *zeroCopySpan) end() uint64 { return l.off + uint64(len(l.data)) }

// minZeroCopy is the size in bytes from which written data is sent without a copy: a system call
// takes longer than copying less.
const minZeroCopy = 16 << 10

// add appends a copy of b.
func (o *outbox) add(b []byte) {
	o.pages.put(o.end, b)
	o.end += uint64(len(b))
}

// addUncopied appends b itself.
func (o *outbox) addUncopied(b []byte) {
	o.zeroCopy = append(o.zeroCopy, zeroCopySpan{o.end, b})
	o.end += uint64(len(b))
}

// gather appends to iov the memory of n bytes starting at off.
func (o *outbox) gather(iov [][]byte, off uint64, n int) [][]byte {
	next := o.zeroCopyFrom(off)
	for n > 0 {
		var part []byte
		switch {
		case next == len(o.zeroCopy):
			part = o.pages.get(off, n)
		case off < o.zeroCopy[next].off:
			part = o.pages.get(off, min(n, int(o.zeroCopy[next].off-off)))
		default:
			l := &o.zeroCopy[next]
			part = l.data[off-l.off:]
			part = part[:min(n, len(part))]
			next++
		}
		iov = append(iov, part)
		off += uint64(len(part))
		n -= len(part)
	}
	return iov
}

// zeroCopyFrom returns the index of the first span that ends after off.
func (o *outbox) zeroCopyFrom(off uint64) int {
	if len(o.zeroCopy) == 0 || o.zeroCopy[0].end() > off {
		return 0
	}
	return sort.Search(len(o.zeroCopy), func(i int) bool { return o.zeroCopy[i].end() > off })
}

// free releases everything below off.
func (o *outbox) free(off uint64) {
	if len(o.zeroCopy) > 0 {
		o.cut(0, o.zeroCopyFrom(off))
	}
	o.pages.free(off)
}

// copyUnacked copies what is still held up to to of zero-copy spans that end above from, so that the caller may change it.
// Bytes below acked are not needed.
func (o *outbox) copyUnacked(from, to, acked uint64) {
	first := o.zeroCopyFrom(from)
	i := first
	for ; i < len(o.zeroCopy) && o.zeroCopy[i].off < to; i++ {
		l := o.zeroCopy[i]
		if passed := int64(acked - l.off); acked > l.off { // all of it may be acknowledged and not yet freed
			l.data = l.data[min(passed, int64(len(l.data))):]
			l.off = acked
		}
		if l.end() > to && l.off < to {
			n := to - l.off
			o.pages.put(l.off, l.data[:n])
			o.zeroCopy[i] = zeroCopySpan{to, l.data[n:]}
			break
		}
		o.pages.put(l.off, l.data)
	}
	o.cut(first, i)
}

// cut removes the spans from i up to but excluding j.
func (o *outbox) cut(i, j int) {
	if i == j {
		return
	}
	kept := append(o.zeroCopy[:i], o.zeroCopy[j:]...)
	clear(o.zeroCopy[len(kept):])
	o.zeroCopy = kept
}

// clear releases all memory. No carrier may be writing it.
func (o *outbox) clear() {
	o.cut(0, len(o.zeroCopy))
	o.pages.clear(o.end)
}
