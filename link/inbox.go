package link

// An inbox holds received bytes that no Read has taken: those that are next in
// order (ready), and those that wait for earlier ones (early).
type inbox struct {
	ready [][]byte // in order; the first may be begun
	size  int      // bytes in ready
	early map[uint64][]byte

	closed bool // nobody will read: what is next in order is dropped
}

// deliver appends a copy of bytes that are next in order.
func (b *inbox) deliver(data []byte) {
	if b.closed {
		return
	}
	b.ready = append(b.ready, append([]byte(nil), data...))
	b.size += len(data)
}

// keep holds a copy of bytes that came early.
func (b *inbox) keep(off uint64, data []byte) {
	if b.early == nil {
		b.early = map[uint64][]byte{}
	}
	b.early[off] = append([]byte(nil), data...)
}

// release moves n early bytes at off, which may have been kept in several
// pieces, to those that are ready. Parts that were delivered otherwise
// meanwhile are dropped.
func (b *inbox) release(off uint64, n int) {
	for end := off + uint64(n); off < end; {
		data, ok := b.early[off]
		if !ok {
			off = b.covering(off)
			continue
		}
		delete(b.early, off)
		off += uint64(len(data))
		if !b.closed {
			b.ready = append(b.ready, data)
			b.size += len(data)
		}
	}
}

// covering cuts the kept piece in which off lies so that one begins there, and
// returns off.
func (b *inbox) covering(off uint64) uint64 {
	for start, data := range b.early {
		if start < off && off < start+uint64(len(data)) {
			delete(b.early, start)
			b.early[off] = data[off-start:]
			return off
		}
	}
	panic("link: bytes that were stored are gone")
}

// take moves ready bytes to p.
func (b *inbox) take(p []byte) (n int) {
	for n < len(p) && len(b.ready) > 0 {
		k := copy(p[n:], b.ready[0])
		n += k
		if b.ready[0] = b.ready[0][k:]; len(b.ready[0]) == 0 {
			b.ready[0] = nil
			b.ready = b.ready[1:]
		}
	}
	b.size -= n
	return n
}

// prune forgets early bytes below next: they were delivered otherwise.
func (b *inbox) prune(next uint64) {
	for start, data := range b.early {
		switch end := start + uint64(len(data)); {
		case end <= next:
			delete(b.early, start)
		case start < next:
			delete(b.early, start)
			b.early[next] = data[next-start:]
		}
	}
}
