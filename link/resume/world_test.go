package resume

import (
	"errors"
	"fmt"
	"slices"
)

// A world is two ends joined by carriers, with a simple oracle for each half: for every byte of a
// stream where it is (at the sender) and whether it has arrived (at the receiver), in plain arrays.
// All methods that move something compare the two and return an error that says what is wrong. The
// exhaustive model and the random one both use it.
type world struct {
	ends   [2]end
	wires  []wire  // those not closed at both ends, oldest first
	births Carrier // carriers made so far: the last id
	widest uint64  // no window is larger

	fragmented int // carriers closed for ErrFragmented
}

// end is one end of a link with its oracle.
type end struct {
	s *Sender
	r *Receiver

	owner []Carrier // of each byte sent, and the fin: its carrier, None: lost
	acked uint64
	free  uint64 // bytes below are released: using them is an error

	came      []bool // bytes that have arrived at the receiver
	delivered uint64

	advertised uint64 // by the receiver: it accepts what is below
	edge       uint64 // known to the sender

	written, lostAtDeath, freedLost uint64 // bytes, the fin as one
}

// wire is a carrier between the two ends.
type wire struct {
	id     Carrier
	weight [2]uint32
	up     [2]bool      // the end has the peer's handshake
	closed [2]bool      // the end has closed it or noticed its death
	queue  [2][]message // in flight to this end
}

// message is a frame on a wire.
type message struct {
	kind  byte // 'h'andshake, 'd'ata, 'a'cknowledgement
	off   uint64
	n     int
	fin   bool
	value byte   // of the first payload byte: see valueAt
	edge  uint64 // of an acknowledgement: the edge that comes with it
}

// valueAt returns the byte at an offset of every stream. 251 divides no size in use, so that
// displaced bytes show.
func valueAt(off uint64) byte { return byte(off % 251) }

func newWorld(window, granule int) *world {
	w := &world{}
	for e := range w.ends {
		w.ends[e].s, w.ends[e].r = NewSender(window), NewReceiver(window)
		w.ends[e].s.setGranule(uint64(granule))
		w.ends[e].r.setGranule(uint64(granule))
	}
	return w
}

// copyFrom makes w equal to another world, reusing w's memory.
func (w *world) copyFrom(o *world) {
	w.births = o.births
	for e := range w.ends {
		n, from := &w.ends[e], &o.ends[e]
		old := *n
		*n = *from
		n.s, n.r = old.s, old.r
		list, carriers, stored := old.s.q.list[:0], old.s.carriers[:0], old.r.stored[:0]
		*n.s, *n.r = *from.s, *from.r
		n.s.q.list = append(list, from.s.q.list...)
		n.s.carriers = append(carriers, from.s.carriers...)
		n.r.stored = append(stored, from.r.stored...)
		n.owner = append(old.owner[:0], from.owner...)
		n.came = append(old.came[:0], from.came...)
	}
	w.wires = w.wires[:min(len(o.wires), cap(w.wires))]
	for len(w.wires) < len(o.wires) {
		w.wires = append(w.wires, wire{})
	}
	for i := range w.wires {
		queues := w.wires[i].queue
		w.wires[i] = o.wires[i]
		for e := range queues {
			w.wires[i].queue[e] = append(queues[e][:0], o.wires[i].queue[e]...)
		}
	}
}

// connect makes a carrier: both handshakes are in flight.
func (w *world) connect(weight [2]uint32) {
	w.births++
	l := wire{id: w.births, weight: weight}
	for e := range 2 {
		l.queue[1-e] = []message{{kind: 'h', off: w.ends[e].r.Tell(l.id)}}
	}
	w.wires = append(w.wires, l)
}

// close makes one end close a carrier or notice its death: what was in flight to this end is lost,
// the rest is in flight until the other end does so too.
func (w *world) close(e, i int) error {
	l := &w.wires[i]
	if err := w.ends[e].down(l.id); err != nil {
		return err
	}
	l.closed[e], l.queue[e] = true, l.queue[e][:0]
	if l.closed[1-e] {
		w.wires = slices.Delete(w.wires, i, i+1)
	}
	return nil
}

// write writes the next frame on a carrier, if there is one.
func (w *world) write(e, i, max int) (wrote bool, err error) {
	l := &w.wires[i]
	f, ok := w.ends[e].s.Next(l.id, max)
	if !ok {
		return false, nil
	}
	if err := w.ends[e].wrote(l.id, f, max); err != nil {
		return true, err
	}
	w.send(e, i, message{kind: 'd', off: f.Off, n: f.N, fin: f.Fin, value: valueAt(f.Off)})
	return true, nil
}

// tell writes an acknowledgement on a carrier.
func (w *world) tell(e, i int) {
	n := &w.ends[e]
	w.send(e, i, message{kind: 'a', off: n.r.Tell(w.wires[i].id), edge: n.advertised})
}

func (w *world) send(e, i int, m message) {
	if l := &w.wires[i]; !l.closed[1-e] {
		l.queue[1-e] = append(l.queue[1-e], m)
	}
}

