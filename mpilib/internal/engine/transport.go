package engine

import (
	"slices"

	"github.com/isthmus-grid/isthmus/wire"
)

// A transport carries envelopes and payloads to a peer, in order. Its methods do not block.
// mu is held in all calls.
type transport interface {
	// sendSmall sends or queues a small message at once, and reports whether it did: not where it
	// is too large to be copied, or there is no room.
	sendSmall(env wire.Envelope, b []byte) bool
	// sendEager sends or queues r's message. It reports whether the protocol's Written is to be called: if
	// not, it calls that later.
	sendEager(env wire.Envelope, r *Request) (whole bool)
	// send sends or queues an envelope and its payload, which is copied.
	send(env wire.Envelope, b []byte)
	// sendHead queues an envelope and the first n bytes of r's buffer.
	sendHead(env wire.Envelope, r *Request, n int)
	// sendLast sends the last envelope to a peer that is then failed, if that is possible without blocking.
	sendLast(env wire.Envelope)
	// stream sends the remainder of r's buffer, whose CTS has arrived.
	stream(r *Request)
	// expose exposes r's buffer to the peer, and returns the payload of the RTS that describes it, or
	// nil where that is not possible.
	expose(r *Request) []byte

	// remove removes r, and returns how many of its bytes were queued, beside those to be
	// streamed.
	remove(r *Request) int
	// replace sends another request's buffer in place of r's.
	replace(r, by *Request)
	// fail completes all requests in it with err, but those of which bytes are being copied.
	fail(err error)
	// requests calls yield with each request of which something is queued, or lent as a whole, beside
	// those that are streamed.
	requests(yield func(*Request))
	// queued reports whether something waits to be sent.
	queued() bool
	// answers returns how many bytes wait besides the program's messages.
	answers() int

	// eagerLimit returns the largest message, in bytes, to send eagerly if there is credit.
	eagerLimit() int
	// maxHead returns how many bytes of a rendezvous message may follow its RTS, if there is credit.
	maxHead() int
}

var _, _, _ transport = (*linkTransport)(nil), (*ringTransport)(nil), (*switchTransport)(nil)

// switchTransport carries the stream to and from a peer over its link and, once both share memory,
// through that. Switch is the last envelope that each side sends over the link. Senders do not
// distinguish the two.
type switchTransport struct {
	link     linkTransport
	ring     ringTransport
	toRing   bool // envelopes are sent through the ring, once the link has accepted all before them
	fromRing bool // the peer sends through its ring
}

// switchOver sends everything from now on through the ring.
func (s *switchTransport) switchOver() {
	s.toRing = true
	s.ring.bulk, s.link.bulk = s.link.bulk, nil
	s.ring.values, s.link.values = s.link.values, nil
}

// connected reports whether there is a link to the peer, or was.
func (s *switchTransport) connected() bool { return s.link.l != nil }

// shared reports whether messages go through shared memory in both directions.
func (s *switchTransport) shared() bool { return s.toRing && s.fromRing }

// out returns the transport of the next envelope.
func (s *switchTransport) out() transport {
	if s.toRing {
		return &s.ring
	}
	return &s.link
}

// sendSmall avoids the call through an interface for small messages.
func (s *switchTransport) sendSmall(env wire.Envelope, b []byte) bool {
	if s.toRing {
		return s.ring.sendSmall(env, b)
	}
	return s.link.sendSmall(env, b)
}

func (s *switchTransport) sendEager(env wire.Envelope, r *Request) (whole bool) {
	return s.out().sendEager(env, r)
}

func (s *switchTransport) send(env wire.Envelope, b []byte) { s.out().send(env, b) }

func (s *switchTransport) sendHead(env wire.Envelope, r *Request, n int) { s.out().sendHead(env, r, n) }

func (s *switchTransport) sendLast(env wire.Envelope) { s.out().sendLast(env) }

func (s *switchTransport) stream(r *Request) { s.out().stream(r) }

func (s *switchTransport) expose(r *Request) []byte { return s.out().expose(r) }

func (s *switchTransport) eagerLimit() int { return s.out().eagerLimit() }

func (s *switchTransport) maxHead() int { return s.out().maxHead() }

// Envelopes from before the switch may still be queued for the link.

func (s *switchTransport) remove(r *Request) int { return s.link.remove(r) + s.ring.remove(r) }

func (s *switchTransport) replace(r, by *Request) {
	s.link.replace(r, by)
	s.ring.replace(r, by)
}

func (s *switchTransport) fail(err error) {
	s.link.fail(err)
	s.ring.fail(err)
}

func (s *switchTransport) requests(yield func(*Request)) {
	s.link.requests(yield)
	s.ring.requests(yield)
}

func (s *switchTransport) queued() bool { return s.link.queued() || s.ring.queued() }

func (s *switchTransport) answers() int { return s.link.answers() + s.ring.answers() }

// bulk holds the sends whose CTS has arrived; one chunk of each is sent in rotation.
type bulk []*Request

func (b *bulk) add(r *Request) {
	if !slices.Contains(*b, r) {
		*b = append(*b, r)
	}
}

func (b *bulk) remove(r *Request) {
	*b = slices.DeleteFunc(*b, func(q *Request) bool { return q == r })
}

func (b bulk) replace(r, by *Request) {
	for i, q := range b {
		if q == r {
			b[i] = by
		}
	}
}

// sent notes that the next n bytes of the first were sent, whose turn is over.
func (b *bulk) sent(n int) {
	r := (*b)[0]
	*b = (*b)[1:]
	if r.Offset += n; r.Offset < int(r.Got.Bytes) {
		*b = append(*b, r)
	}
}

// fail completes them with err.
func (b *bulk) fail(err error) {
	for _, r := range *b {
		if r.State != moving { // else its buffer is being read
			r.finish(err)
		}
	}
	*b = nil
}
