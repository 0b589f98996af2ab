// Package resume is the core of a stream that survives its carriers: which
// bytes to write on which carrier, which to write again when one has died, and
// what to make of each frame that comes in. It is a state machine. Nothing in
// it reads a clock or a socket, starts a goroutine or takes a lock, and in a
// steady state nothing is allocated. It refuses to know the bytes themselves
// (it counts them), how a frame looks on the wire, why a carrier came or went,
// and when an acknowledgement is worth a frame.
//
// A link is two streams, one each way. Each stream has a Sender at one end and
// a Receiver at the other; the acknowledgements of one travel on the carriers
// of both. A carrier delivers what was written on it in order until it dies;
// then an unknown suffix of it is lost. All state is in these two values, and
// their owner serialises the calls.
//
// # Offsets
//
// Bytes have offsets from 0. The stream's end, the fin, is carried like one
// more byte behind the last: it is lost, sent again and acknowledged the same
// way. So an acknowledgement of 7 means "I have bytes 0 to 6" or, when the
// stream is 6 bytes long, "I have all of it and know that it ends there".
//
// # Sender
//
//	   freed        carried by 1  lost   carried by 2    not sent yet   room
//	0 ........... A ============ ###### ============== S ------------ E ..... A+window
//	              acked                                sent           end
//
// Between acked and sent, each byte is in exactly one place: on one living
// carrier, or lost. Next takes the lowest lost bytes first and then new ones,
// and puts them on a carrier; Ack moves acked; Down makes lost what a dead
// carrier had not been acknowledged, and Abandon what a slow one had not that was
// left for a better one. Therefore nothing is written twice but what a dead or an
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
//	   +------> draining <-----+       draining: gets none; what it carries is under way
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
// Both ends are made with a window that needs no words: so far may the Sender be ahead of what is
// acknowledged. For a path on which more is under way the Receiver promises more, as
// an offset (Allow), and the Sender learns of it. A promise is not taken back and says no less
// for coming late or twice, on whichever carrier; and should it be lost for good, the
// stream goes on with the window that needs none.
//
// # Memory
//
// The Sender's owner keeps the bytes from acked to end, the Receiver's owner
// the stored ones: at most the window each, which is the largest that it has been. Beside that, the Sender notes who
// carries what in entries of 16 bytes, and the Receiver what is stored, in
// entries of 16 bytes too:
//
//	entries <= 2*window/Granule + 2*MaxCarriers + 1      (at each of the two)
//	memory  <= window + 4 * 16 bytes * entries           (4: slices grow by doubling)
//
// which is window * 1.125 + 6 KiB with the two values themselves. That is the
// worst case; one carrier needs a single entry.
package resume

import (
	"errors"
	"fmt"
)

// Limits of a stream.
const (
	// MaxCarriers is how many carriers may be up at once.
	MaxCarriers = 32
	// MaxWindow is the largest window, in bytes.
	MaxWindow = 1 << 30
	// MaxWeight is the largest weight; larger ones are taken as this one.
	MaxWeight = 1 << 16
	// MaxOffset is where every stream ends at the latest. Offsets beyond are
	// a peer's fault, so that no sum of an offset and a length overflows.
	MaxOffset = 1 << 62
	// Granule bounds the bookkeeping, see Memory above: lost bytes are cut
	// only at its multiples, and a frame of new bytes may be put off while
	// frames shorter than this, on alternating carriers, fill the window.
	Granule = 1 << 10
)

// Carrier names a carrier at one end of a link. The caller chooses; an id is
// not used again within a link, and is not None.
type Carrier uint32

// None is no carrier.
const None Carrier = 0

// Frame is a piece of the stream to be written on a carrier.
type Frame struct {
	Off uint64 // of the first byte
	N   int    // bytes; 0 when the frame brings only the fin
	Fin bool   // the stream ends at Off+N, and the peer is to be told with or directly behind these bytes
}

// Verdict says what to do with a frame's payload: pass over Skip bytes, then
// deliver Deliver bytes or store Store bytes (one of the two is 0), and drop
// what is left. All counts are bytes.
type Verdict struct {
	Skip    int // duplicates at the front
	Deliver int // next in order: the stream goes on with them
	Store   int // out of order: to be kept under their offsets until Advance names them
}

// Faults. Returned errors wrap one of them and say what was found.
var (
	// ErrProtocol: the peer sent what no correct peer sends. The link cannot
	// be trusted any more. The state is as it was before the call.
	ErrProtocol = errors.New("the peer broke the protocol")

	// ErrFragmented: the frame would store one more separate range than the
	// memory bound allows. Only tiny frames striped over carriers that die
	// again and again lead there. The carrier which brought the frame is to be
	// closed: what it carries is then sent again, lowest offset first. The
	// state is as it was before the call.
	ErrFragmented = errors.New("too many separate ranges stored")

	// ErrCarrier: the caller named a carrier that cannot be added.
	ErrCarrier = errors.New("carrier cannot be added")
)

// entriesFor is how many entries new bytes may use, and a receiver stores at
// most twice as many ranges: the bound in the package comment.
func entriesFor(window, granule uint64) int { return int(window/granule) + MaxCarriers }

func checkWindow(window int) uint64 {
	if window < 1 || window > MaxWindow {
		panic(fmt.Sprintf("resume: a window of %d bytes is not between 1 and %d", window, MaxWindow))
	}
	return uint64(window)
}
