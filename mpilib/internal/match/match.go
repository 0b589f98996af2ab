// Package match pairs the messages of one communicator context with the receives posted in it, by
// the rules of MPI-4.1, sections 3.5 (order) and 3.8 (probe). It knows no locks, buffers, protocols
// or clocks; it only knows that sources and tags are numbers.
//
// All state is in the [Table] and in the entries its caller embeds in its own requests and
// messages: nothing is allocated per message, and the package keeps no reference to an entry that
// has been taken out. The caller must hold the lock, if there is one.
//
// The cost of every call is independent of how many receives and messages are queued, wildcards
// included (amortised, since the hash tables grow and shrink).
package match

// The wildcards of a receive or probe. A message has none.
const (
	AnySource = -1
	AnyTag    = -1
)

// A Receive is a posted receive, to be embedded by value in the request it belongs to. Source and
// Tag, either of which may be a wildcard, must not change while it is posted; Owner points to the
// request and is used only by the caller:
//
//	type request struct {
//		match match.Receive[*request]
//		...
//	}
//	r.match.Owner = r
//
// A Receive may be posted repeatedly, in one table at a time. It must not be copied while it is
// posted.
type Receive[R any] entry[R]

// A Message is one that arrived before its receive was posted. The rules for [Receive] apply,
// except that it has no wildcards.
type Message[M any] entry[M]

// A Table holds the posted receives that have no message yet and the messages that have no receive
// yet. The zero Table is empty and ready; it must not be copied once used. R and M are the types of
// the owners: normally pointers.
//
// A receive first calls [Table.Take] and then, if it found no message, [Table.Post]; a message
// calls [Table.Arrive] and then [Table.Keep]. So no receive is posted that a kept message could
// match, and matching is in the standard's order.
type Table[R, M any] struct {
	posted queue[R]
	kinds  [4]int // number of posted receives of each kind: see kind
	kept   queue[M]
}

// kind classifies receives by their wildcards: 0 none, 1 any tag, 2 any source, 3 both.
func kind(source, tag int32) (k int) {
	if tag == AnyTag {
		k = 1
	}
	if source == AnySource {
		k |= 2
	}
	return k
}

// Post appends r, which found no message, to the posted receives. It panics if r is already posted.
func (t *Table[R, M]) Post(r *Receive[R]) {
	t.posted.add((*entry[R])(r))
	t.kinds[kind(r.Source, r.Tag)]++
}

// Arrive removes and returns the receive that a message from source with tag matches, the first
// posted of those that match, or nil.
func (t *Table[R, M]) Arrive(source, tag int32) *Receive[R] {
	first := t.awaits(source, tag)
	if first == nil {
		return nil
	}
	t.withdraw(first)
	return (*Receive[R])(first)
}

// Awaited reports whether Arrive would find a receive.
func (t *Table[R, M]) Awaited(source, tag int32) bool { return t.awaits(source, tag) != nil }

// awaits returns the receive that Arrive would remove.
func (t *Table[R, M]) awaits(source, tag int32) *entry[R] {
	// All receives that can match are in four lists, each in order, so the answer is the oldest of
	// four heads.
	var first *entry[R]
	for k, n := range t.kinds {
		if n == 0 {
			continue
		}
		s, g := source, tag
		if k&2 != 0 {
			s = AnySource
		}
		if k&1 != 0 {
			g = AnyTag
		}
		if e := t.posted.find(byBoth, keyOf(s, g)); e != nil && (first == nil || e.seq < first.seq) {
			first = e
		}
	}
	return first
}

// Keep appends m, which found no receive, to the kept messages. It panics if m is already kept.
func (t *Table[R, M]) Keep(m *Message[M]) {
	t.kept.add((*entry[M])(m))
}

// Take removes and returns the message that a receive from source with tag gets, either of which
// may be a wildcard: the first kept of those that match, or nil.
func (t *Table[R, M]) Take(source, tag int32) *Message[M] {
	m := t.Peek(source, tag)
	if m != nil {
		t.kept.remove((*entry[M])(m))
	}
	return m
}

// Peek is Take without removing the message: a probe.
func (t *Table[R, M]) Peek(source, tag int32) *Message[M] {
	if t.kept.first == nil {
		return nil
	}
	switch kind(source, tag) {
	case 0:
		return (*Message[M])(t.kept.find(byBoth, keyOf(source, tag)))
	case 1:
		return (*Message[M])(t.kept.find(bySource, keyOf(source, tag)))
	case 2:
		return (*Message[M])(t.kept.find(byTag, keyOf(source, tag)))
	}
	return (*Message[M])(t.kept.first)
}

// Withdraw removes r, which is to be cancelled or has failed. It returns false if r is not posted
// here, because a message has matched it or it never was.
func (t *Table[R, M]) Withdraw(r *Receive[R]) bool {
	if r.in != &t.posted {
		return false
	}
	t.withdraw((*entry[R])(r))
	return true
}

func (t *Table[R, M]) withdraw(e *entry[R]) {
	t.kinds[kind(e.Source, e.Tag)]--
	t.posted.remove(e)
}

// Remove removes m, whose sender has cancelled it or died. It returns false if m is not kept here.
func (t *Table[R, M]) Remove(m *Message[M]) bool {
	if m.in != &t.kept {
		return false
	}
	t.kept.remove((*entry[M])(m))
	return true
}

// Posted calls yield with each posted receive, in the order of posting, until it returns false.
// yield may remove the receive it is given, and must change nothing else.
func (t *Table[R, M]) Posted(yield func(*Receive[R]) bool) {
	for e := t.posted.first; e != nil; {
		next := e.after
		if !yield((*Receive[R])(e)) {
			return
		}
		e = next
	}
}

// Messages calls yield with each kept message, in the order of arrival, until it returns false.
// yield may remove the message it is given, and must change nothing else.
func (t *Table[R, M]) Messages(yield func(*Message[M]) bool) {
	for e := t.kept.first; e != nil; {
		next := e.after
		if !yield((*Message[M])(e)) {
			return
		}
		e = next
	}
}

// Waits reports whether a receive is posted that a message from source could match, given the right
// tag: one from this source or from any.
func (t *Table[R, M]) Waits(source int32) bool {
	if t.posted.first == nil {
		return false
	}
	return t.kinds[2]+t.kinds[3] > 0 || t.posted.find(bySource, keyOf(source, AnyTag)) != nil
}

// Receives reports whether any receive is posted.
func (t *Table[R, M]) Receives() bool { return t.posted.first != nil }

// Empty reports whether there is neither a posted receive nor a kept message.
func (t *Table[R, M]) Empty() bool {
	return t.posted.first == nil && t.kept.first == nil
}
