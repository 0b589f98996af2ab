// Package resume is the core of a stream that survives its carriers: it decides which bytes to
// write on which carrier, which to write again when one has died, and what to do with each frame
// that arrives. It is a state machine. Nothing in it reads a clock or a socket, starts a goroutine
// or takes a lock, and in a steady state it allocates nothing. It does not know the bytes
// themselves (it counts them), the frame format, why a carrier came or went, or when an
// acknowledgement is worth a frame.
//
// A link is two streams, one each way. Each stream has a Sender at one end and a Receiver at the
// other; the acknowledgements of one travel on the carriers of both. A carrier delivers what was
// written on it in order until it dies; then an unknown suffix of it is lost. All state is in these
// two values, and their owner serialises the calls.
//
// # Offsets
//
// Bytes have offsets from 0. The stream's end, the fin, is carried like one more byte after the
// last: it is lost, sent again and acknowledged the same way. So an acknowledgement of 7 means "I
// have bytes 0 to 6" or, when the stream is 6 bytes long, "I have all of it and know that it ends
// there".
//
// # Sender
//
//	   freed        carried by 1  lost   carried by 2    not sent yet   room
//	0 ........... A ============ ###### ============== S ------------ E ..... A+window
//	              acked                                sent           end
//
// Between acked and sent, each byte is in exactly one place: on one living carrier, or lost. Next
// takes the lowest lost bytes first and then new ones, and puts them on a carrier; Ack moves acked;
// Down marks as lost what a dead carrier left unacknowledged, and Abandon what a slow carrier did
// that was left for a better one. Therefore nothing is written twice except what a dead or an
// abandoned carrier left unacknowledged.
//
// A carrier is in one of three states at the Sender, and Down ends each:
//
//	Up(w>0)                 Up(w=0)
//	   |                       |
//	   v      Weight(0)        v
//	active <-------------> standby     active: gets data, in proportion to its weight
//	   |      Weight(w>0)      |       standby: gets data when no carrier is active,
//	   |                       |                the oldest standby alone
//	   +------> draining <-----+       draining: gets none; what it carries is in flight
//	     Drain            Drain
//
// # Receiver
//
//	    delivered         stored         missing     stored
//	0 ............. N - - - - ========== - - - - - - ======== .... N+window
//	                next                                           a frame beyond is refused
//
// # Window
//
// Both ends are made with an implicit window: how far the Sender may be ahead of what is
// acknowledged without any advertised window. For a path with more data in flight the Receiver
// advertises a larger one, by its edge, an offset (Allow), which the Sender is given. An advertised
// edge is not withdrawn, and may arrive late or twice, on whichever carrier; if it is lost for good,
// the stream continues with the implicit window.
//
// # Memory
//
// The Sender's owner keeps the bytes from acked to end, the Receiver's owner the stored ones: each
// at most the largest window so far. In addition, the Sender records which carrier carries what in
// entries of 16 bytes, and the Receiver what is stored, also in entries of 16 bytes:
//
//	entries <= 2*window/Granule + 2*MaxCarriers + 1      (at each of the two)
//	memory  <= window + 4 * 16 bytes * entries           (4: slices grow by doubling)
//
// which is window * 1.125 + 6 KiB including the two values themselves. That is the worst case; one
// carrier needs a single entry.
package resume

import (
	"errors"
	"fmt"
)

// Limits of a stream.
const (
	// MaxCarriers is the maximum number of carriers that are up at once.
	MaxCarriers = 32
	// MaxWindow is the largest window, in bytes.
	MaxWindow = 1 << 30
	// MaxWeight is the largest weight; larger values are reduced to it.
	MaxWeight = 1 << 16
	// MaxOffset is the largest possible end of a stream. Offsets beyond it are a protocol error of
	// the peer, so that no sum of an offset and a length overflows.
	MaxOffset = 1 << 62
	// Granule bounds the bookkeeping, see Memory above: lost bytes are cut only at its multiples,
	// and a frame of new bytes may be delayed while frames shorter than this, on alternating
	// carriers, fill the window.
	Granule = 1 << 10
)

// Carrier identifies a carrier at one end of a link. The caller chooses the id; it must not be
// None, and must not be reused within a link.
type Carrier uint32

// None is no carrier.
const None Carrier = 0

// Frame is a piece of the stream to be written on a carrier.
type Frame struct {
	Off uint64 // of the first byte
	N   int    // bytes; 0 when the frame contains only the fin
	Fin bool   // the stream ends at Off+N; the peer must receive that with or directly after these bytes
}

// Verdict says what to do with a frame's payload: skip Skip bytes, then deliver Deliver bytes or
// store Store bytes (one of the two is 0), and drop the rest. All counts are bytes.
type Verdict struct {
	Skip    int // duplicates at the front
	Deliver int // next in order: to be appended to the delivered bytes
	Store   int // out of order: to be kept by offset until Advance returns them
}

// Errors. Returned errors wrap one of them and give the details.
var (
	// ErrProtocol: the peer sent what no correct peer sends. The link cannot be trusted any more.
	// The state is unchanged by the call.
	ErrProtocol = errors.New("the peer broke the protocol")

	// ErrFragmented: the frame would store one more separate range than the memory bound allows.
	// Only tiny frames striped over carriers that die again and again cause it. The caller must
	// close the carrier on which the frame arrived: what it carries is then sent again, lowest
	// offset first. The state is unchanged by the call.
	ErrFragmented = errors.New("too many separate ranges stored")

	// ErrCarrier: the caller named a carrier that cannot be added.
	ErrCarrier = errors.New("carrier cannot be added")
)

// entriesFor returns how many entries new bytes may use; a receiver stores at most twice as many
// ranges. This gives the bound in the package comment.
func entriesFor(window, granule uint64) int { return int(window/granule) + MaxCarriers }

func checkWindow(window int) uint64 {
	if window < 1 || window > MaxWindow {
		panic(fmt.Sprintf("resume: a window of %d bytes is not between 1 and %d", window, MaxWindow))
	}
	return uint64(window)
}
