package submit

import (
	"fmt"
	"slices"
)

// mergeWindow bounds the bytes of a stream that a merger keeps to compare replicas.
const mergeWindow = 64 << 10

// merger makes one output of what the replicas of a rank write to one stream: each byte is printed
// once, by its offset in the stream. The replica that is ahead is printed, and what the others write
// later at the same offsets is compared with that and dropped. After a death the next one that gets
// beyond what was printed goes on from there.
//
// If a replica writes something else than what was printed, it has diverged. It is ignored from then
// on if another one that has not died wrote what was printed; so the output is never a mixture of
// replicas that live. If only dead ones did, the replica is printed from the first byte that differs.
//
// A merger keeps the last mergeWindow bytes that were printed; a replica that is further behind is not
// compared. It is not safe for concurrent use.
type merger struct {
	replicas []mergedReplica
	printed  uint64 // offset of the next byte to print
	recent   []byte // the printed bytes before that
	window   int    // the most bytes of recent
	complete bool   // a replica that was printed has ended well: there is no more
}

// mergedReplica is what a merger knows about a replica.
type mergedReplica struct {
	number   int    // of the replica
	from     uint64 // where it began to write: one that goes on with the state of another does not do so at 0
	offset   uint64 // of the next byte that it writes
	diverged bool
	ended    bool // it will write no more
	died     bool // not by itself, so that what it wrote may be incomplete
}

func newMerger(replicas, window int) *merger {
	m := &merger{replicas: make([]mergedReplica, replicas), window: window}
	for i := range m.replicas {
		m.replicas[i].number = i
	}
	return m
}

// join adds a process that comes in place of a lost replica, and writes from an offset on. It returns the number
// by which the merger knows it.
func (m *merger) join(replica int, from uint64) int {
	from = min(from, m.printed)
	m.replicas = append(m.replicas, mergedReplica{number: replica, from: from, offset: from})
	return len(m.replicas) - 1
}

// haveEnded reports whether all have ended that have joined so far.
func (m *merger) haveEnded() bool {
	return !slices.ContainsFunc(m.replicas, func(r mergedReplica) bool { return !r.ended })
}

// divergence is a difference between the output of replicas of a rank.
type divergence struct {
	replica int    // which differs from what was printed
	offset  uint64 // of the first byte that does
	length  bool   // one wrote more than the other; otherwise a byte differs
	ignored bool   // what the replica writes from there on is not printed
}

// write takes what a replica wrote. It returns the part of data to print, and how the replica
// diverges, once, or nil.
func (m *merger) write(replica int, data []byte) (out []byte, how *divergence) {
	r := &m.replicas[replica]
	start := r.offset
	r.offset += uint64(len(data))
	if r.ended || r.diverged {
		return nil, nil
	}
	same, differs := m.compare(start, data)
	if at := start + uint64(same); differs {
		how = &divergence{replica: r.number, offset: at}
	} else if same < len(data) && m.complete {
		how = &divergence{replica: r.number, offset: at, length: true}
	}
	if how != nil {
		how.ignored = m.confirmed(replica, how.offset)
		if how.ignored {
			r.diverged = true
			return nil, how
		}
		m.rewind(how.offset)
	}
	out = data[same:]
	m.printed += uint64(len(out))
	m.recent = append(m.recent, out...)
	m.trim()
	return out, how
}

// compare returns how many bytes of data, which begins at an offset, were printed and do not differ
// from that as far as it is kept, and whether the next one differs.
func (m *merger) compare(start uint64, data []byte) (same int, differs bool) {
	kept := m.printed - uint64(len(m.recent)) // the offset of recent
	for i := range data {
		at := start + uint64(i)
		switch {
		case at >= m.printed:
			return i, false
		case at >= kept && m.recent[at-kept] != data[i]:
			return i, true
		}
	}
	return len(data), false
}

// confirmed reports whether another replica, which has not died, agrees with the byte that was printed
// at an offset, or that there is none.
func (m *merger) confirmed(replica int, offset uint64) bool {
	for i, r := range m.replicas {
		if i != replica && !r.diverged && !r.died && r.from <= offset && (r.offset > offset || r.ended) {
			return true
		}
	}
	return false
}

// rewind makes printing go on at an earlier offset.
func (m *merger) rewind(to uint64) {
	m.recent = m.recent[:max(0, len(m.recent)-int(m.printed-to))]
	m.printed = to
}

// trim keeps of what was printed what a replica is still to be compared with, within the window.
func (m *merger) trim() {
	keep := 0
	for _, r := range m.replicas {
		if !r.ended && !r.diverged && r.offset < m.printed {
			keep = int(max(uint64(keep), min(m.printed-r.offset, uint64(m.window))))
		}
	}
	if extra := len(m.recent) - keep; extra > 0 {
		m.recent = append(m.recent[:0], m.recent[extra:]...)
	}
}

// end takes that a replica will write no more: because it died, or because its program has ended well.
// Only the first call for a replica counts. It returns how the replica diverges by ending, or nil.
func (m *merger) end(replica int, died bool) *divergence {
	r := &m.replicas[replica]
	if r.ended {
		return nil
	}
	r.ended, r.died = true, died
	if died {
		m.fallBack()
		return nil
	}
	if r.diverged {
		return nil
	}
	if r.offset == m.printed {
		m.complete = true
		return nil
	}
	how := &divergence{replica: r.number, offset: r.offset, length: true, ignored: m.confirmed(replica, r.offset)}
	if how.ignored {
		r.diverged = true
		return how
	}
	m.rewind(r.offset) // only dead ones wrote more, and that is printed
	m.complete = true
	return how
}

// fallBack makes a replica that diverged the one that is printed, from here on, if all others have
// died.
func (m *merger) fallBack() {
	next := -1
	for i, r := range m.replicas {
		switch {
		case !r.died && !r.diverged:
			return
		case !r.ended && next < 0:
			next = i
		}
	}
	if next >= 0 {
		r := &m.replicas[next]
		r.diverged, m.printed, m.recent, m.complete = false, r.offset, m.recent[:0], false
	}
}

// describe says for people how the output of a rank diverges.
func (d *divergence) describe(rank int, stream string) string {
	what := "other bytes to %s than another"
	if d.length {
		what = "more or less to %s than another"
	}
	text := fmt.Sprintf("rank %d: replica %d writes "+what+", from byte %d on; ", rank, d.replica, stream, d.offset)
	if d.ignored {
		text += "the others are printed"
	} else {
		text += "it is printed, as the one that was printed so far has died"
	}
	return text + "; likely causes: the clock, random numbers, the order of a map, the name of the host"
}
