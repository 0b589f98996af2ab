// Package merge makes one output of what the replicas of a rank write to one stream, so that nothing that was printed is ever
// contradicted, whichever of them die.
//
// # The rule
//
// A byte is printed once all replicas that are not known to have died have written it, at the same offset. So whatever is printed,
// each replica that may still be printed has written it itself. That holds for any program, whichever replicas die, at any moment and in
// any order, and however late that is reported. Fewer would not do: a replica that leads writes what follows from its own
// decisions before another one knows of them, and several that led one after the other may by chance have written the
// same.
//
// A death that is not known yet delays output, and so does a replica that is slow. The one that died last counts as if it had
// not: what it wrote is all that the rank will ever have written.
//
// Replicas that write different bytes, and none of which dies, are no replicas. Nothing is printed from there on until
// all of them have ended by themselves; then it is what the lowest of them wrote, and the output is not right (see [Merger.Difference]).
//
// It knows neither ranks nor links nor clocks. All state is in a Merger, and what is kept in files has no name.
package merge

import (
	"bytes"
	"fmt"
	"slices"
)

// A Merger makes one output of the writers of a stream. It is not safe for concurrent use.
type Merger struct {
	writers []writer
	printed uint64 // offset of the next byte to print
	last    int    // the writer that has died last
	final   *Difference
}

// A writer is a process that writes the stream: first one for each replica, then those that come in place of lost ones.
type writer struct {
	replica int
	offset  uint64 // of the next byte that it writes
	skip    uint64 // how many of the next bytes were printed before it came
	kept    spool  // what it wrote and is not printed
	ended   bool   // it will write no more
	died    bool   // and not by itself
	ignored bool   // it has ended otherwise than the one that is printed
}

// New returns a Merger of so many replicas, which are its writers 0, 1, and so on.
func New(replicas int) *Merger {
	m := &Merger{writers: make([]writer, replicas)}
	for i := range m.writers {
		m.writers[i].replica = i
	}
	return m
}

// Join adds a writer that comes in place of a lost one, and goes on with what another one, the giver, had written before an
// offset. A negative giver is not known: then it is as if the new one had written what was printed.
func (m *Merger) Join(replica, giver int, at uint64) (w int, err error) {
	joined := writer{replica: replica, offset: m.printed}
	if giver >= 0 {
		joined.offset = at
		joined.skip = m.printed - min(m.printed, at)
		if at > m.printed {
			joined.kept, err = m.writers[giver].kept.copyOf(int64(at - m.printed))
		}
	}
	m.writers = append(m.writers, joined)
	return len(m.writers) - 1, err
}

// Writers returns how many writers there are.
func (m *Merger) Writers() int { return len(m.writers) }

// Offset returns the offset of the next byte that a writer writes.
func (m *Merger) Offset(w int) uint64 { return m.writers[w].offset }

// Write takes what a writer has written. Of one that has ended it takes nothing.
func (m *Merger) Write(w int, data []byte) error {
	r := &m.writers[w]
	if r.ended {
		return nil
	}
	r.offset += uint64(len(data))
	n := min(r.skip, uint64(len(data)))
	r.skip -= n
	if err := r.kept.write(data[n:]); err != nil {
		return fmt.Errorf("what replica %d writes is kept until all others have written it: %w", r.replica, err)
	}
	return nil
}

// End takes that a writer will write no more: because its program ended by itself, or because it died. Only the first
// call for a writer counts.
func (m *Merger) End(w int, died bool) {
	if r := &m.writers[w]; !r.ended {
		r.ended, r.died = true, died
		if died {
			m.last = w
		}
	}
}

// Ended reports whether a writer will write no more.
func (m *Merger) Ended(w int) bool { return m.writers[w].ended }

// Close removes what is kept.
func (m *Merger) Close() {
	for i := range m.writers {
		m.writers[i].kept.close()
	}
}

// counted returns those whose output is printed: that have not died, or the one that died last.
func (m *Merger) counted() (all []*writer) {
	for i := range m.writers {
		if r := &m.writers[i]; !r.died && !r.ignored {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		all = append(all, &m.writers[m.last])
	}
	return all
}

// Next returns what is to be printed next, or nothing if that depends on what is still to come. It is valid
// until the next call.
func (m *Merger) Next() ([]byte, error) {
	for {
		all := m.counted()
		var out []byte
		for i, r := range all {
			head, err := r.kept.head()
			if err != nil {
				return nil, err
			}
			if i == 0 {
				out = head
			}
			out = out[:common(out, head)]
		}
		if len(out) > 0 {
			m.printed += uint64(len(out))
			for i := range m.writers {
				m.writers[i].kept.discard(len(out)) // of those that died, too, in whose place others may come
			}
			return out, nil
		}
		d := difference(all, m.printed)
		if d == nil || slices.ContainsFunc(all, func(r *writer) bool { return !r.ended }) {
			return nil, nil
		}
		lowest := slices.MinFunc(all, func(a, b *writer) int { return a.replica - b.replica })
		m.final, d.Printed = d, lowest.replica
		for _, r := range all {
			r.ignored = r != lowest
		}
	}
}

// common returns how many bytes a and b begin with that are the same.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	if bytes.Equal(a[:n], b[:n]) { // mostly
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// A Difference is one between what two replicas have written.
type Difference struct {
	Replicas [2]int
	Offset   uint64 // of the first byte that is not the same
	Length   bool   // the first one has ended, and the other has written more
	Printed  int    // the replica that is printed from there on, if the difference is final
}

func (d *Difference) String() string {
	if d.Length {
		return fmt.Sprintf("replica %d has ended at byte %d, and replica %d has written more", d.Replicas[0], d.Offset, d.Replicas[1])
	}
	return fmt.Sprintf("replicas %d and %d have written different bytes, from byte %d on", d.Replicas[0], d.Replicas[1], d.Offset)
}

// Difference returns where writers differ that have not died, and whether that is final since all of them have ended; nil
// if they do not. While it is not final, one of them may have died without that being known.
func (m *Merger) Difference() (d *Difference, final bool) {
	if m.final != nil {
		return m.final, true
	}
	return difference(m.counted(), m.printed), false
}

// difference returns a difference between writers at an offset up to which all have written the same.
func difference(all []*writer, at uint64) *Difference {
	for i, a := range all {
		for _, b := range all[i+1:] {
			d := &Difference{Replicas: [2]int{a.replica, b.replica}, Offset: at}
			ha, _ := a.kept.head() // Next returns what goes wrong
			hb, _ := b.kept.head()
			switch {
			case len(ha) > 0 && len(hb) > 0:
				if ha[0] != hb[0] {
					return d
				}
			case len(hb) > 0 && a.ended:
				d.Length = true
				return d
			case len(ha) > 0 && b.ended:
				d.Replicas, d.Length = [2]int{b.replica, a.replica}, true
				return d
			}
		}
	}
	return nil
}
