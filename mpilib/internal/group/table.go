package group

import (
	"cmp"
	"slices"
)

// A segment is a run of pairs (key, value) in which both advance by equal steps. 32 bits hold any
// rank and halve the cost of an irregular group.
type segment struct {
	key, keyStep int32 // keyStep > 0
	val, valStep int32
	count        int32 // pairs, > 0
}

func (s segment) lastKey() int32 { return s.key + (s.count-1)*s.keyStep }
func (s segment) lastVal() int32 { return s.val + (s.count-1)*s.valStep }

// A table maps ascending keys to values. Equal tables have equal segments, because add makes the
// longest possible segments from the left.
type table []segment

// add appends a pair whose key is greater than all before.
func (t table) add(key, val int32) table {
	if len(t) == 0 {
		return append(t, segment{key, 1, val, 0, 1})
	}
	last := &t[len(t)-1]
	keyStep, valStep := key-last.lastKey(), val-last.lastVal()
	if last.count == 1 {
		last.keyStep, last.valStep = keyStep, valStep
	}
	if last.keyStep == keyStep && last.valStep == valStep {
		last.count++
		return t
	}
	return append(t, segment{key, 1, val, 0, 1})
}

// find returns the value of key.
func (t table) find(key int32) (int32, bool) {
	i, exact := slices.BinarySearchFunc(t, key, func(s segment, key int32) int { return cmp.Compare(s.key, key) })
	if exact {
		return t[i].val, true
	}
	if i == 0 {
		return 0, false
	}
	s := t[i-1]
	steps := (key - s.key) / s.keyStep
	if steps >= s.count || (key-s.key)%s.keyStep != 0 {
		return 0, false
	}
	return s.val + steps*s.valStep, true
}

// scan returns the key of val by looking at every segment.
func (t table) scan(val int32) (int32, bool) {
	for _, s := range t {
		if s.valStep == 0 { // a segment of one, since values are distinct
			if s.val == val {
				return s.key, true
			}
			continue
		}
		off := int64(val) - int64(s.val)
		steps := off / int64(s.valStep)
		if off%int64(s.valStep) == 0 && 0 <= steps && steps < int64(s.count) {
			return s.key + int32(steps)*s.keyStep, true
		}
	}
	return 0, false
}

// invert returns the table that maps t's values, which are distinct, to its keys. Where values
// ascend as keys do, segments only swap sides; otherwise the pairs are sorted, which takes O(n log
// n) time and n words temporarily.
func (t table) invert() table {
	if t.ascends() {
		inverse := make(table, len(t))
		for i, s := range t {
			inverse[i] = segment{s.val, max(s.valStep, 1), s.key, s.keyStep, s.count}
			if s.count == 1 {
				inverse[i].valStep = 0
			}
		}
		return inverse
	}
	var pairs []uint64
	for key, val := range t.pairs {
		pairs = append(pairs, uint64(val)<<32|uint64(key)) // neither is negative
	}
	slices.Sort(pairs)
	var inverse table
	for _, p := range pairs {
		inverse = inverse.add(int32(p>>32), int32(p&(1<<32-1)))
	}
	return slices.Clip(inverse)
}

func (t table) ascends() bool {
	for i, s := range t {
		if s.valStep < 0 || i > 0 && s.val < t[i-1].lastVal() {
			return false
		}
	}
	return true
}

// pairs yields every pair in the order of the keys.
func (t table) pairs(yield func(key, val int32) bool) {
	for _, s := range t {
		for i := range s.count {
			if !yield(s.key+i*s.keyStep, s.val+i*s.valStep) {
				return
			}
		}
	}
}
