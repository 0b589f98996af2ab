package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

const (
	// HeadSize is how many bytes the caller's head of a record has.
	HeadSize = 24

	// MaxRecord is the most bytes of payload that one record carries. It
	// is what a message of megabytes is best cut into: as long as a chunk can be
	// before its copying in and its copying out no longer overlap well.
	MaxRecord = 32 << 10

	line      = 64       // bytes of a cache line
	inline    = 32       // bytes of payload that a cell holds itself
	cellCount = 512      // records of a ring under way at once, a power of two
	apart     = 2 * line // between words that different processes write

	// A receiver says what it is through with once it is so much: each time
	// costs the sender a cache line. Together they are far less than a ring has,
	// so a sender that finds no room always has records outstanding
	// that will make the receiver speak.
	tellCells = cellCount / 8
	tellBytes = 4 << 10
)

// ErrCorrupt is in the error of an end whose peer wrote what no peer that keeps to
// the protocol writes. Nothing more can be sent or received with that end.
var ErrCorrupt = errors.New("the shared memory is corrupt")

// A control is the part of a ring that says how far its ends are.
type control struct {
	done       atomic.Uint64 // written by the receiver
	_          [apart - 8]byte
	recvSleeps atomic.Uint32 // set by the receiver, cleared by both
	_          [apart - 4]byte
	sendSleeps atomic.Uint32 // set by the sender, cleared by both
	_          [apart - 4]byte
	sendsFrom  atomic.Uint32 // written by the sender
	_          [apart - 4]byte
	slots      [CopySlots]copySlot
}

// A cell announces a record.
type cell struct {
	word atomic.Uint64
	head [HeadSize]byte
	body [inline]byte
}

// A ring is one direction of a segment, in the mapping.
type ring struct {
	*control
	cells *[cellCount]cell
	data  []byte
}

const (
	controlBytes = 4096 // a page; the data should begin with one
	cellsBytes   = cellCount * line
	ringBytes    = controlBytes + cellsBytes // without data
)

// ringOf returns the ring in mem, of which there are more than ringBytes, at a multiple
// of a line's size.
func ringOf(mem []byte) ring {
	return ring{
		control: (*control)(unsafe.Pointer(&mem[0])),
		cells:   (*[cellCount]cell)(unsafe.Pointer(&mem[controlBytes])),
		data:    mem[ringBytes:len(mem):len(mem)],
	}
}

// stamp returns the stamp of record n.
func stamp(n uint64) uint32 { return uint32(n) + 1 }

// ready reports whether record n is there, given its cell's word, and
// false with an error if the word is neither that record's nor that of what was
// in the cell before.
func ready(word, n uint64) (bool, error) {
	switch s := uint32(word >> 32); {
	case s == stamp(n):
		return true, nil
	case n >= cellCount && s == stamp(n-cellCount), n < cellCount && word == 0:
		return false, nil
	default:
		return false, fmt.Errorf("shm: record %d has stamp %d: %w", n, s, ErrCorrupt)
	}
}
