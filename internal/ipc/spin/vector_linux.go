package spin

import (
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxVec is how many buffers go into one system call.
const maxVec = 64

// A vector is the buffers of one system call in the kernel's form. It must not move during the
// call: hdr points to iov.
type vector struct {
	hdr   unix.Msghdr
	iov   [maxVec]unix.Iovec
	used  int // of iov
	first int // index of the first unfinished buffer
	total int // bytes of the unfinished buffers
}

// fill takes as many of bufs as fit, except the empty ones, and returns the rest. With a limit, in
// bytes, the last that it takes may be cut.
func (v *vector) fill(bufs [][]byte, limit int) [][]byte {
	v.clear()
	for len(bufs) > 0 && v.used < maxVec && v.total < limit {
		if b := bufs[0]; len(b) > 0 {
			v.add(b[:min(len(b), limit-v.total)])
		}
		bufs = bufs[1:]
	}
	v.point()
	return bufs
}

const noLimit = math.MaxInt

func (v *vector) add(b []byte) {
	v.iov[v.used].Base = &b[0]
	v.iov[v.used].SetLen(len(b))
	v.used++
	v.total += len(b)
}

// point sets hdr to the unfinished buffers.
func (v *vector) point() {
	v.hdr.Iov, v.hdr.Iovlen = nil, 0
	if v.first < v.used {
		v.hdr.Iov = &v.iov[v.first]
		v.hdr.SetIovlen(v.used - v.first)
	}
}

// len returns the number of unfinished bytes.
func (v *vector) len() int { return v.total }

// consume removes the first n bytes.
func (v *vector) consume(n int) {
	v.total -= n
	for v.first < v.used {
		e := &v.iov[v.first]
		if uint64(n) < uint64(e.Len) {
			e.Base = advance(e.Base, n)
			e.SetLen(int(e.Len) - n)
			break
		}
		n -= int(e.Len)
		v.first++
	}
	v.point()
}

// clear drops the buffers, so that the vector does not keep them in memory.
func (v *vector) clear() {
	clear(v.iov[:v.used])
	v.used, v.first, v.total = 0, 0, 0
	v.point()
}

func advance(p *byte, n int) *byte { return (*byte)(unsafe.Add(unsafe.Pointer(p), n)) }
