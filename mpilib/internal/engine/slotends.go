package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/slot"
	"github.com/isthmus-grid/isthmus/wire"
)

// A PutSlot is the sending end of a slot. Safe for concurrent use.
type PutSlot struct {
	s     *slots
	group Group
	out   *slot.Out
	max   int

	putting sync.Mutex // serialises Puts; locked before the engine's
	number  uint64     // of the last one
	spare   []byte     // for the next value
}

// slotsOf returns the slots of a peer.
func slotsOf(e *Engine, rank int) (*slots, error) {
	switch {
	case e.replicas != nil:
		return nil, fmt.Errorf("%w: ranks with replicas have none", ErrSlot)
	case rank == e.cfg.Rank:
		return nil, fmt.Errorf("%w: from rank %d to itself", ErrSlot, rank)
	}
	return &e.peers[rank].slots, nil
}

// NewPutSlot returns the sending end of slot tag of a context towards world rank dst, for values of up to max
// bytes. One of the same slot that was made before is not to be used any more.
func NewPutSlot(e *Engine, g Group, ctxID uint32, dst, tag, max int) (*PutSlot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := slotsOf(e, dst)
	if err == nil {
		err = s.check(tag, max)
	}
	if err != nil {
		return nil, err
	}
	o := s.sending(slot.Key{Context: ctxID, Tag: uint32(tag)})
	s.values.Reset(o, max)
	s.begin()
	return &PutSlot{s: s, group: g, out: o, max: max, spare: make([]byte, 0, slot.Header+max)}, nil
}

// Put puts b, which is copied, in place of the slot's last value, under a number above that one's. It does not
// wait. What the peer gets is this value, or a later one.
func (s *PutSlot) Put(number uint64, b []byte) error {
	s.putting.Lock()
	defer s.putting.Unlock()
	switch {
	case len(b) > s.max:
		return fmt.Errorf("%w: a value of %d bytes, at most %d are allowed", ErrSlot, len(b), s.max)
	case number <= s.number:
		return fmt.Errorf("%w: value %d after value %d", ErrSlot, number, s.number)
	}
	s.spare = append(binary.BigEndian.AppendUint64(s.spare[:0], number), b...)
	e := s.s.p.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.s.err != nil {
		return s.s.err
	}
	if err := e.startError(s.group, s.out.Key.Context); err != nil {
		return err
	}
	s.number = number
	s.spare = s.out.Replace(s.spare)
	s.s.values.Update(s.out)
	s.s.send()
	return nil
}

// Counts returns what became of the values so far.
func (s *PutSlot) Counts() slot.PutCounts {
	s.s.p.e.mu.Lock()
	defer s.s.p.e.mu.Unlock()
	return s.out.Counts
}

// A GetSlot is the receiving end of a slot. Safe for concurrent use.
type GetSlot struct {
	s    *slots
	in   *openSlot
	wait slotWait // of the goroutine that waits

	getting sync.Mutex // serialises Gets; locked before the engine's
}

// NewGetSlot returns the receiving end of slot tag of a context from world rank src, for values of up to max
// bytes. Close ends it.
func NewGetSlot(e *Engine, ctxID uint32, src, tag, max int) (*GetSlot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := slotsOf(e, src)
	if err == nil {
		err = s.check(tag, max)
	}
	if err != nil {
		return nil, err
	}
	key := slot.Key{Context: ctxID, Tag: uint32(tag)}
	switch {
	case s.in[key] != nil:
		return nil, fmt.Errorf("%w: %d is open", ErrSlot, tag)
	case len(s.in) >= maxSlots:
		return nil, fmt.Errorf("%w: more than %d", ErrSlot, maxSlots)
	case s.in == nil:
		s.in = map[slot.Key]*openSlot{}
	}
	o := &openSlot{In: slot.NewIn(key, max), arrived: make(chan struct{}, 1)}
	s.in[key] = o
	s.p.queueControl(wire.Envelope{Kind: wire.EnvelopeSlot, Context: key.Context, Tag: key.Tag, Length: uint64(max)})
	s.begin()
	s.p.transport.dispatch(false)
	return &GetSlot{s: s, in: o}, nil
}

// Get copies the newest value to b, as far as there is room, and returns its number and its length. The number is 0
// if no value has come. The number never falls, and is that of the last Get if no newer value has come.
func (s *GetSlot) Get(b []byte) (number uint64, n int) {
	s.getting.Lock()
	defer s.getting.Unlock()
	e := s.s.p.e
	e.mu.Lock()
	e.rings.pollOnce()
	number, value := s.in.Take()
	e.mu.Unlock()
	copy(b, value) // nobody else changes it before the next Take
	return number, len(value)
}

// Await waits until there is a value above number, the peer is lost, the slot is closed or ctx is done. One goroutine
// at a time may wait.
func (s *GetSlot) Await(ctx context.Context, number uint64) error {
	e := s.s.p.e
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &s.wait
	*w = slotWait{s, number}
	for !w.isMet() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s.s.p.transport.fromRing {
			e.rings.poll(ctx, w)
			continue
		}
		s.s.p.transport.link.wakeReader()
		e.mu.Unlock()
		select {
		case <-s.in.arrived:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
	if s.in.Number > number {
		return nil
	}
	return s.err()
}

// Notify makes news, which has room for one element, hold one after a value has come or the slot has ended.
func (s *GetSlot) Notify(news chan struct{}) {
	s.s.p.e.mu.Lock()
	defer s.s.p.e.mu.Unlock()
	s.in.notify = news
	if s.in.IsFresh() || s.err() != nil {
		wake(news)
	}
}

// slotWait is the condition of an Await.
type slotWait struct {
	s      *GetSlot
	number uint64
}

func (w *slotWait) isMet() bool { return w.s.in.Number > w.number || w.s.err() != nil }

func (w *slotWait) changed() <-chan struct{} { return w.s.in.arrived }

// Err returns why no further value comes, or nil.
func (s *GetSlot) Err() error {
	s.s.p.e.mu.Lock()
	defer s.s.p.e.mu.Unlock()
	return s.err()
}

func (s *GetSlot) err() error {
	switch {
	case s.s.err != nil:
		return s.s.err
	case s.s.in[s.in.Key] != s.in:
		return fmt.Errorf("%w: %d is closed", ErrSlot, s.in.Key.Tag)
	}
	return nil
}

// Counts returns what became of the values so far.
func (s *GetSlot) Counts() slot.GetCounts {
	s.s.p.e.mu.Lock()
	defer s.s.p.e.mu.Unlock()
	return s.in.Counts
}

// Close drops the end. The peer is told to send no more, and what still comes is dropped.
func (s *GetSlot) Close() {
	s.s.p.e.mu.Lock()
	defer s.s.p.e.mu.Unlock()
	if s.err() != nil {
		return
	}
	key := s.in.Key
	delete(s.s.in, key)
	s.s.wake(s.in)
	s.s.p.queueControl(wire.Envelope{Kind: wire.EnvelopeSlot, Context: key.Context, Tag: key.Tag})
	s.s.p.transport.dispatch(false)
}
