package shm

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
)

// A Receiver is the receiving end of a ring. It is for one goroutine at a time.
type Receiver struct {
	ring ring
	err  error

	at   uint64         // number of the record that is next
	size int            // of its payload, once Next showed it
	have bool           // whether Next did
	head [HeadSize]byte // its copy

	told      uint64 // records the sender was told of
	untold    int    // bytes of data since
	announced bool   // that this end sleeps
}

// Next returns the next record, if there is one. The payload lies in the
// shared memory: it stands until Done, but a peer that breaks the protocol could
// change it before. The head is a copy and stands as long. Called again before
// Done it returns the same record. An error is final.
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

// Ready reports whether Next has something to say, a record or an error. It costs
// one load from memory that changes only then.
func (r *Receiver) Ready() bool {
	before := uint32(0)
	if r.at >= cellCount {
		before = stamp(r.at - cellCount)
	}
	return uint32(r.ring.cells[r.at%cellCount].word.Load()>>32) != before || r.err != nil
}

// check is for a word that announces no record: an error if none ever could
// follow it.
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

// Done gives back the record that Next returned. It reports whether the sender
// must be woken because it waits for room: true once per sleep.
func (r *Receiver) Done() (wake bool) {
	if !r.have {
		panic("shm: Done without a record")
	}
	r.have = false
	r.at++
	if r.size > inline {
		r.untold += r.size
	}
	if r.untold < tellBytes && r.at-r.told < tellCells {
		return false
	}
	r.told, r.untold = r.at, 0
	raceRelease()
	r.ring.done.Store(r.at)
	return claim(&r.ring.sendSleeps)
}

// From returns the processor on which the peer said it runs, or -1.
func (r *Receiver) From() int { return int(r.ring.sendsFrom.Load()) - 1 }

// Sleep announces that the caller will not look again before it is woken, and
// reports true, unless something came meanwhile, or the ring is corrupt: then nothing is
// announced. Next takes the announcement back when it finds a record.
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

// Awake takes back what Sleep announced, for a receiver that woke by itself and
// wants no wake-up in vain.
func (r *Receiver) Awake() {
	r.ring.recvSleeps.Store(0)
	r.announced = false
}

// claim reports whether the flag is set, and clears it.
func claim(flag *atomic.Uint32) bool {
	return flag.Load() != 0 && flag.Swap(0) != 0
}
