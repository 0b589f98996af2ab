package resume

import "fmt"

// Receiver is the receiving half of a stream: it decides what to do with the frames that arrive on
// any carrier, and what to acknowledge. It is not safe for concurrent use.
type Receiver struct {
	next      uint64 // offset of the next byte to deliver
	window    uint64
	edge      uint64 // everything below is accepted, even beyond the window
	stored    spans  // above next, never touching it once Advance has returned false
	fin       bool   // the end is known
	finAt     uint64 // the end, if known
	ackSent   uint64 // the latest acknowledgement sent, on carrier ackSentOn
	ackSentOn Carrier
	ranges    int // maximum number of stored ranges

	granule uint64
}

// NewReceiver returns the receiver of an empty stream. The window is how far beyond the delivered
// bytes a frame may reach unless Allow says more, from 1 to MaxWindow, and no smaller than the
// window of the peer's Sender; NewReceiver panics on one out of this range.
func NewReceiver(window int) *Receiver {
	r := &Receiver{window: checkWindow(window)}
	r.setGranule(Granule)
	return r
}

func (r *Receiver) setGranule(g uint64) { r.granule, r.ranges = g, 2*entriesFor(r.window, g) }

// Allow makes the Receiver accept everything below edge from now on. Call it before advertising
// edge to the peer, on any carrier. An advertised edge is not withdrawn: one below an earlier one
// changes nothing, and neither does one more than MaxWindow ahead.
func (r *Receiver) Allow(edge uint64) {
	if r.edge = max(r.edge, min(edge, r.next+MaxWindow)); r.edge > r.next+r.window {
		r.ranges = max(r.ranges, 2*entriesFor(r.edge-r.next, r.granule))
	}
}

// limit returns the offset after everything that is accepted.
func (r *Receiver) limit() uint64 { return max(r.next+r.window, r.edge) }

// Look returns what to do with n bytes at off, and changes nothing: for a caller that wants to read
// a payload directly to its place. The caller then calls Data with what has arrived, all of it or
// piece by piece; if the carrier dies before, no byte is counted that was not read. While carriers
// are read concurrently, another may deliver the same bytes between Look and Data (only if the
// sender took this carrier for dead); Data's verdict is the one that counts.
//
// A frame that reaches beyond the window, the stream's end or MaxOffset is an ErrProtocol. See also
// ErrFragmented.
func (r *Receiver) Look(off uint64, n int) (Verdict, error) {
	if err := r.check(off, n); err != nil {
		return Verdict{}, err
	}
	end := off + uint64(n)
	switch {
	case end <= r.next || n == 0:
		return Verdict{Skip: n}, nil
	case off <= r.next:
		skip := int(r.next - off)
		return Verdict{Skip: skip, Deliver: n - skip}, nil
	}
	a, b, separate := r.stored.missing(off, end)
	if separate && len(r.stored) >= r.ranges {
		return Verdict{}, fmt.Errorf("resume: %d bytes at %d, while %d ranges wait for byte %d: %w", n, off, len(r.stored), r.next, ErrFragmented)
	}
	return Verdict{Skip: int(a - off), Store: int(b - a)}, nil
}

func (r *Receiver) check(off uint64, n int) error {
	switch {
	case n < 0 || off > MaxOffset || uint64(n) > MaxOffset-off:
		return fmt.Errorf("resume: %d bytes at %d do not fit in a stream: %w", n, off, ErrProtocol)
	case r.fin && off+uint64(n) > r.finAt:
		return fmt.Errorf("resume: %d bytes at %d, but the stream ends at %d: %w", n, off, r.finAt, ErrProtocol)
	case off+uint64(n) > r.limit():
		return fmt.Errorf("resume: %d bytes at %d reach beyond the window of %d from %d: %w", n, off, r.limit()-r.next, r.next, ErrProtocol)
	}
	return nil
}

// Data records that n bytes at off have arrived, and returns what to do with them, as Look would
// have. Bytes to deliver follow those delivered before, and stored ones may follow them: call
// Advance.
func (r *Receiver) Data(off uint64, n int) (Verdict, error) {
	if off == r.next && len(r.stored) == 0 && !r.fin && n > 0 && uint64(n) <= r.window && off <= MaxOffset-uint64(n) {
		r.next += uint64(n) // the only case with a single carrier
		return Verdict{Deliver: n}, nil
	}
	v, err := r.Look(off, n)
	if err != nil {
		return v, err
	}
	start := off + uint64(v.Skip)
	switch {
	case v.Deliver > 0:
		r.next = start + uint64(v.Deliver)
		r.stored.dropBelow(r.next)
	case v.Store > 0:
		r.stored.add(start, start+uint64(v.Store))
	}
	return v, nil
}

// Advance returns the stored bytes that are next in order and counts them as delivered, or returns
// false when there are none.
func (r *Receiver) Advance() (off uint64, n int, ok bool) {
	if len(r.stored) == 0 || r.stored[0].start != r.next {
		return 0, 0, false
	}
	first := r.stored[0]
	r.next = first.end
	r.stored.dropBelow(r.next)
	return first.start, int(first.end - first.start), true
}

// Fin records that by the peer's account the stream ends at off. It may arrive before bytes below
// it and more than once. One that contradicts what is known, or is beyond the window or MaxOffset,
// is an ErrProtocol.
func (r *Receiver) Fin(off uint64) error {
	switch {
	case r.fin && off != r.finAt:
		return fmt.Errorf("resume: the stream ends at %d, but an end at %d was told before: %w", off, r.finAt, ErrProtocol)
	case off < r.next || off < r.stored.end():
		return fmt.Errorf("resume: the stream ends at %d, but bytes up to %d came before: %w", off, max(r.next, r.stored.end()), ErrProtocol)
	case off > r.limit() || off > MaxOffset:
		return fmt.Errorf("resume: an end at %d is beyond the window of %d from %d: %w", off, r.limit()-r.next, r.next, ErrProtocol)
	}
	r.fin, r.finAt = true, off
	return nil
}

// Ended reports whether the whole stream was delivered and the fin has arrived.
func (r *Receiver) Ended() bool { return r.fin && r.next == r.finAt }

// Next returns the offset of the next byte to deliver.
func (r *Receiver) Next() uint64 { return r.next }

// Stored returns how many bytes wait for earlier ones: less than the window.
func (r *Receiver) Stored() uint64 { return r.stored.bytes() }

// Ack returns the current acknowledgement: everything below was delivered, and the fin counts as
// one byte. A handshake sends it as peerHas.
func (r *Receiver) Ack() uint64 {
	if r.Ended() {
		return r.finAt + 1
	}
	return r.next
}

// Due returns how many bytes there are to acknowledge since the last acknowledgement was sent, the
// fin as one. The caller decides when that is worth a frame, but anything above 0 must be
// acknowledged in bounded time. After the carrier died on which the last one was sent, everything
// is due again, since it may not have arrived.
func (r *Receiver) Due() uint64 { return r.Ack() - r.ackSent }

// Tell returns the Ack and records that it is sent to the peer on a carrier, in a frame or in the
// carrier's handshake (the carrier need not be up for that).
func (r *Receiver) Tell(id Carrier) uint64 {
	r.ackSent, r.ackSentOn = r.Ack(), id
	return r.ackSent
}

// Down records that a carrier has died. See Due.
func (r *Receiver) Down(id Carrier) {
	if id == r.ackSentOn {
		r.ackSent, r.ackSentOn = 0, None
	}
}
