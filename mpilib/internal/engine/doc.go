// Package engine passes messages between the processes of a job, and makes
// progress without calls of the program (MPI-4.1, section 3.7.4). It handles bytes,
// world ranks, contexts and tags, but no element types, groups or collectives.
//
// # Protocol
//
// Package protocol below decides which receive matches a message, which messages are unexpected, what is
// sent when, and what a failure ends. It returns effects, which the engine carries out at once (effects.go):
// every call of its Core is followed by carryOut before the lock is released. The engine itself schedules
// the goroutines that read, write and wait, transfers bytes, sets up links, and spreads failures,
// revocations and notes.
//
// A transport (transport.go) carries bytes to a peer, with one queue: over a linkTransport, which has the token
// for reading, and a ringTransport through shared memory.
//
// Engines exchange the envelopes of package wire. A small message is sent eagerly:
// at once, if the receiver has granted credit for unexpected messages. A large one,
// and any without credit, is sent by rendezvous: the sender sends a request to send
// (RTS), followed eagerly by the first bytes (the head) where credit allows that, and
// the receiver answers with a clear to send (CTS) when a receive matches. So a
// receiver's memory is bounded, every link is always read, and a large message whose
// receive is posted in time costs no additional round trip while its head is in flight.
//
// # Reading and writing links
//
// A link is read by one goroutine at a time, the holder of its reading token:
//
//	free --a request is waited for--> the waiter --the request is complete--> free
//	free --free for a tick----------> the peer's reader goroutine --a waiter arrives--> free
//
// A waiter that reads the link itself saves two wake-ups for each message. Without
// waiters the peer's own goroutine takes over, which a clock checks every tick
// (1 ms) while a link is idle.
//
// The link's stream writes. It takes what is queued while not too much waits for the
// kernel, and says when it takes more. A send has it write as much as does not block;
// who waits for a send writes the rest itself, and else a goroutine of the stream does,
// after a tick if the program goes on and does not ask whether anything has come, or is complete.
// A stream refers to large messages in the program's memory: such a request is complete
// once the stream has let go of that. For an eager one nobody awaits the peer: who waits
// for it, or asks whether it is complete, takes it back, and what the peer may still need
// is copied then. What a collective sends is copied at once, up to 64 KiB.
//
// # Shared memory
//
// Processes of one node send everything through shared memory as soon as both have
// mapped it; the link then carries bells, and its end reports the end of the peer. See
// sharedmemory.go for the set-up, rings.go for polling, and zerocopy.go for large
// messages, which the receiver copies from the sender's own buffer. Envelopes are the
// same on both transports. Only the peer's own goroutines read and write the link of
// such a peer. The lock-free ends of a ring are used only with the lock or the polling
// token. Two shortcuts exist for small messages: a receive that is called while its
// message is the next in the ring, or arrives within a moment, takes it from there
// without being posted (direct.go); and an unexpected message stays in the ring while
// the condition of the polling goroutine is met, since that may post the receive next.
//
// # Slots
//
// A slot holds the newest value that one process has put for another (package slot; slots.go, slotends.go). It is
// beside the queue of the transport, which takes a value when it can write and nothing is queued before it,
// or when much has gone before it. A link gets a piece once the kernel has all before it, so that what comes after is the
// newest; carriers with slots hold little that is not sent (TCP_NOTSENT_LOWAT).
//
// # Failures
//
// A link that ends without a goodbye is the failure of its peer, which engines report
// to each other (failure.go). Revocations of contexts spread likewise. Engines also
// carry notes of their owners: these need neither credit nor a receive, and only the
// failure of the link itself delays them.
//
// # State
//
// All state is in the Engine and its protocol.Core, guarded by one lock (mu) that is never held during a
// system call, nor while more than a batch and a message of 64 KiB each are copied. Lock order: an owner's locks, then mu,
// then those of a link's stream, and those that Config.Unallocated and the methods of a Group take, which are called with mu
// held. A stream calls Writable without its own.
// Requests belong to the engine until they are complete; the protocol's part of each is embedded in it.
// Programs hold Handles; the Requests behind those belong to the engine, which reuses them.
package engine
