package resume

import "slices"

// segment is a run of bytes in one place. It starts where the previous one ends.
type segment struct {
	end   uint64
	owner Carrier // None: lost
}

// segments records where each byte between from and to is. Neighbours have different owners, so a
// single carrier makes one segment however much it carries.
//
// New entries come only from append, which its caller bounds, and from take when it cuts a lost
// segment, which it does at multiples of the granule: so there are never more cuts of the second
// kind than granules.
type segments struct {
	from, to uint64
	list     []segment // list[head:] is in use; earlier entries were acknowledged
	head     int
	lostAt   int // no lost segment is before this index
}

func (q *segments) len() int { return len(q.list) - q.head }

// last returns the owner of the last byte before to, None if nothing is in flight.
func (q *segments) last() Carrier {
	if q.len() == 0 {
		return None
	}
	return q.list[len(q.list)-1].owner
}

// append puts the next n bytes on owner.
func (q *segments) append(owner Carrier, n uint64) {
	q.to += n
	if q.len() > 0 {
		if last := &q.list[len(q.list)-1]; last.owner == owner {
			last.end = q.to
			return
		}
	}
	q.makeRoom()
	q.list = append(q.list, segment{q.to, owner})
}

// makeRoom prepares for one more entry and returns by how much all indices decreased. When the
// array is full and at least half of it is before head, the list moves to its front; otherwise
// append makes a larger array, at most twice as long. So the array is at most four times as long as
// the list ever was, and each entry is moved about once.
func (q *segments) makeRoom() (fell int) {
	fell = q.head
	if len(q.list) < cap(q.list) || fell == 0 || fell < len(q.list)/2 {
		return 0
	}
	q.list = q.list[:copy(q.list, q.list[fell:])]
	q.lostAt = max(q.lostAt-fell, 0)
	q.head = 0
	return fell
}

// trim removes the part of the first segment below off, which is above from, and returns its owner
// and how many bytes it was.
func (q *segments) trim(off uint64) (Carrier, uint64) {
	first := q.list[q.head]
	n := min(off, first.end) - q.from
	q.from += n
	if q.from == first.end {
		if q.head++; q.head == len(q.list) {
			q.list, q.head = q.list[:0], 0
		}
		q.lostAt = max(q.lostAt, q.head)
	}
	if q.len() == 0 {
		q.lostAt = 0
	}
	return first.owner, n
}

// abandon marks as lost what owner carries.
func (q *segments) abandon(owner Carrier) {
	live := q.list[q.head:]
	kept := live[:0]
	for _, s := range live {
		if s.owner == owner {
			s.owner = None
		}
		if k := len(kept); k > 0 && kept[k-1].owner == s.owner {
			kept[k-1].end = s.end
		} else {
			kept = append(kept, s)
		}
	}
	q.list = q.list[:q.head+len(kept)]
	q.lostAt = q.head
}

// lost returns the index and the bounds of the first lost segment. There must be one.
func (q *segments) lost() (i int, start, end uint64) {
	for i = q.lostAt; q.list[i].owner != None; i++ {
	}
	q.lostAt = i
	return i, q.start(i), q.list[i].end
}

func (q *segments) start(i int) uint64 {
	if i == q.head {
		return q.from
	}
	return q.list[i-1].end
}

// take puts the first n bytes of the lost segment i on owner.
func (q *segments) take(i int, owner Carrier, n uint64) {
	cut := q.start(i) + n
	extends := i > q.head && q.list[i-1].owner == owner
	switch {
	case cut == q.list[i].end:
		q.list[i].owner = owner
		q.join(i + 1)
		q.join(i)
	case extends:
		q.list[i-1].end = cut
	default:
		i -= q.makeRoom()
		q.list = slices.Insert(q.list, i, segment{cut, owner})
	}
}

// join merges the segments i-1 and i if they have one owner.
func (q *segments) join(i int) {
	if i <= q.head || i >= len(q.list) || q.list[i-1].owner != q.list[i].owner {
		return
	}
	q.list = slices.Delete(q.list, i-1, i) // the later one now starts where the earlier did
	q.lostAt = min(q.lostAt, i-1)
}
