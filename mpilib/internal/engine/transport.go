package engine

import (
	"slices"

	"github.com/isthmus-grid/isthmus/wire"
)

// A transport carries what is said to a peer, in order: envelopes and payloads. Nothing in it waits.
// mu is held in all calls.
type transport interface {
	// sendSmall sends or queues a small message at once, and reports whether it did: not where it
	// is too large to be copied, or there is no room.
	sendSmall(env wire.Envelope, b []byte) bool
	// sendEager sends or queues r's message, and reports whether r's buffer is the caller's again.
	// If not, linkUser.written or the protocol's Written is called later.
	sendEager(env wire.Envelope, r *Request) (copied bool)
	// send sends or queues an envelope and its payload, which is copied.
	send(env wire.Envelope, b []byte)
	// sendHead queues an envelope and the first n bytes of r's buffer.
	sendHead(env wire.Envelope, r *Request, n int)
	// sendLast sends an envelope after which the peer is given up, as far as that needs no waiting.
	sendLast(env wire.Envelope)
	// stream has the rest of r's buffer sent, for its CTS has come.
	stream(r *Request)
	// expose lets the peer copy r's buffer itself, and returns what the RTS is to say of that, or
	// nil where that cannot be.
	expose(r *Request) []byte

	// remove takes r out, and returns how many of its bytes were queued, beside those to be
	// streamed. What is being written is not concerned.
	remove(r *Request) int
	// replace sends another request's buffer in r's place.
	replace(r, by *Request)
	// fail completes all requests in it with err, but those that are being written.
	fail(err error)
	// requests calls yield with each request of which something is queued or being written, beside
	// those that are streamed.
	requests(yield func(*Request))
	// queued reports whether something waits to be sent.
	queued() bool
	// answers returns how many bytes wait besides the program's messages.
	answers() int

	// eagerLimit returns the largest message that is worth sending eagerly, if there is credit.
	eagerLimit() int
	// maxHead returns how many bytes of a rendezvous message may follow its RTS, if there is credit.
	maxHead() int
}

var _, _, _ transport = (*linkTransport)(nil), (*ringTransport)(nil), (*switchTransport)(nil)

// switchTransport carries the stream to and from a peer over its link and, once both share memory,
// through that. Each side says Switch as the last thing over the link. Whoever sends does not ask
// which it is.
type switchTransport struct {
	link     linkTransport
	ring     ringTransport
	toRing   bool // what is sent goes through the ring, once the link has taken all that is before
	fromRing bool // what the peer sends comes through its ring
}

// switchOver sends everything from now on through the ring.
func (s *switchTransport) switchOver() {
	s.toRing = true
	s.ring.bulk, s.link.bulk = s.link.bulk, nil
}

// connected reports whether there is a link to the peer, or was.
func (s *switchTransport) connected() bool { return s.link.l != nil }

// shared reports whether messages go through shared memory in both directions.
func (s *switchTransport) shared() bool { return s.toRing && s.fromRing }

// out returns what carries what is said now.
func (s *switchTransport) out() transport {
	if s.toRing {
		return &s.ring
	}
	return &s.link
}

// Small messages find their way without an interface.
func (s *switchTransport) sendSmall(env wire.Envelope, b []byte) bool {
	if s.toRing {
		return s.ring.sendSmall(env, b)
	}
	return s.link.sendSmall(env, b)
}

func (s *switchTransport) sendEager(env wire.Envelope, r *Request) (copied bool) {
	return s.out().sendEager(env, r)
}

func (s *switchTransport) send(env wire.Envelope, b []byte) { s.out().send(env, b) }

func (s *switchTransport) sendHead(env wire.Envelope, r *Request, n int) { s.out().sendHead(env, r, n) }

func (s *switchTransport) sendLast(env wire.Envelope) { s.out().sendLast(env) }

func (s *switchTransport) stream(r *Request) { s.out().stream(r) }

func (s *switchTransport) expose(r *Request) []byte { return s.out().expose(r) }

func (s *switchTransport) eagerLimit() int { return s.out().eagerLimit() }

func (s *switchTransport) maxHead() int { return s.out().maxHead() }

// What was said before the change may be queued for the link still.

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

// bulk is the sends whose CTS has come, of which one chunk each is sent in rotation.
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

// fail completes them with err.
func (b *bulk) fail(err error) {
	for _, r := range *b {
		if r.State != moving { // else its buffer is being read
			r.finish(err)
		}
	}
	*b = nil
}
