package shm

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
)

// A Receiver is the receiving end of a ring. It is not safe for concurrent use.
type Receiver struct {
	ring ring
	err  error

	at   uint64         // number of the next record
	size int            // of its payload, once Next returned it
	have bool           // Next returned it
	head [HeadSize]byte // copy of its head

	acked     uint64 // records acknowledged to the sender
	untold    int    // bytes of data since
	announced bool   // that this end sleeps
}

// Next returns the next record, if there is one. The payload is in the shared memory: it is valid
// until Done, but a peer that breaks the protocol could modify it earlier. The head is a copy and
// valid for the same time. A call before Done returns the same record. An error is permanent.
func (r *Receiver) Next() (head *[HeadSize]byte, payload []byte, ok bool, err error) {
	c := &r.ring.cells[r.at%cellCount]
	word := c.word.Load()
	if uint32(word>>32) != stamp(r.at) || r.err != nil {
		return nil, nil, false, r.check(word)
	}
	raceAcquire()
	n := int(uint32(word))
	switch {
	case n <= inline:
		payload = c.body[:n:n]
	case n > MaxRecord:
		return nil, nil, false, r.corrupt("%d bytes long", n)
	default:
		at := binary.NativeEndian.Uint64(c.body[:]) // once: it may change
		if at > uint64(len(r.ring.data)-n) {
			return nil, nil, false, r.corrupt("%d bytes long at %d of %d", n, at, len(r.ring.data))
		}
		payload = r.ring.data[at : at+uint64(n) : at+uint64(n)]
	}
	r.head, r.size, r.have = c.head, n, true
	if r.announced {
		r.Awake()
	}
	return &r.head, payload, true, nil
}

// Ready reports whether Next has a result, a record or an error. It costs one load from memory that
// changes only then.
func (r *Receiver) Ready() bool {
	before := uint32(0)
	if r.at >= cellCount {
		before = stamp(r.at - cellCount)
	}
	return uint32(r.ring.cells[r.at%cellCount].word.Load()>>32) != before || r.err != nil
}

// check handles a word that announces no record: it returns an error if none can ever follow it.
func (r *Receiver) check(word uint64) error {
	if r.err == nil {
		_, r.err = ready(word, r.at)
	}
	return r.err
}

func (r *Receiver) corrupt(format string, args ...any) error {
	r.err = fmt.Errorf("shm: record %d is %s: %w", r.at, fmt.Sprintf(format, args...), ErrCorrupt)
	return r.err
}

// Done releases the record that Next returned. It reports whether the sender must be woken because
// it waits for room: true once per sleep.
func (r *Receiver) Done() (wake bool) {
	if !r.have {
		panic("shm: Done without a record")
	}
	r.have = false
	r.at++
	if r.size > inline {
		r.untold += r.size
	}
	if r.untold < tellBytes && r.at-r.acked < tellCells {
		return false
	}
	r.acked, r.untold = r.at, 0
	raceRelease()
	r.ring.done.Store(r.at)
	return claim(&r.ring.sendSleeps)
}

// From returns the processor on which the peer reported to run, or -1.
func (r *Receiver) From() int { return int(r.ring.sendsFrom.Load()) - 1 }

// Sleep announces that the caller will not check again before it is woken, and returns true, unless
// a record arrived meanwhile, or the ring is corrupt: then it announces nothing. Next revokes the
// announcement when it finds a record.
func (r *Receiver) Sleep() bool {
	r.ring.recvSleeps.Store(1)
	r.announced = true
	word := r.ring.cells[r.at%cellCount].word.Load() // after the store: see the package's documentation
	if is, err := ready(word, r.at); is || err != nil || r.err != nil {
		r.Awake()
		return false
	}
	return true
}

// Awake revokes the announcement of Sleep, for a receiver that woke by itself and wants no
// unnecessary wake-up.
func (r *Receiver) Awake() {
	r.ring.recvSleeps.Store(0)
	r.announced = false
}

// claim reports whether the flag is set, and clears it.
func claim(flag *atomic.Uint32) bool {
	return flag.Load() != 0 && flag.Swap(0) != 0
}
