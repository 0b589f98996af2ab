// Package engine passes messages between the processes of a job: it matches
// them with receives, keeps what comes early, sends what is wanted, and makes
// progress whether or not anybody calls. It knows bytes, world ranks, contexts
// and tags; it refuses to know element types, groups and collectives.
//
// # Protocol
//
// What two engines say to each other are the envelopes of package wire. A small
// message is sent at once (eagerly), as far as the receiver has granted credit
// for messages that find no receive. A large one, and any without credit, is
// offered: its first bytes go along eagerly where credit allows it, and the
// receiver asks for the rest when a receive matches. So a receiver's memory is
// bounded, no link is ever left unread, and a large message that is waited for
// needs no round trip more than a small one as long as its head is on its way for
// that long.
//
// # Who reads and who writes
//
// A link is read by one goroutine at a time, whoever holds its reading turn:
//
//	nobody --wait of a request--> the waiter itself --it has what it wants--> nobody
//	nobody --nobody for a while--> the peer's reader goroutine --a waiter comes--> nobody
//
// A waiter that reads itself spares two wake-ups for each message. When nobody
// waits, a clock sees to it, every millisecond while links are left alone, that
// the peer's own goroutine takes over. Writing has a turn as well: a send
// writes itself what the link takes without waiting, a blocked waiter writes for
// itself, and the peer's writer goroutine does the rest.
//
// # Shared memory
//
// Processes of one node say everything through memory they share as soon as both have
// mapped it, and the link is left to bells and to the news of the other's end; see
// near for how they come to it and rings for who looks when. What an envelope
// means is the same on either way. Nobody writes or reads the link of such a peer but its
// own goroutines, and nothing waits for the ring's lock-free ends but with the lock or the
// polling turn. Two things spare work where messages are small: a receive looks whether its
// message is the next in the ring, for a moment if it is waited for, and takes it
// there without being posted (direct.go); and a message that finds no receive stays in the
// ring while who polls it has what he waited for, since he may post one next.
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
// All of it is in the Engine, guarded by one lock that is never held during a
// system call, nor while more than 64 KiB are copied. Requests belong to the
// engine until they are complete. Programs hold Handles: the Requests behind those are the engine's
// own, and used again and again.
package engine
