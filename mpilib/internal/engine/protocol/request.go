package protocol

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/match"
)

// The wildcards of a receive.
const (
	AnySource = int(match.AnySource)
	AnyTag    = int(match.AnyTag)
)

// Mode is the communication mode of a send (MPI-4.1, section 3.4).
type Mode uint8

const (
	Standard    Mode = iota
	Synchronous      // complete once a receive has matched the message
	Buffered         // complete at once: the message is copied
	Copied           // Standard, of a sender that does nothing before it is complete: better copied than lent
)

// State is the state of a request:
//
//	idle -> waiting -> moving -> complete
//	           '--------------------^
type State uint8

const (
	Idle      State = iota
	Waiting         // in a table, a queue, or announced
	Moving          // its bytes are being read or written
	Completed       // the buffer is the caller's again
)

// Result is the outcome of a request.
type Result struct {
	Source    int    // world rank
	Tag       int    // of the message
	Bytes     uint64 // of the message, which may be more than the buffer's with ErrTruncate
	Cancelled bool
}

// A Request is one send or receive. Its memory is the caller's.
type Request struct {
	post    match.Receive[*Request] // of a receive
	Owner   any                     // the caller's
	IsSend  bool
	Mode    Mode
	ByRTS   bool // of a send: it is not sent eagerly, however small
	State   State
	HasCTS  bool // the CTS has arrived
	ended   bool // the receiver needs no more bytes, while moving
	Context uint32
	ID      uint32 // of an RTS or a synchronous send
	Peer    int    // world rank, or AnySource
	Tag     int
	Buf     []byte // not the caller's until complete
	Offset  int    // bytes that were sent, or received, so far

	self    *Message // of a send to this process
	From    *Peer    // of a receive: the sender of the message that it has matched; nil: none, or this process
	Err     error
	GiveUp  error    // why it was abandoned, while moving
	arrival *arrival // of a receive: of the message that it has matched, where ranks have replicas
	Point   uint64   // of a receive: emit Matched when a message has matched it; 0: do not
	Got     Result
}

// Begin makes r a request in state Waiting.
func (r *Request) Begin(owner any, context uint32, peer, tag int, buf []byte) {
	r.Owner, r.State, r.Context, r.Peer, r.Tag, r.Buf = owner, Waiting, context, peer, tag, buf
}

// Complete completes r, and reports whether it was not complete before.
func (r *Request) Complete(err error) bool {
	if r.State == Completed {
		return false
	}
	r.State, r.Err, r.Buf = Completed, err, nil
	return true
}

// destination returns the part of the buffer where the bytes of r's message go: nil if there are too many.
func (r *Request) destination() []byte {
	if r.Err != nil {
		return nil
	}
	return r.Buf[:r.Got.Bytes]
}

// A Message is an unexpected one: it, or its RTS, arrived before its receive was posted.
type Message struct {
	entry    match.Message[*Message]
	Context  uint32
	Source   int    // world rank
	from     *Peer  // whose it is; nil: this process's
	Data     []byte // the bytes that have come
	head     []byte // where the head of a rendezvous message goes while it comes
	Size     uint64 // of all of it
	id       uint32 // of an RTS or a synchronous message
	rts      bool
	Taken    bool          // a receive or a matched probe has it: it cannot be withdrawn
	Sender   *Request      // a send to self that waits for its receive; nil for others
	credit   int           // credit to return once it is taken
	transfer *Transfer     // of an RTS that was matched while its head came
	exposed  ExposedBuffer // of an RTS that exposes its buffer
	arrival  *arrival      // of an RTS, where ranks have replicas
	lost     bool          // and the process that sent it is lost
}

// Tag returns the message's tag.
func (m *Message) Tag() int { return int(m.entry.Tag) }

// A Transfer is a rendezvous message that a receive has matched.
type Transfer struct {
	ID        uint32
	Request   *Request // nil: the receive was given up
	remaining uint64   // bytes to come
	early     uint64   // bytes that were here when it was matched
	ctsFlags  uint8    // the flags of its CTS

	Exposed  ExposedBuffer
	Fetching bool // its bytes are fetched, and do not come
	Busy     bool // who is fetching some of them now completes the receive when the peer is lost
}

func truncated(message uint64, buffer int) error {
	if message > uint64(buffer) {
		return fmt.Errorf("%w: the message has %d bytes, the buffer %d", ErrTruncate, message, buffer)
	}
	return nil
}
