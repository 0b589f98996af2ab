package resume

import (
	"slices"
	"sort"
)

// span is the bytes from start up to but excluding end.
type span struct{ start, end uint64 }

// spans are stored bytes: ordered, not empty, no two touching.
type spans []span

// overlapping returns the indices [i, j) of the spans that overlap or touch the
// range from start to end.
func (p spans) overlapping(start, end uint64) (i, j int) {
	i = sort.Search(len(p), func(i int) bool { return p[i].end >= start })
	for j = i; j < len(p) && p[j].start <= end; j++ {
	}
	return i, j
}

// missing narrows a range to what lies between its first and last missing byte; an empty range
// means that all is stored. separate reports whether it touches no span.
func (p spans) missing(start, end uint64) (a, b uint64, separate bool) {
	i, j := p.overlapping(start, end)
	if i == j {
		return start, end, true
	}
	if p[i].start <= start {
		start = min(max(start, p[i].end), end)
	}
	if last := p[j-1]; last.end >= end {
		end = max(min(end, last.start), start)
	}
	return start, end, false
}

// add adds a range, which may overlap others.
func (p *spans) add(start, end uint64) {
	i, j := p.overlapping(start, end)
	if i == j {
		*p = slices.Insert(*p, i, span{start, end})
		return
	}
	merged := span{min(start, (*p)[i].start), max(end, (*p)[j-1].end)}
	*p = slices.Replace(*p, i, j, merged)
}

// dropBelow removes the bytes below off.
func (p *spans) dropBelow(off uint64) {
	i := 0
	for i < len(*p) && (*p)[i].end <= off {
		i++
	}
	*p = slices.Delete(*p, 0, i)
	if len(*p) > 0 {
		(*p)[0].start = max((*p)[0].start, off)
	}
}

func (p spans) end() uint64 {
	if len(p) == 0 {
		return 0
	}
	return p[len(p)-1].end
}

func (p spans) bytes() (n uint64) {
	for _, s := range p {
		n += s.end - s.start
	}
	return n
}
