package stream

import (
	"sync"

	"github.com/isthmus-grid/isthmus/wire"
)

// pageSize is the unit in which memory for a stream's bytes is had.
const pageSize = 64 << 10

type page [pageSize]byte

var spare = sync.Pool{New: func() any { return new(page) }}

// pages are bytes of a stream, kept under their offsets. A page is there once a
// byte of it was put, until all of it is free.
type pages struct {
	ring  []*page // the page with number n is at n modulo the length; nil until it is needed
	first uint64  // number of the lowest page that may be there; none is ring's length above it
	wider uint64  // the ring's length for a window that has grown; 0: ringLen
}

// ringLen is enough for Window.
const ringLen = (Window+wire.MaxLinkData)/pageSize + 2

// length is that of the ring: enough for the window and what may be acknowledged while it is
// still being written.
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

// at returns the place of the page that holds off.
func (p *pages) at(off uint64) **page {
	if p.ring == nil {
		p.ring = make([]*page, p.length())
	}
	return &p.ring[off/pageSize%p.length()]
}

// put keeps a copy of b at off. What is below the window must be freed before,
// be anything kept there or not.
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

// get returns bytes kept at off: as many as lie together, at most n.
func (p *pages) get(off uint64, n int) []byte {
	start := off % pageSize
	return (*p.at(off))[start:min(start+uint64(n), pageSize)]
}

// free lets go of the pages wholly below off.
func (p *pages) free(off uint64) {
	to := off / pageSize
	if p.ring != nil {
		for n := p.first; n < min(to, p.first+p.length()); n++ {
			p.drop(&p.ring[n%p.length()])
		}
	}
	p.first = max(p.first, to)
}

// room is how many bytes fit behind end.
func (p *pages) room(end uint64) int { return int((p.first+p.length())*pageSize - end) }

// clear lets go of everything, where nothing from off on was put yet.
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
