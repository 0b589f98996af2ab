// Package match pairs the messages of one communicator context with the
// receives posted in it, by the rules of MPI-4.1, sections 3.5 (order) and 3.8
// (probe). It knows no locks, buffers, protocols or clocks, and of a
// communicator no more than that sources and tags are numbers.
//
// All state is in the [Table] and in the entries its caller embeds in its own
// requests and messages: there is nothing to allocate per message, and an entry
// that has been taken out is referred to by nothing here. Whoever calls holds
// the lock, if there is one.
//
// The cost of every call is independent of how many receives and messages wait,
// wildcards included (amortised, since the hash tables grow and shrink).
package match

// The wildcards of a receive or probe. They are no part of a message.
const (
	AnySource = -1
	AnyTag    = -1
)

// A Receive is a posted receive, to be embedded by value in the request it
// belongs to. Source and Tag, either of which may be a wildcard, must stay as
// they are while it is posted; Owner leads back to the request and is the
// caller's alone:
//
//	type request struct {
//		match match.Receive[*request]
//		...
//	}
//	r.match.Owner = r
//
// One Receive may be posted again and again, one table at a time. It must not
// be copied while it is posted.
type Receive[R any] entry[R]

// A Message is one that came before its receive. What is said of [Receive]
// holds for it, but that it has no wildcards.
type Message[M any] entry[M]

// A Table holds the receives that wait for a message and the messages that
// wait for a receive. The zero Table is empty and ready; it must not be copied
// once used. R and M are the types of the owners: pointers, normally.
//
// A receive is first given to [Table.Take] and then, if nothing was there, to
// [Table.Post]; a message to [Table.Arrive] and then to [Table.Keep]. So no
// receive is posted that a kept message could satisfy, and matching is in the
// standard's order.
type Table[R, M any] struct {
	posted queue[R]
	kinds  [4]int // how many are posted of each kind: see kind
	kept   queue[M]
}

// kind tells receives apart by their wildcards: 0 none, 1 any tag, 2 any
// source, 3 both.
func kind(source, tag int32) (k int) {
	if tag == AnyTag {
		k = 1
	}
	if source == AnySource {
		k |= 2
	}
	return k
}

// Post keeps r, which found no message, behind all posted before it. It panics
// if r is posted already.
func (t *Table[R, M]) Post(r *Receive[R]) {
	t.posted.add((*entry[R])(r))
	t.kinds[kind(r.Source, r.Tag)]++
}

// Arrive takes out the receive that a message from source with tag belongs to,
// the first posted of those it satisfies, or returns nil.
func (t *Table[R, M]) Arrive(source, tag int32) *Receive[R] {
	first := t.awaits(source, tag)
	if first == nil {
		return nil
	}
	t.withdraw(first)
	return (*Receive[R])(first)
}

// Awaited says whether Arrive would find a receive.
func (t *Table[R, M]) Awaited(source, tag int32) bool { return t.awaits(source, tag) != nil }

// awaits returns the receive that Arrive takes out.
func (t *Table[R, M]) awaits(source, tag int32) *entry[R] {
	// All receives that can be meant are in four lists, each in order, so that
	// the answer is the oldest of four heads.
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

// Keep keeps m, which found no receive, behind all kept before it. It panics if
// m is kept already.
func (t *Table[R, M]) Keep(m *Message[M]) {
	t.kept.add((*entry[M])(m))
}

// Take takes out the message that a receive from source with tag gets, either
// of which may be a wildcard: the first kept of those that satisfy it, or nil.
func (t *Table[R, M]) Take(source, tag int32) *Message[M] {
	m := t.Peek(source, tag)
	if m != nil {
		t.kept.remove((*entry[M])(m))
	}
	return m
}

// Peek is Take that leaves the message where it is: a probe.
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

// Withdraw takes out r, which is to be cancelled or has failed. It returns false
// if r is not posted here, because a message has taken it or it never was.
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

// Remove takes out m, whose sender has cancelled it or died. It returns false
// if m is not kept here.
func (t *Table[R, M]) Remove(m *Message[M]) bool {
	if m.in != &t.kept {
		return false
	}
	t.kept.remove((*entry[M])(m))
	return true
}

// Posted calls yield with each posted receive, in the order of posting, until
// it returns false. yield may take out the receive it is given; it must change
// nothing else.
func (t *Table[R, M]) Posted(yield func(*Receive[R]) bool) {
	for e := t.posted.first; e != nil; {
		next := e.after
		if !yield((*Receive[R])(e)) {
			return
		}
		e = next
	}
}

// Messages calls yield with each kept message, in the order of arrival, until
// it returns false. yield may take out the message it is given; it must change
// nothing else.
func (t *Table[R, M]) Messages(yield func(*Message[M]) bool) {
	for e := t.kept.first; e != nil; {
		next := e.after
		if !yield((*Message[M])(e)) {
			return
		}
		e = next
	}
}

// Waits says whether a receive is posted that a message from source could
// satisfy, by its tag: one from this source or from any.
func (t *Table[R, M]) Waits(source int32) bool {
	if t.posted.first == nil {
		return false
	}
	return t.kinds[2]+t.kinds[3] > 0 || t.posted.find(bySource, keyOf(source, AnyTag)) != nil
}

// Receives says whether any receive is posted.
func (t *Table[R, M]) Receives() bool { return t.posted.first != nil }

// Empty says whether neither a receive nor a message waits.
func (t *Table[R, M]) Empty() bool {
	return t.posted.first == nil && t.kept.first == nil
}
