// Package reserve books hosts for a job and starts it on all of them, or on none: the reservation
// of P2P-MPI (Genaud and Rattanapoka), in which a submitter asks nodes, in order of latency and
// more of them than it needs, and every node's service answers for its owner.
//
// A Submission is the submitter's side and a Node the node service's. Both are state machines:
// their inputs are messages and the time, their outputs messages and actions. They know no socket,
// clock, file, process or random number. All state is in them and belongs to the caller; neither is
// safe for concurrent use.
//
//	submitter                              node
//	Begin     -- Ask: key, needs -->       allowed? jobs + 1 <= J? room?
//	          <-- OK: hold, P, lease --    held
//	          <-- NOK: reason ---------    (nothing kept)
//	plan; the rest: -- Cancel -->
//	          -- Renew --> <-- OK ---      while files are staged
//	Start     -- Start: hold, ranks -->    key and hold right? started: launch
//	          <-- Started -------------
//	          -- Renew --> <-- Started --   while others start
//	all have  -- Commit -->                running, until the processes exit
//	          <-- Committed -----------
//
// Submissions that find no room ask again. When there is some, the node decides whose it is.
//
// A reservation that is neither renewed nor committed ends with its lease, so a submitter may die
// at any step: nothing stays behind. A node counts as dead to a submitter when it does not answer;
// NOK is an answer.
//
// A key is a secret of 128 bits for one reservation at one node. A Start also names the hold that
// the node gave the reservation; holds are numbered, and each start of the node begins a new
// numbering. So a message of an older reservation starts nothing, however late it arrives, even
// after its key was forgotten.
//
// Messages may be lost, delayed, duplicated or reordered. Asking, renewing, starting, committing
// and cancelling are idempotent: a repetition changes nothing and gets the same answer.
package reserve

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Key names one reservation at one node, once. It comes from a cryptographic random source, and
// a holder of it can use the reservation; String shows only a part of it.
type Key [16]byte

// String returns the first digits of the key, for logs.
func (k Key) String() string { return fmt.Sprintf("%x...", k[:3]) }

// Hold numbers the reservations of a node.
type Hold struct {
	Boot   uint64 // of the node's start
	Serial uint64 // from 1
}

// Message is one of the messages below.
type Message interface{ reservation() Key }

// Ask books: step 3. The connection authenticates the requester.
type Ask struct {
	Key       Key
	Job       overlay.JobID
	Processes int   // the most that the submitter can use on one node
	Memory    int64 // bytes that each process needs; 0: any
	CPU       int   // thousandths of a core that each process needs; 0: any

	Queue  bool          // the submitter will ask again if there is no room
	Waited time.Duration // how long it has done so; 0: it asks for the first time
}

// OK answers an Ask or a Renew: steps 4 and 5.
type OK struct {
	Key       Key
	Hold      Hold
	Processes int           // P: how many the node accepts, 1 to Ask.Processes
	Lease     time.Duration // how long from its sending, unless renewed
	Outdated  bool          // the node does not know something that the job needs, and would run it wrong
}

// NOK refuses an Ask.
type NOK struct {
	Key    Key
	Reason Reason
	Text   string // for people
}

// Renew restarts the lease.
type Renew struct {
	Key  Key
	Hold Hold
}

// Start names the processes to run: steps 6 and 7.
type Start struct {
	Key       Key
	Hold      Hold
	Processes []allocate.Process
}

// Started answers Start: the processes are being launched, step 8.
type Started struct{ Key Key }

// Commit reports that all nodes have started: the lease no longer applies.
type Commit struct {
	Key  Key
	Hold Hold
}

// Committed answers Commit.
type Committed struct{ Key Key }

// Cancel ends a reservation, and its processes if they run.
type Cancel struct{ Key Key }

// Cancelled answers Cancel, whether there was something to cancel or not.
type Cancelled struct{ Key Key }

// Refused refuses a Renew, Start or Commit.
type Refused struct {
	Key    Key
	Reason Reason
	Text   string // for people
}

func (m Ask) reservation() Key       { return m.Key }
func (m OK) reservation() Key        { return m.Key }
func (m NOK) reservation() Key       { return m.Key }
func (m Renew) reservation() Key     { return m.Key }
func (m Start) reservation() Key     { return m.Key }
func (m Started) reservation() Key   { return m.Key }
func (m Commit) reservation() Key    { return m.Key }
func (m Committed) reservation() Key { return m.Key }
func (m Cancel) reservation() Key    { return m.Key }
func (m Cancelled) reservation() Key { return m.Key }
func (m Refused) reservation() Key   { return m.Key }

// Reason is why a node refuses, in one word for programs.
type Reason string

// The reasons of a NOK or Refused.
const (
	Busy    Reason = "busy"    // J: it has the maximum number of jobs
	Denied  Reason = "denied"  // the owner's rules refuse the submitter
	Memory  Reason = "memory"  // too little is left for one process
	CPU     Reason = "cpu"     // likewise
	Used    Reason = "used"    // the key was cancelled, or is in use for something else
	Done    Reason = "done"    // the reservation's processes ran and ended
	Expired Reason = "expired" // the lease of the key ended
	Unknown Reason = "unknown" // no such key or hold here
	TooMany Reason = "toomany" // more processes than were held
	Invalid Reason = "invalid" // the message is invalid

	Outdated Reason = "outdated" // the node's version does not know what the job needs: replicas, or spare process numbers
)
