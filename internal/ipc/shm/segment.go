package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

const (
	// DefaultData is the default number of payload bytes in each direction of a segment. Small
	// messages use only its first 64 KiB; for processes with very many peers, MinData costs large
	// messages a tenth of their speed.
	DefaultData = 512 << 10

	// MinData and MaxData bound it. With MinData, a record of the largest size always finds room
	// once the receiver has taken everything that was sent and reported so.
	MinData = 4 * MaxRecord
	MaxData = 64 << 20

	page       = 4096
	headBytes  = page
	minSegment = headBytes + 2*(ringBytes+MinData)
	maxSegment = headBytes + 2*(ringBytes+MaxData)
)

// The contents of a segment, and their layout.
const (
	ringsLayout        = 2
	sharedBufferLayout = 1 << 16
)

var magic = [8]byte{'i', 's', 't', 'h', 's', 'h', 'm', '\n'}

// segmentHead is the start of a segment.
type segmentHead struct {
	magic   [8]byte
	version uint32
	_       uint32
	size    uint64
	nonce   [16]byte
}

// ErrElsewhere is in the error of [Open] and [OpenMemory] when the peer runs on another machine or
// in another PID namespace, as far as can be determined.
var ErrElsewhere = errors.New("the peer is not in this machine's PID namespace")

// A Segment is memory that two processes have mapped. It is not safe for concurrent use.
type Segment struct {
	mem     []byte
	fd      int  // -1 once closed, or if opened
	creator bool // determines which ring it sends on
	offer   Descriptor
	proof   *[16]byte // what the descriptor's Proof points to
}

// sizeOf returns the size of a segment with data bytes in each direction.
func sizeOf(data int) (int, error) {
	if data == 0 {
		data = DefaultData
	}
	if data < MinData || data > MaxData || data%page != 0 {
		return 0, fmt.Errorf("%d bytes in each direction: want a multiple of %d from %d to %d", data, page, MinData, MaxData)
	}
	return headBytes + 2*(ringBytes+data), nil
}

// checkSize validates a size sent by a peer.
func checkSize(size uint64) error {
	if size < minSegment || size > maxSegment || (size-minSegment)%(2*page) != 0 {
		return fmt.Errorf("a segment of %d bytes: want %d to %d, in steps of %d", size, minSegment, maxSegment, 2*page)
	}
	return nil
}

func (s *Segment) head() *segmentHead { return (*segmentHead)(unsafe.Pointer(&s.mem[0])) }

// Descriptor returns what the peer needs. On the creator's side that is for [Open]; on the other
// side it is for [OpenMemory] only. It is valid until Close.
func (s *Segment) Descriptor() Descriptor { return s.offer }

// Ends returns the two ends of this process. Call it once: two senders for one ring would overwrite
// each other's records. Do not use them once the segment is closed: an access to unmapped memory
// ends the process.
func (s *Segment) Ends() (*Sender, *Receiver) {
	half := (len(s.mem) - headBytes) / 2
	out, in := s.mem[headBytes:headBytes+half:headBytes+half], s.mem[headBytes+half:]
	if !s.creator {
		out, in = in, out
	}
	return &Sender{ring: ringOf(out)}, &Receiver{ring: ringOf(in)}
}

// checkHead compares the mapped head with the descriptor.
func (s *Segment) checkHead(o Descriptor, layout uint32) error {
	h := *s.head()
	switch {
	case h.magic != magic:
		return fmt.Errorf("it begins with %x, not as a segment does", h.magic)
	case h.version != layout:
		return fmt.Errorf("its layout is %d, not %d", h.version, layout)
	case h.size != o.Size:
		return fmt.Errorf("it says to have %d bytes, not %d", h.size, o.Size)
	case h.nonce != o.Nonce:
		return errors.New("it has another nonce: it is not what was offered")
	}
	return nil
}

// parseUUID parses 16 bytes in hexadecimal digits with dashes.
func parseUUID(s string) (id [16]byte, err error) {
	var a uint32
	var b, c, d uint16
	var e uint64
	if _, err := fmt.Sscanf(s, "%08x-%04x-%04x-%04x-%012x", &a, &b, &c, &d, &e); err != nil || e>>48 != 0 {
		return id, fmt.Errorf("%q is no UUID", s)
	}
	binary.BigEndian.PutUint32(id[0:], a)
	binary.BigEndian.PutUint16(id[4:], b)
	binary.BigEndian.PutUint16(id[6:], c)
	binary.BigEndian.PutUint16(id[8:], d)
	binary.BigEndian.PutUint16(id[10:], uint16(e>>32))
	binary.BigEndian.PutUint32(id[12:], uint32(e))
	return id, nil
}
