package schedule

import (
	"cmp"
	"slices"
)

// uses records the last steps that used the bytes of a space, on which later steps may depend. The
// bytes are cut into spans that every step so far used as a whole or not at all.
type uses struct {
	spans []span // by their start; the last one has no end
	reads []read
}

// span is bytes from start to the start of the next one.
type span struct {
	start  int
	writer int32 // the last step that wrote it, or -1
	reader int32 // in reads, the last step since then that read it, or -1; it links to the others
}

// read records that a step read a span. Reads are never changed, so spans may share them.
type read struct{ step, before int32 }

// read records that a step reads a region, and appends to after the steps that it depends on.
func (u *uses) read(r Region, step int32, after []int) []int {
	from, to := u.cut(r)
	for i := from; i < to; i++ {
		s := &u.spans[i]
		after = depend(after, s.writer)
		if last := len(u.reads) - 1; i == from || u.reads[last].before != s.reader {
			u.reads = append(u.reads, read{step, s.reader})
		}
		s.reader = int32(len(u.reads) - 1)
	}
	return after
}

// write does the same for a step that writes the region. A step that read what another step wrote
// already depends on that one.
func (u *uses) write(r Region, step int32, after []int) []int {
	from, to := u.cut(r)
	for i := from; i < to; i++ {
		s := &u.spans[i]
		if s.reader < 0 {
			after = depend(after, s.writer)
		}
		for k := s.reader; k >= 0; k = u.reads[k].before {
			if u.reads[k].step != step {
				after = depend(after, u.reads[k].step)
			}
		}
	}
	u.spans[from] = span{r.Off, step, -1}
	u.spans = slices.Delete(u.spans, from+1, to)
	return after
}

// depend avoids most duplicates.
func depend(after []int, step int32) []int {
	if step < 0 || len(after) > 0 && after[len(after)-1] == int(step) {
		return after
	}
	return append(after, int(step))
}

// cut returns the spans that make up a region, after splitting spans at its ends.
func (u *uses) cut(r Region) (from, to int) {
	if u.spans == nil {
		u.spans = append(u.spans, span{0, -1, -1})
	}
	from = u.at(r.Off)
	return from, u.at(r.Off + r.Len)
}

// at returns the number of the span that begins at off.
func (u *uses) at(off int) int {
	i, found := slices.BinarySearchFunc(u.spans, off, func(s span, off int) int { return cmp.Compare(s.start, off) })
	if !found {
		before := u.spans[i-1]
		u.spans = slices.Insert(u.spans, i, span{off, before.writer, before.reader})
	}
	return i
}
