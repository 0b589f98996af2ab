// Package stream carries two streams of bytes, one each way, between two
// processes over carriers that come and go. A Stream is a net.Conn that does
// not end when a carrier does: what a dead one left unacknowledged goes out
// again on the others, or on the next.
//
//	Write --> outbox --+--> carrier --- header, bytes ---> carrier --+--> Read
//	          (unacked) \-> carrier ----------------------> carrier -/     |
//	             ^                                            \-> inbox ---'
//	             '------------ acknowledgements ------------------ (taken)
//
// Which bytes go on which carrier is decided in package resume; this package
// moves them. It refuses to know who the peer is, how a carrier was made and
// authenticated, and when another one is wanted: its owner attaches carriers,
// says which of them to send on, and hears when one dies or falls silent.
//
// # Who does the work
//
// There is no goroutine between a caller and the socket where one carrier does
// all the work. Write hands its bytes to the kernel itself, unless many small
// ones follow each other: those are gathered, and the carrier's own goroutine
// writes them. Read reads the carrier on which data comes (the lead) itself,
// straight into the caller's buffer where that is large. Whatever else comes,
// and what comes while nobody is in Read, is read by goroutines.
//
// Where several carriers share the work their goroutines write them all, a piece
// at a time, and read them all, and Read takes from the inbox what is in order.
//
// # Memory
//
// A stream holds what the peer has not acknowledged and was not lent, and what
// came in and was not read: at most a window and two pages of 64 KiB each. A window is Window,
// and up to MaxWindow where the path has use for it and the process has lent no more than
// extraBytes to its streams. To
// that come 64 KiB for each page which a lent buffer shares with copied bytes, 68 KiB a
// carrier to read into, and about 12 KiB. Idle, what stays is the
// carriers' buffers and those 12 KiB:
//
//	memory <= 2*(window + 128 KiB) + carriers*68 KiB + 12 KiB (and 16 KiB once a window has grown)
//
// A Stream's mutex guards all its state.
package stream
