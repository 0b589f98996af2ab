package replica

// An Outcome is what was decided at a point. What the fields mean is the caller's affair, but for those of a
// receive: Source and Tag are the message's, and Source is Cancelled if it got none.
type Outcome struct {
	Source int
	Tag    int
	Data   string // of any other kind of point, at most MaxData bytes
}

// Cancelled is the source in the outcome of a receive that was cancelled.
const Cancelled = -2

// An Entry is an outcome in the log of a rank.
type Entry struct {
	Point   uint64 // from 1, in the order in which the program comes to them
	Kind    uint8  // of the point; the caller's, but for KindReceive
	Sent    uint64 // digest of what the program had sent in order before the point
	Outcome Outcome
}

// KindReceive is the kind of the points of Post. Others are the caller's.
const KindReceive = 0
