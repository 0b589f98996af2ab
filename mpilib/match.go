package mpilib

import "slices"

// matcher holds one context's receives that wait for a message and messages
// that wait for a receive, each in the order of their arrival. Searching both
// from the front gives MPI's order: between two processes messages match in
// the order they were sent, receives in the order they were posted
// (MPI-4.1, section 3.5). It knows no locks and no buffers.
type matcher struct {
	posted     []*Request
	unexpected []*message
}

// message is one that came before its receive.
type message struct {
	source int // world rank
	tag    int
	data   []byte
	sender *Request // a send to self that waits for its receive; nil for others
}

func matches(wantSource, wantTag, source, tag int) bool {
	return (wantSource == AnySource || wantSource == source) && (wantTag == AnyTag || wantTag == tag)
}

// arrive takes out the receive that a message from source with tag belongs to,
// or returns nil.
func (m *matcher) arrive(source, tag int) *Request {
	for i, r := range m.posted {
		if matches(r.global, r.what.tag, source, tag) {
			m.posted = cut(m.posted, i)
			return r
		}
	}
	return nil
}

// cut is slices.Delete of one element that costs nothing at the front, where
// most matches are and where a long queue would be moved each time.
func cut[E any](s []*E, i int) []*E {
	if i > 0 {
		return slices.Delete(s, i, i+1)
	}
	s[0] = nil
	return s[1:]
}

// take takes out the message that a receive belongs to, or returns nil.
func (m *matcher) take(source, tag int) *message {
	for i, msg := range m.unexpected {
		if matches(source, tag, msg.source, msg.tag) {
			m.unexpected = cut(m.unexpected, i)
			return msg
		}
	}
	return nil
}

// peek is take that leaves the message where it is.
func (m *matcher) peek(source, tag int) *message {
	for _, msg := range m.unexpected {
		if matches(source, tag, msg.source, msg.tag) {
			return msg
		}
	}
	return nil
}

// withdraw takes r out of the posted receives and says whether it was there.
func (m *matcher) withdraw(r *Request) bool {
	i := slices.Index(m.posted, r)
	if i < 0 {
		return false
	}
	m.posted = slices.Delete(m.posted, i, i+1)
	return true
}

// withdrawSend is withdraw for a send to self.
func (m *matcher) withdrawSend(r *Request) bool {
	i := slices.IndexFunc(m.unexpected, func(msg *message) bool { return msg.sender == r })
	if i < 0 {
		return false
	}
	m.unexpected = slices.Delete(m.unexpected, i, i+1)
	return true
}
