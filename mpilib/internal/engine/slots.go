package engine

import (
	"errors"
	"fmt"
	"math"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/slot"
	"github.com/isthmus-grid/isthmus/wire"
)

// ErrSlot fails the making of a slot's end, or a Put that breaks the rules of slots.
var ErrSlot = errors.New("slot")

const (
	// maxSlots is how many slots each of two processes may open for the other.
	maxSlots = 4096
	// maxPiece is how much of a value a link gets at a time: other messages may go between pieces.
	maxPiece = 64 << 10
	// maxUnsentSlots is about how much the kernel may hold unsent of a carrier with slots: enough for it to
	// send on while a process is woken to hand over more.
	maxUnsentSlots = 16 << 10
)

// slots are the slots of a peer; package slot decides which values are sent. The engine's lock guards it and all
// that it holds.
type slots struct {
	p      *peer
	out    map[slot.Key]*slot.Out
	in     map[slot.Key]*openSlot
	err    error // why no value comes or goes any more
	values slot.Queue
}

// openSlot is a receiving end.
type openSlot struct {
	*slot.In
	arrived chan struct{} // wakes the one that waits for a value
	notify  chan struct{} // see GetSlot.Notify; nil: nobody's
}

// used reports whether the program, or the peer, has opened a slot.
func (s *slots) used() bool { return len(s.out)+len(s.in) > 0 }

// check returns why there can be no slot of max bytes. mu is held.
func (s *slots) check(tag, max int) error {
	switch e := s.p.e; {
	case max <= 0 || max > math.MaxInt32:
		return fmt.Errorf("%w: for values of up to %d bytes", ErrSlot, max)
	case tag < 0 || tag > math.MaxInt32:
		return fmt.Errorf("%w: number %d", ErrSlot, tag)
	case e.core.Closed() != nil:
		return e.core.Closed()
	}
	return s.err
}

// begin has the peer connected, and its carriers hold little that is not sent. mu is held.
func (s *slots) begin() {
	s.p.wantLink()
	if s.p.transport.connected() {
		s.p.transport.link.l.BoundUnsent(maxUnsentSlots)
	}
}

// sending returns the sending end of a slot.
func (s *slots) sending(key slot.Key) *slot.Out {
	if s.out == nil {
		s.out = map[slot.Key]*slot.Out{}
	}
	o := s.out[key]
	if o == nil {
		o = &slot.Out{Key: key}
		s.out[key] = o
	}
	return o
}

// opened handles the peer's opening or closing of a slot. mu is held, and may be released.
func (s *slots) opened(env wire.Envelope) error {
	key := slot.Key{Context: env.Context, Tag: env.Tag}
	if s.out[key] == nil && len(s.out) >= maxSlots {
		return fmt.Errorf("%w: more than %d slots", wire.ErrMalformed, maxSlots)
	}
	o := s.sending(key)
	o.Max = env.Length
	s.values.Update(o)
	s.send()
	return nil
}

// send has the transport send what the slots hold. mu is held, and may be released.
func (s *slots) send() {
	if s.values.Pending() {
		s.p.transport.dispatch(false)
	}
}

// received handles the envelope of a piece of a value. mu is held.
func (s *slots) received(env wire.Envelope) error {
	if env.Length == 0 || env.Length > math.MaxUint32 {
		return fmt.Errorf("%w: %d bytes of a slot's value", wire.ErrMalformed, env.Length)
	}
	in := &s.p.proto.In
	in.Size, in.Left, in.Into = env.Length, env.Length, nil
	if o := s.in[slot.Key{Context: env.Context, Tag: env.Tag}]; o != nil {
		in.Into = o.Place(env)
		if in.Into != nil && env.Flags&wire.EnvelopeLast != 0 {
			s.p.in.value = o
		}
	}
	return nil
}

// arrived takes a whole value. mu is held.
func (s *slots) arrived(o *openSlot) {
	if o.Filled() {
		s.wake(o)
	}
}

// wake wakes the goroutines that wait for a value of o. mu is held.
func (s *slots) wake(o *openSlot) {
	wake(o.arrived)
	if o.notify != nil {
		wake(o.notify)
	}
	if n := &s.p.e.rings; n.spinning {
		n.attention.Store(true)
	}
}

// fail ends the slots of a peer that is lost, or gone. What a Get has returned stays. mu is held.
func (s *slots) fail(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	s.values.Clear()
	for _, o := range s.in {
		s.wake(o)
	}
}

// free drops the slots of a context that no process uses any more. mu is held.
func (s *slots) free(context uint32) {
	for key, o := range s.in {
		if key.Context == context {
			delete(s.in, key)
			s.wake(o)
		}
	}
	for key, o := range s.out {
		if key.Context == context {
			o.Max = 0
			s.values.Update(o)
			delete(s.out, key)
		}
	}
}
