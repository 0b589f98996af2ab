package wan

import "time"

// A packet is one that the kernel holds until it is due.
type packet struct {
	due  time.Duration
	id   uint32 // the kernel's number for it, ascending within a queue
	path *path
	copy []byte // the whole IP packet if it is to be sent twice, else nil
}

// before orders packets by due time, then by arrival.
func (p *packet) before(q *packet) bool {
	if p.due != q.due {
		return p.due < q.due
	}
	return int32(p.id-q.id) < 0
}

// A dueHeap is a binary heap of packets, the next due first. Packets mostly arrive in order of
// their due times, so push seldom moves anything.
type dueHeap []packet

func (h *dueHeap) push(p packet) {
	*h = append(*h, p)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].before(&s[up]) {
			return
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

// pop removes and returns the next due packet of a heap that is not empty.
func (h *dueHeap) pop() packet {
	s := *h
	top := s[0]
	n := len(s) - 1
	s[0], s[n] = s[n], packet{}
	s = s[:n]
	*h = s
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < n; c++ {
			if s[c].before(&s[least]) {
				least = c
			}
		}
		if least == i {
			return top
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}

// windowMax is the maximum number of ids that a window spans.
const windowMax = 1 << 22

// A window remembers which ids of a queue still await a verdict, in order of arrival, so that a
// batch verdict, which answers every id up to the one it names, is used only when all of these are
// settled.
type window struct {
	base uint32 // id of ring[head]
	n    int    // ids spanned
	head int
	ring []bool // settled? length is a power of two
}

// add appends id as waiting. Ids skipped since the last one (packets the kernel dropped before
// reporting them) count as settled; add returns how many. It returns false, and changes nothing, if
// id is not above the last one or so far above that the window would span more than windowMax.
func (w *window) add(id uint32) (skipped int, ok bool) {
	if w.ring == nil {
		w.ring = make([]bool, 1024)
		w.base = id
	}
	at := int(int32(id - w.base))
	if at < w.n || at >= windowMax {
		return 0, false
	}
	skipped = at - w.n
	for w.n < at {
		w.append(true)
	}
	w.append(false)
	return skipped, true
}

func (w *window) append(settled bool) {
	if w.n == len(w.ring) {
		bigger := make([]bool, 2*len(w.ring))
		for i := range w.n {
			bigger[i] = w.ring[(w.head+i)&(len(w.ring)-1)]
		}
		w.ring, w.head = bigger, 0
	}
	w.ring[(w.head+w.n)&(len(w.ring)-1)] = settled
	w.n++
}

// settle marks id as answered. It ignores an id outside the window.
func (w *window) settle(id uint32) {
	if at := int(int32(id - w.base)); at >= 0 && at < w.n {
		w.ring[(w.head+at)&(len(w.ring)-1)] = true
	}
}

// advance drops the settled ids at the front. All ids up to last, and no waiting one, are then
// below the window; ok is false if there were none.
func (w *window) advance() (last uint32, ok bool) {
	for w.n > 0 && w.ring[w.head] {
		w.head = (w.head + 1) & (len(w.ring) - 1)
		w.base++
		w.n--
		ok = true
	}
	return w.base - 1, ok
}
