package engine

import (
	"slices"
	"unsafe"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// outgoing is the ordered stream of envelopes and payloads to a peer. It goes over the link,
// and after toRing through the peer's ring of shared memory, once the link has taken all that is
// before. The protocol does not ask which it is: its decisions depend on what the methods here
// say of room and sizes.
type outgoing struct {
	link   *linkTransport
	ring   *ringTransport
	inRing bool
}

// toRing sends everything from now on through the ring.
func (o *outgoing) toRing() {
	o.inRing = true
	o.ring.bulk, o.link.bulk = o.link.bulk, nil
}

// any reports whether something is queued.
func (o *outgoing) any() bool { return o.link.queued() || len(o.ring.queue)+len(o.ring.bulk) > 0 }

// clear reports whether a record may go into the ring now: nothing is queued before it.
func (o *outgoing) clear() bool { return o.inRing && o.ring.clear() }

// add queues an envelope and its payload, which is copied.
func (o *outgoing) add(env wire.Envelope, b []byte) {
	if !o.inRing {
		o.link.queue.add(env, b)
		return
	}
	o.ring.add(env, b)
}

// addFromBuffer queues an envelope and n bytes of r's buffer; last completes r.
func (o *outgoing) addFromBuffer(env wire.Envelope, r *Request, at, n int, last bool) {
	if !o.inRing {
		o.link.queue.addFromBuffer(env, r, at, n, last)
		return
	}
	o.ring.addFromBuffer(env, r, at, n, last)
}

// stream has the rest of r's buffer written, for its CTS has come.
func (o *outgoing) stream(r *Request) {
	bulk := &o.link.bulk
	if o.inRing {
		bulk = &o.ring.bulk
	}
	if !slices.Contains(*bulk, r) {
		*bulk = append(*bulk, r)
	}
}

// remove takes r out, and returns how many of its bytes were queued, beside those in bulk.
func (o *outgoing) remove(r *Request) (n int) {
	n = o.link.queue.remove(r)
	o.ring.queue = slices.DeleteFunc(o.ring.queue, func(rec record) bool {
		if rec.r == r {
			n += rec.n
		}
		return rec.r == r
	})
	is := func(b *Request) bool { return b == r }
	o.ring.bulk, o.link.bulk = slices.DeleteFunc(o.ring.bulk, is), slices.DeleteFunc(o.link.bulk, is)
	return n
}

// replace sends another request's buffer in r's place.
func (o *outgoing) replace(r, by *Request) {
	o.link.queue.replace(r, by)
	for i := range o.ring.queue {
		if o.ring.queue[i].r == r {
			o.ring.queue[i].r = by
		}
	}
	for _, bulk := range [][]*Request{o.ring.bulk, o.link.bulk} {
		for i, b := range bulk {
			if b == r {
				bulk[i] = by
			}
		}
	}
}

// fail completes all requests in it with err, but those that are being written.
func (o *outgoing) fail(err error) {
	for _, r := range o.queued() {
		r.finish(err)
	}
	for _, r := range slices.Concat(o.link.bulk, o.ring.bulk) {
		if r.State != moving { // else its buffer is being read
			r.finish(err)
		}
	}
	o.link.queue.queue, o.link.bulk, o.ring.queue, o.ring.bulk = nil, nil, nil, nil
}

// queued returns the requests of which something is queued, beside bulk.
func (o *outgoing) queued() (all []*Request) {
	for _, s := range o.link.queue.queue {
		if s.r != nil {
			all = append(all, s.r)
		}
	}
	for _, rec := range o.ring.queue {
		if rec.r != nil {
			all = append(all, rec.r)
		}
	}
	return all
}

// segmentSize is what a queued answer costs beside its bytes.
const segmentSize = int(unsafe.Sizeof(segment{}))

// answers returns how many bytes are queued besides the program's messages.
func (o *outgoing) answers() (n int) {
	for i := range o.link.queue.queue {
		if s := &o.link.queue.queue[i]; s.r == nil {
			n += len(s.copied) + segmentSize
		} else { // a message of the program's, behind what else is written
			n += max(0, len(s.copied)-wire.EnvelopeLen)
		}
	}
	for i := range o.ring.queue {
		if rec := &o.ring.queue[i]; rec.r == nil {
			n += len(rec.copied) + segmentSize
		}
	}
	return n
}

// sendSmall sends or queues a small message at once, and reports whether it did: not where it
// is too large to be copied, or there is no room. mu is held.
func (p *peer) sendSmall(env wire.Envelope, b []byte) bool {
	if p.out.inRing {
		return len(b) <= eagerShared && p.out.clear() && p.ring.sendRecord(env, b)
	}
	if len(b) >= gatherBelow || len(b) > p.eagerLimit() || p.link.queue.full() {
		return false
	}
	p.link.queue.add(env, b)
	return true
}

// sendEager sends or queues r's message, and reports whether r's buffer is the caller's again.
// mu is held.
func (p *peer) sendEager(env wire.Envelope, r *Request) (copied bool) {
	switch n := len(r.Buf); {
	case p.out.clear() && p.ring.sendRecord(env, r.Buf):
		return true
	case p.out.inRing || n >= gatherBelow || p.link.queue.full():
		p.out.addFromBuffer(env, r, 0, n, true)
		return false
	default:
		p.link.queue.add(env, r.Buf)
		return true
	}
}

// queueOrSend queues an envelope and its payload, or sends them at once where they go through
// shared memory and there is room. mu is held.
func (p *peer) queueOrSend(env wire.Envelope, b []byte) {
	if p.out.clear() && p.ring.sendRecord(env, b) {
		return
	}
	p.out.add(env, b)
}

// sendLast sends a last envelope, as far as that needs no waiting. mu is held.
func (p *peer) sendLast(env wire.Envelope) {
	switch {
	case p.link.l == nil:
	case p.out.inRing:
		p.ring.sendRecord(env, nil)
	case !p.link.writing.busy:
		p.link.l.Conn.Post(env.Append(nil))
	}
}

// eagerLimit returns the largest message that is sent eagerly, if there is credit.
func (p *peer) eagerLimit() int {
	if p.link.l == nil {
		return protocol.EagerShort
	}
	if p.out.inRing {
		return eagerShared
	}
	if p.proto.PathDue() {
		_, rtt := p.link.l.Current()
		p.proto.SetPath(rtt, p.link.l.Bandwidth())
	}
	return p.proto.EagerSize()
}

// maxHead returns how many bytes of a rendezvous message may follow its RTS, if there is credit.
func (p *peer) maxHead() int {
	if p.out.inRing {
		return eagerShared
	}
	return max(p.proto.HeadSize(), p.eagerLimit())
}

// queueControl queues an envelope without a message. mu is held.
func (p *peer) queueControl(env wire.Envelope) {
	if p.proto.Failed == nil {
		p.queueOrSend(env, nil)
	}
}