// deliver hands an end the first message in flight to it. The end closes the carrier if it cannot
// store any more.
func (w *world) deliver(e, i int) error {
	l := &w.wires[i]
	m := l.queue[e][0]
	l.queue[e] = slices.Delete(l.queue[e], 0, 1)
	n := &w.ends[e]
	switch m.kind {
	case 'h':
		l.up[e] = true
		free, err := n.s.Up(l.id, l.weight[e], m.off)
		return n.ackTaken(m.off, free, err)
	case 'a':
		free, err := n.s.Ack(m.off)
		if err == nil {
			n.s.Allow(m.edge)
			n.edge = max(n.edge, m.edge)
		}
		return n.ackTaken(m.off, free, err)
	}
	err := n.take(m)
	if errors.Is(err, ErrFragmented) {
		w.fragmented++
		return w.close(e, i)
	}
	return err
}

// wrote checks a frame that Next returned.
func (n *end) wrote(id Carrier, f Frame, max int) error {
	size := uint64(f.N)
	if f.Fin {
		size++
	}
	lowest := n.acked
	for lowest < uint64(len(n.owner)) && n.owner[lowest] != None {
		lowest++
	}
	switch {
	case f.N > max || size == 0:
		return fmt.Errorf("a frame of %d with a limit of %d", f.N, max)
	case f.Off != lowest:
		return fmt.Errorf("%+v written, but the lowest byte to write is %d", f, lowest)
	case f.N > 0 && f.Off < n.free:
		return fmt.Errorf("%+v written, but bytes below %d were freed", f, n.free)
	case f.Off+uint64(f.N) > n.s.End() || f.Fin && f.Off+uint64(f.N) != n.s.End():
		return fmt.Errorf("%+v written, but the stream ends at %d", f, n.s.End())
	}
	for b := f.Off; b < f.Off+size; b++ {
		if b == uint64(len(n.owner)) {
			n.owner = append(n.owner, None)
		}
		if n.owner[b] != None {
			return fmt.Errorf("%+v written on %d, but carrier %d carries byte %d", f, id, n.owner[b], b)
		}
		n.owner[b] = id
	}
	n.written += size
	return n.sameSender()
}

func (n *end) down(id Carrier) error {
	want := n.lose(id)
	if got := n.s.Down(id); got != want {
		return fmt.Errorf("Down(%d) = %d, want %d", id, got, want)
	}
	n.r.Down(id)
	return n.sameSender()
}

func (n *end) abandon(id Carrier) error {
	want := n.lose(id)
	if got := n.s.Abandon(id); got != want {
		return fmt.Errorf("Abandon(%d) = %d, want %d", id, got, want)
	}
	if left := n.s.InFlight(id); left != 0 {
		return fmt.Errorf("%d bytes on carrier %d, which was abandoned", left, id)
	}
	return n.sameSender()
}

// lose records that what a carrier carries must be sent again.
func (n *end) lose(id Carrier) (bytes uint64) {
	for b := n.acked; b < uint64(len(n.owner)); b++ {
		if n.owner[b] == id {
			n.owner[b] = None
			bytes++
		}
	}
	n.lostAtDeath += bytes
	return bytes
}

func (n *end) ackTaken(off, free uint64, err error) error {
	if err != nil {
		return err
	}
	for ; n.acked < off; n.acked++ {
		if n.owner[n.acked] == None {
			n.freedLost++
		}
	}
	if want := min(n.acked, n.s.End()); free != want {
		return fmt.Errorf("acknowledgement of %d frees up to %d, want %d", off, free, want)
	}
	n.free = free
	return n.sameSender()
}

// advertise makes the receiver accept more than it must.
func (n *end) advertise(more uint64) {
	n.advertised = max(n.advertised, n.delivered+n.r.window+more)
	n.r.Allow(n.advertised)
}

// sameSender compares the sender's segments with the oracle.
func (n *end) sameSender() error {
	s := n.s
	if limit := max(n.acked+s.window, n.edge); !s.fin && s.End()+uint64(s.Room()) != limit {
		return fmt.Errorf("%v has room for %d, want up to %d", s, s.Room(), limit)
	}
	if s.Acked() != n.acked || s.Sent() != uint64(len(n.owner)) {
		return fmt.Errorf("%v, want acked %d sent %d", s, n.acked, len(n.owner))
	}
	at, lost := n.acked, uint64(0)
	for i := s.q.head; i < len(s.q.list); i++ {
		g := s.q.list[i]
		if g.end <= at || i > s.q.head && s.q.list[i-1].owner == g.owner {
			return fmt.Errorf("%v: segments are not minimal", s)
		}
		for ; at < g.end; at++ {
			if n.owner[at] != g.owner {
				return fmt.Errorf("%v: byte %d is on %d", s, at, n.owner[at])
			}
			if g.owner == None {
				lost++
			}
		}
	}
	if at != s.Sent() || lost != s.Lost() {
		return fmt.Errorf("%v: %d lost, and segments reach %d; want %d", s, s.Lost(), at, lost)
	}
	return nil
}

