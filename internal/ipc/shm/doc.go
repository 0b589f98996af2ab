// Package shm carries messages between two processes of one machine through memory that both have
// mapped. It complements an existing link between the two, which exchanges their descriptors,
// reports the peer's end, and wakes a sleeping process: this package makes no system call to send
// or to receive, parks no goroutine and does not detect death.
//
// It knows nothing of what it carries: no ranks, no tags, no requests. A record is a head of 24
// bytes and up to 32 KiB of payload; the caller splits longer messages.
//
// # A segment
//
// [Create] makes the memory, as an anonymous file (memfd_create) that is deleted with the last
// process that has it. Its [Descriptor] is sent over the link to the peer, which passes it to
// [Open]. All state is in the segment and in the two ends that [Segment.Ends] returns.
//
//	0     head: magic[8] version:u32 0:u32 size:u64 nonce[16]
//	4096  ring that the creator sends on: control, cells, data
//	...   ring that the opener sends on: the same
//
// A ring's control has four words of at most 8 bytes, 128 bytes apart so that no two share what a
// processor fetches at once:
//
//	0     done: how many records the receiver is through with, a little late
//	128   1 while the receiver sleeps
//	256   1 while the sender sleeps, for want of room
//	384   u32: the processor the sender last said it runs on, plus one; 0 before
//	512   120 copy slots of 64 bytes: word:u64 helped:u64; see copyslot.go
//
// Numbers are in the machine's own byte order.
//
// # A ring
//
// A ring has one sender and one receiver. Its records are announced in a circular array of cells,
// each a cache line:
//
//	0   word: stamp in the upper half, length of the payload in the lower
//	8   head of the record
//	32  the payload, if that is at most 32 bytes long; else offset:u64 into data
//
// The stamp of the n-th record, counted from 0, is n+1 (modulo 2^32): a cell with the stamp of the
// previous round is not filled yet. So a small message transfers one cache line and no index, and a
// polling receiver reads nothing else. The word is stored last: of a sender that dies at any moment
// only complete records remain.
//
// Longer payloads are in the data, one after the other and each contiguous. The sender allocates
// them, and starts at the front again whenever the receiver has taken everything, because memory
// used recently is in the cache.
//
// # A shared buffer
//
// [CreateSharedBuffer] makes memory for more than two processes: a [SharedBuffer], on which each of
// them posts data that all others may read. After the head, each has:
//
//	0      at: the stamp it has posted for last
//	128    1 while it sleeps; by that word (a futex) the others wake it
//	256    64 cells of 128 bytes: stamp:u64 size:u32 piece:u32, and the payload if that is
//	       at most 112 bytes long
//	12288  4 pieces of 64 KiB, for longer ones
//
// The stamp is stored last, and the cell's before at. A process overwrites a cell, or a piece, when
// all others have posted for a later stamp, because they have then read it, or will not. A process
// that sleeps here wakes by itself every 20 to 100 ms: it is not notified of a death.
//
// # Trust
//
// The peer is a process of the same job, but may be broken. Whatever it writes, an end reads and
// writes only within its mapping, and an impossible number ends the ring with [ErrCorrupt]. The
// segment is sealed: it cannot shrink under a reader. Heads are copied before they are returned;
// the bytes of a payload can change until they are copied, so copy them before you base a decision
// on them.
//
// # Sleeping
//
// A process that is about to sleep announces that (a store), then checks again (a load). A sender
// stores the record, then checks whether the peer sleeps. All four are sync/atomic's, which are
// sequentially consistent: at least one of the two sees what the other did, so either the record is
// seen or its receiver is woken. The same holds for room.
//
// # Without a segment
//
// [OpenMemory] reads and writes the peer's own memory by system calls (process_vm_readv and
// process_vm_writev), one copy instead of two. Where both processes have a processor, the best
// measured for 256 KiB and more is that each copies one half of a message through the other's
// memory at the same time. Where they share a processor, it saves the second copy. Many systems do
// not permit it.
//
// Linux only: elsewhere every call that would make a segment fails.
package shm
