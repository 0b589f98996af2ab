package engine

import (
	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/wire"
)

// eagerShared is up to which size messages are sent eagerly through shared
// memory, and how much of a larger one is: a record's worth. So each record is an
// envelope and all that belongs to it.
const eagerShared = shm.MaxRecord

// bellBytes is the envelope that wakes a peer.
var bellBytes = wire.Envelope{Kind: wire.EnvelopeBell}.Append(nil)

// ringTransport carries the stream to and from a peer through memory that both share. Only its
// bells need the link. The engine's lock guards all of it, but rx is that of the holder of the
// polling token.
type ringTransport struct {
	link  *linkTransport // for bells
	rings *rings         // among which it is looked at

	seg  *shm.Segment // nil: there is none, so far or any more
	tx   *shm.Sender
	rx   *shm.Receiver
	cpus shm.CPUs    // on which the peer may run
	mem  *shm.Memory // the peer's own memory, if the system lets this process in
	err  error       // why nothing more can be sent
}

// share notes the memory.
func (t *ringTransport) share(seg *shm.Segment) {
	t.seg = seg
	t.tx, t.rx = seg.Ends()
}

// unshare unmaps it, if there is any.
func (t *ringTransport) unshare() {
	if t.seg != nil {
		t.seg.Close()
		t.seg, t.tx, t.rx = nil, nil, nil
	}
}

// trySend sends a record, of which b are the payload, or reports that there is no room. mu is held.
func (t *ringTransport) trySend(head *[shm.HeadSize]byte, b ...[]byte) bool {
	if !t.tx.TrySend(head, b...) {
		switch err := t.tx.Err(); {
		case err != nil && t.err == nil:
			t.err = err
			t.rings.requestSweep()
		case t.rings.asleep: // when that was announced, nothing waited for room here
			t.rings.requestSweep()
		}
		return false
	}
	t.ringBell()
	return true
}

// ringBell has the peer rung, if it sleeps. mu is held.
func (t *ringTransport) ringBell() {
	if t.tx.PeerSleeps() {
		t.link.bellDue = true
	}
}