// take hands a data frame to the receiver and carries out its verdict.
func (n *end) take(m message) error {
	look, lookErr := n.r.Look(m.off, m.n)
	v, err := n.r.Data(m.off, m.n)
	if err != nil {
		return err
	}
	if look != v || lookErr != nil {
		return fmt.Errorf("Look says %+v, %v and Data %+v", look, lookErr, v)
	}
	if v.Skip < 0 || v.Deliver < 0 || v.Store < 0 || v.Deliver > 0 && v.Store > 0 || v.Skip+v.Deliver+v.Store > m.n {
		return fmt.Errorf("%+v of a frame of %d bytes", v, m.n)
	}
	if m.n > 0 && m.value != valueAt(m.off) {
		return fmt.Errorf("byte %d is %d", m.off, m.value)
	}
	start := m.off + uint64(v.Skip)
	for b := m.off; b < m.off+uint64(m.n); b++ {
		kept := b >= start && b < start+uint64(v.Deliver+v.Store)
		for b >= uint64(len(n.came)) {
			n.came = append(n.came, false)
		}
		if !kept && !n.came[b] {
			return fmt.Errorf("byte %d is new, and %+v of [%d,+%d) drops it", b, v, m.off, m.n)
		}
		n.came[b] = true
	}
	if v.Deliver > 0 {
		if err := n.deliver(start, v.Deliver); err != nil {
			return err
		}
	} else if v.Store > 0 && start <= n.delivered {
		return fmt.Errorf("byte %d stored, and it is next", start)
	}
	for {
		off, k, ok := n.r.Advance()
		if !ok {
			break
		}
		if err := n.deliver(off, k); err != nil {
			return err
		}
	}
	if m.fin {
		if err := n.r.Fin(m.off + uint64(m.n)); err != nil {
			return err
		}
	}
	return n.sameReceiver()
}

// deliver checks the receiver's output: each byte once, in order, none missing.
func (n *end) deliver(off uint64, k int) error {
	if off != n.delivered {
		return fmt.Errorf("[%d,+%d) delivered, but next is %d", off, k, n.delivered)
	}
	for b := off; b < off+uint64(k); b++ {
		if b >= uint64(len(n.came)) || !n.came[b] {
			return fmt.Errorf("byte %d delivered, which has not come", b)
		}
	}
	n.delivered += uint64(k)
	return nil
}

func (n *end) sameReceiver() error {
	r := n.r
	if r.Next() != n.delivered {
		return fmt.Errorf("%v, want next %d", r, n.delivered)
	}
	if n.delivered < uint64(len(n.came)) && n.came[n.delivered] {
		return fmt.Errorf("%v: byte %d has come and is not delivered", r, n.delivered)
	}
	want := uint64(0)
	for b := n.delivered; b < uint64(len(n.came)); b++ {
		if n.came[b] {
			want++
		}
	}
	if r.Stored() != want {
		return fmt.Errorf("%v: %d stored, want %d", r, r.Stored(), want)
	}
	return nil
}

// settle runs the world until nothing moves any more: nothing dies, and an end whose peer closed a
// carrier closes it too.
func (w *world) settle(max int) error {
	for moved := true; moved; {
		moved = false
		for i := 0; i < len(w.wires); i++ {
			for e := range 2 {
				if w.wires[i].closed[1-e] {
					if err := w.close(e, i); err != nil {
						return err
					}
					i, moved = i-1, true
					break
				}
			}
		}
		for i := 0; i < len(w.wires); i++ {
			for e := range 2 {
				for w.open(i) && len(w.wires[i].queue[e]) > 0 {
					moved = true
					if err := w.deliver(e, i); err != nil {
						return err
					}
				}
				if !w.open(i) || !w.wires[i].up[e] {
					continue
				}
				for {
					wrote, err := w.write(e, i, max)
					if err != nil {
						return err
					}
					if !wrote {
						break
					}
					moved = true
				}
				if w.ends[e].r.Due() > 0 {
					w.tell(e, i)
					moved = true
				}
			}
		}
	}
	return nil
}

// open reports whether a wire exists and is closed at neither end.
func (w *world) open(i int) bool {
	return i < len(w.wires) && !w.wires[i].closed[0] && !w.wires[i].closed[1]
}

// served reports whether the end has a carrier that it would write on.
func (w *world) served(e int) bool {
	for i := range w.wires {
		if w.ends[e].s.Uses(w.wires[i].id) {
			return true
		}
	}
	return false
}

var errUnfinished = errors.New("not finished")

// finished returns an error unless the stream from an end arrived whole and both ends know it.
func (w *world) finished(e int) error {
	n, peer := &w.ends[e], &w.ends[1-e]
	switch {
	case !n.s.Finished() || !peer.r.Ended():
		return errUnfinished
	case peer.delivered != n.s.End():
		return fmt.Errorf("end %d: %d bytes delivered of %d", e, peer.delivered, n.s.End())
	case n.written != n.s.End()+1+n.lostAtDeath-n.freedLost || n.s.Resent() != n.lostAtDeath-n.freedLost:
		return fmt.Errorf("end %d: %d bytes written (%d again) for %d, of which deaths left %d and %d came through all the same",
			e, n.written, n.s.Resent(), n.s.End()+1, n.lostAtDeath, n.freedLost)
	}
	return nil
}
