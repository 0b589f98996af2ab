package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

const (
	// HeadSize is the size in bytes of a record's head, which belongs to the caller.
	HeadSize = 24

	// MaxRecord is the maximum payload of one record, in bytes. It is the best chunk size for a
	// message of megabytes: the largest for which the copies in and out still overlap well.
	MaxRecord = 32 << 10

	line      = 64       // bytes of a cache line
	inline    = 32       // bytes of payload in the cell itself
	cellCount = 512      // records of a ring in flight, a power of two
	apart     = 2 * line // between words that different processes write

	// A receiver reports its progress once it has this much to report: each report costs the sender
	// a cache line. Together these are far less than a ring holds, so a sender without room always
	// has enough records outstanding to make the receiver report.
	tellCells = cellCount / 8
	tellBytes = 4 << 10
)

// ErrCorrupt is in the error of an end whose peer violated the protocol. That end can no longer
// send or receive.
var ErrCorrupt = errors.New("the shared memory is corrupt")

// A control is the part of a ring with the progress of its ends.
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
	controlBytes = 2 * page // the data should be page-aligned
	cellsBytes   = cellCount * line
	ringBytes    = controlBytes + cellsBytes // without data
)

// ringOf returns the ring in mem, which must be longer than ringBytes and cache-line aligned.
func ringOf(mem []byte) ring {
	return ring{
		control: (*control)(unsafe.Pointer(&mem[0])),
		cells:   (*[cellCount]cell)(unsafe.Pointer(&mem[controlBytes])),
		data:    mem[ringBytes:len(mem):len(mem)],
	}
}

// stamp returns the stamp of record n.
func stamp(n uint64) uint32 { return uint32(n) + 1 }

// ready reports whether record n is present, given its cell's word, and returns an error if the
// word is neither that record's nor that of the previous record in the cell.
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
