package stream

import (
	"sync"

	"github.com/isthmus-grid/isthmus/wire"
)

// pageSize is the unit in which memory for a stream's bytes is allocated.
const pageSize = 64 << 10

type page [pageSize]byte

var spare = sync.Pool{New: func() any { return new(page) }}

// pages holds bytes of a stream by offset. A page exists from the first put into it until all of it
// is freed.
type pages struct {
	ring  []*page // page number n is at index n modulo the length; nil until it is needed
	first uint64  // number of the lowest page that may exist; all are less than the ring's length above it
	wider uint64  // the ring's length for a window that has grown; 0: ringLen
}

// ringLen suffices for Window.
const ringLen = (Window+wire.MaxLinkData)/pageSize + 2

// length returns the ring's length: enough for the window and for data that is acknowledged while
// it is still being written.
func (p *pages) length() uint64 { return max(p.wider, ringLen) }

// widen makes room for a window.
func (p *pages) widen(window uint64) {
	was := p.length()
	p.wider = max(p.wider, (window+wire.MaxLinkData)/pageSize+2)
	if p.ring == nil || p.wider == was {
		return
	}
	ring := make([]*page, p.length())
	for n := p.first; n < p.first+was; n++ {
		ring[n%p.length()] = p.ring[n%was]
	}
	p.ring = ring
}

// at returns the slot of the page that holds off.
func (p *pages) at(off uint64) **page {
	if p.ring == nil {
		p.ring = make([]*page, p.length())
	}
	return &p.ring[off/pageSize%p.length()]
}

// put stores a copy of b at off. Everything below the window must have been freed before, whether
// anything was stored there or not.
func (p *pages) put(off uint64, b []byte) {
	for len(b) > 0 {
		at := p.at(off)
		if *at == nil {
			*at = spare.Get().(*page)
		}
		n := copy((*at)[off%pageSize:], b)
		off, b = off+uint64(n), b[n:]
	}
}

// get returns bytes stored at off: as many as are contiguous, at most n.
func (p *pages) get(off uint64, n int) []byte {
	start := off % pageSize
	return (*p.at(off))[start:min(start+uint64(n), pageSize)]
}

// free releases the pages wholly below off.
func (p *pages) free(off uint64) {
	to := off / pageSize
	if p.ring != nil {
		for n := p.first; n < min(to, p.first+p.length()); n++ {
			p.drop(&p.ring[n%p.length()])
		}
	}
	p.first = max(p.first, to)
}

// room returns how many bytes fit after end.
func (p *pages) room(end uint64) int { return int((p.first+p.length())*pageSize - end) }

// clear releases everything; nothing from off on was put yet.
func (p *pages) clear(off uint64) {
	p.free(off)
	if p.ring != nil {
		p.drop(p.at(off))
	}
}

func (p *pages) drop(at **page) {
	if *at != nil {
		spare.Put(*at)
		*at = nil
	}
}
