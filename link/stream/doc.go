// Package stream carries two streams of bytes, one each way, between two processes over carriers
// that come and go. A Stream is a net.Conn that does not end when a carrier does: what a dead
// carrier left unacknowledged is sent again on the others, or on the next.
//
//	Write --> outbox --+--> carrier --- header, bytes ---> carrier --+--> Read
//	          (unacked) \-> carrier ----------------------> carrier -/     |
//	             ^                                            \-> inbox ---'
//	             '------------ acknowledgements ------------------ (taken)
//
// Package resume decides which bytes go on which carrier; this package moves them. It does not know
// who the peer is, how a carrier was made and authenticated, or when another one is wanted: its
// owner attaches carriers, says which of them to send on, and is notified when one dies or falls
// silent.
//
// # Goroutines
//
// With a single carrier in use there is no goroutine between a caller and the socket. Write and Push
// hand bytes to the kernel themselves, and so does Flush as far as that does not block, unless many
// small writes follow each other: those are gathered, and the carrier's own goroutine writes them. What
// Flush leaves is written by the next call, or by that goroutine when it is told. Append refuses more while much waits for the kernel; whoever has
// written, or read that the peer has taken more, calls the user's Writable. Read reads the carrier on which data arrives (the
// lead) itself, straight into the caller's buffer if that is large. Goroutines read the other
// carriers, and the lead while no Read is pending.
//
// Where several carriers share the load their goroutines write them all, a piece at a time, and
// read them all, and Read takes from the inbox what is in order.
//
// # Memory
//
// A stream holds what the peer has not acknowledged and was not lent, and what arrived and was not
// read: at most a window and two pages of 64 KiB each. A window is Window, and up to MaxWindow
// where the path needs it and the process has lent no more than extraBytes to its streams. Added to
// that are 64 KiB for each page that a lent buffer shares with copied bytes, 68 KiB a carrier for
// reading, and about 12 KiB. An idle stream keeps only the carriers' buffers and those 12 KiB:
//
//	memory <= 2*(window + 128 KiB) + carriers*68 KiB + 12 KiB (and 16 KiB once a window has grown)
//
// A Stream's mutex guards all its state.
package stream
