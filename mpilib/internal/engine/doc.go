// Package engine passes messages between the processes of a job, and makes
// progress whether or not anybody calls. It knows bytes, world ranks, contexts
// and tags; it refuses to know element types, groups and collectives.
//
// # Protocol
//
// Package protocol below decides: which receive gets a message, what is kept, what is sent when,
// what a loss ends. It returns effects, which the engine carries out at once (effects.go): every call
// of its Core is followed by carryOut before the lock is given up. What remains here is who
// reads and writes, how bytes go, who waits and is woken, how links are made, how news of
// failures spread, and notes.
//
// How bytes go to a peer is the part of a transport (transport.go): a linkTransport has the link,
// its queue, and who reads and writes it; a ringTransport has the memory that both share; a peer
// has a switchTransport, which holds both.
//
// Two engines talk in the envelopes of package wire. A small message is sent
// eagerly: at once, as far as the receiver has granted credit for messages that
// find no receive. A large one, and any without credit, is sent by rendezvous: the
// sender announces it (RTS), its first bytes (the head) follow eagerly where credit
// allows that, and the receiver asks for the rest (CTS) when a receive matches. So a
// receiver's memory is bounded, every link is always read, and a large message that
// is waited for costs no round trip more than a small one as long as its head is
// under way.
//
// # Who reads and who writes
//
// A link is read by one goroutine at a time, whoever holds its reading token:
//
//	nobody --wait of a request--> the waiter itself --it has what it wants--> nobody
//	nobody --nobody for a while--> the peer's reader goroutine --a waiter comes--> nobody
//
// A waiter that reads itself spares two wake-ups for each message. When nobody
// waits, a clock sees to it, every millisecond while links are left alone, that
// the peer's own goroutine takes over. Writing has a token as well: a send
// writes itself what the link takes without waiting, a blocked waiter writes for
// itself, and the peer's writer goroutine does the rest.
//
// # Shared memory
//
// Processes of one node send everything through memory they share as soon as both
// have mapped it; the link is left to bells and to the end of the peer. See
// sharedmemory.go for how they set it up, rings.go for who looks when, and
// zerocopy.go for large messages, which the receiver copies from the sender's own
// buffer. An envelope means the same on either way. Only the peer's own goroutines
// read and write the link of such a peer. The lock-free ends of a ring are used
// with the lock or the polling token alone. Two things save work where messages are
// small: a receive looks whether its message is the next in the ring, for a moment
// if it is waited for, and takes it there without being posted (direct.go); and a
// message that finds no receive stays in the ring while the goroutine that polls has
// what it waited for, since it may post the receive next.
//
// # Failures
//
// The end of a link without a goodbye is the failure of its peer, and news that
// spread from engine to engine (failure.go). Contexts can be revoked, which spreads
// likewise. Beside messages the owner's notes go from engine to engine: they need
// neither credit nor a receive, and nothing that fails holds them up but the
// link itself.
//
// # State
//
// All of it is in the Engine and its protocol.Core, guarded by one lock that is never held during a
// system call, nor while more than 64 KiB are copied. Requests belong to the
// engine until they are complete; the protocol's part of each is embedded in it. Programs hold Handles: the Requests behind those are the engine's
// own, and used again and again.
package engine
