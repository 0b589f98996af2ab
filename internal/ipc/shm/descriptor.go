package shm

import (
	"encoding/binary"
	"fmt"
)

// A Descriptor tells a peer how to map a segment, and how to prove that it may read the describing
// process's memory. It is useful only on the same machine, and only to a process that could attach
// to that one anyway; still, send it over an authenticated link only.
type Descriptor struct {
	PID      int32    // process id, in its own namespace
	FD       int32    // its descriptor of the segment, or -1 if it did not create the segment
	Boot     [16]byte // of the running system: Linux's boot_id
	PIDSpace uint64   // inode of the PID namespace
	Nonce    [16]byte // random; in the segment's head and at Proof
	Size     uint64   // of the segment, in bytes
	Proof    uint64   // address of the nonce in the process's private memory
	CPUs     CPUs     // on which the process may run
}

// DescriptorSize is the number of bytes of an encoded Descriptor.
const DescriptorSize = 1 + 4 + 4 + 16 + 8 + 16 + 8 + 8 + 128

const offerVersion = 1

// Append appends the descriptor to b:
//
//	version:u8(1) pid:u32 fd:u32 boot[16] pidspace:u64 nonce[16] size:u64 proof:u64 cpus[16]:u64
//
// in big-endian order.
func (o Descriptor) Append(b []byte) []byte {
	b = append(b, offerVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(o.PID))
	b = binary.BigEndian.AppendUint32(b, uint32(o.FD))
	b = append(b, o.Boot[:]...)
	b = binary.BigEndian.AppendUint64(b, o.PIDSpace)
	b = append(b, o.Nonce[:]...)
	b = binary.BigEndian.AppendUint64(b, o.Size)
	b = binary.BigEndian.AppendUint64(b, o.Proof)
	for _, word := range o.CPUs {
		b = binary.BigEndian.AppendUint64(b, word)
	}
	return b
}

// ParseDescriptor parses what Append wrote. It refuses another version: the two processes then use
// their link instead.
func ParseDescriptor(b []byte) (Descriptor, error) {
	if len(b) != DescriptorSize {
		return Descriptor{}, fmt.Errorf("shm.ParseOffer: %d bytes, not %d", len(b), DescriptorSize)
	}
	if b[0] != offerVersion {
		return Descriptor{}, fmt.Errorf("shm.ParseOffer: version %d, not %d", b[0], offerVersion)
	}
	var o Descriptor
	o.PID = int32(binary.BigEndian.Uint32(b[1:]))
	o.FD = int32(binary.BigEndian.Uint32(b[5:]))
	copy(o.Boot[:], b[9:])
	o.PIDSpace = binary.BigEndian.Uint64(b[25:])
	copy(o.Nonce[:], b[33:])
	o.Size = binary.BigEndian.Uint64(b[49:])
	o.Proof = binary.BigEndian.Uint64(b[57:])
	for i := range o.CPUs {
		o.CPUs[i] = binary.BigEndian.Uint64(b[65+8*i:])
	}
	return o, nil
}
