package engine

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/wire"
)

// near is what a peer of the same machine has beside its link. The lower rank
// makes the memory and offers it over the link; the higher one maps it and says so,
// or that it cannot. Each then switches: what it says after that goes through its ring, and
// the link is left to bells, to the news of the peer's end, and to those
// who cannot share memory. Guarded by the engine's lock, but rx is the turn's
// holder's.
//
//	none --Share--> offered --Share--> mapped --our Switch--> out.near is set
//	   '---refused-----'------> why        '----its Switch--> open
type near struct {
	offered bool // this side may map memory, or has made it
	seg     *shm.Segment
	tx      *shm.Sender
	rx      *shm.Receiver
	offer   [shm.OfferSize]byte // of the peer, as it comes
	cpus    shm.CPUs            // on which it may run
	mem     *shm.Memory         // its own memory, if the system lets this process in
	open    bool                // the peer sends through its ring
	told    bool                // the peer has said how to map its memory
	why     error               // why there is no shared memory
	bell    bool                // the peer is to be rung
	rung    bool                // the peer has rung
	cut     error               // the link is over, and this is said when the ring is empty
	cutting string              // what it broke
}

// A sharing makes and maps memory: package shm's functions, but in tests.
type sharing struct {
	create func(data int) (*shm.Segment, error)
	open   func(shm.Offer) (*shm.Segment, error)
	memory func(shm.Offer) (*shm.Memory, error)
}

var system = sharing{create: shm.Create, open: shm.Open, memory: shm.OpenMemory}

// manyNear is from how many processes on each direction of a segment holds less.
const manyNear = 16

var errNotShared = errors.New("shared memory is switched off")

// beginNear offers the peer shared memory, if it is of this machine and this
// side's part to do so. mu is held.
func (p *peer) beginNear() {
	switch {
	case p.link.Path.Technique != 0: // on another node
		return
	case !p.e.cfg.Near:
		p.near.why = errNotShared
		return
	}
	p.near.offered = true
	if p.e.cfg.Rank < p.rank {
		p.e.work.Go(p.offerNear)
	}
}

// offerNear makes the memory.
func (p *peer) offerNear() {
	data := shm.DefaultData
	if p.e.cfg.Size > manyNear {
		data = shm.MinData
	}
	seg, err := p.e.sharing.create(data)
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if err != nil || p.failed != nil {
		p.refuse(seg, err)
		return
	}
	p.mapped(seg)
	p.share(seg)
	p.dispatch(false)
}

// mapped notes the memory. mu is held.
func (p *peer) mapped(seg *shm.Segment) {
	p.near.seg = seg
	p.near.tx, p.near.rx = seg.Ends()
}

// share tells the peer of the memory. mu is held.
func (p *peer) share(seg *shm.Segment) {
	b := seg.Offer().Append(nil)
	p.put(wire.Envelope{Kind: wire.EnvelopeShare, Length: uint64(len(b))}, b)
}

// refuse notes why there will be no shared memory and tells the peer so. mu is held.
func (p *peer) refuse(seg *shm.Segment, err error) {
	if seg != nil {
		seg.Close() // nobody uses it
	}
	p.near.offered, p.near.why = false, err
	p.control(wire.Envelope{Kind: wire.EnvelopeShare})
	p.dispatch(false)
}

// sharing is told that the peer shares memory, n bytes of which say how to map it. mu
// is held.
func (p *peer) sharing(n uint64) error {
	switch {
	case p.near.open || p.out.near || p.near.told, n != 0 && n != shm.OfferSize:
		return fmt.Errorf("%w: the peer shares memory out of turn, or described in %d bytes", wire.ErrMalformed, n)
	case n > 0:
		p.near.told = true
		p.in.size, p.in.left, p.in.share = n, n, true
		p.in.into = p.near.offer[:]
		return nil
	}
	if p.near.offered {
		p.near.offered = false
		p.near.why = errors.New("the peer could not map shared memory; its own report says why")
	}
	if p.near.seg != nil {
		p.near.seg.Close()
		p.near.seg, p.near.tx, p.near.rx = nil, nil, nil
	}
	return nil
}

// shared acts on the peer's offer. mu is held.
func (p *peer) shared() error {
	offer, err := shm.ParseOffer(p.near.offer[:])
	p.near.cpus = offer.CPUs
	if err == nil && int(offer.PID) == os.Getpid() {
		p.e.rings.local.Store(true)
	}
	switch {
	case !p.near.offered: // it does not know
		p.control(wire.Envelope{Kind: wire.EnvelopeShare})
	case err != nil && p.near.seg == nil:
		p.refuse(nil, err)
	case err != nil:
		return fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	case p.near.seg == nil && p.e.cfg.Rank > p.rank:
		p.e.work.Go(func() { p.openNear(offer) })
	case p.near.seg == nil:
		return fmt.Errorf("%w: the peer maps memory that it was not offered", wire.ErrMalformed)
	default:
		p.near.seg.CloseFile() // the peer has it; what can go wrong harms nobody
		p.e.work.Go(func() { p.knowNear(offer) })
	}
	return nil
}

// openNear maps the memory of the peer.
func (p *peer) openNear(o shm.Offer) {
	seg, err := p.e.sharing.open(o)
	mem, _ := p.e.sharing.memory(o) // without it all goes through the ring
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if err != nil || p.failed != nil {
		p.refuse(seg, err)
		return
	}
	p.mapped(seg)
	p.near.mem = mem
	p.share(seg)
	p.switchOver()
	p.dispatch(false)
}

// knowNear looks whether the memory of the peer, which has mapped what it was offered, can be
// copied from, and switches.
func (p *peer) knowNear(o shm.Offer) {
	mem, _ := p.e.sharing.memory(o) // without it all goes through the ring
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	p.near.mem = mem
	p.switchOver()
	p.dispatch(false)
}

// addressOf returns where b is.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// switchOver has everything that is queued from here on go through the ring. mu is held.
func (p *peer) switchOver() {
	p.control(wire.Envelope{Kind: wire.EnvelopeSwitch})
	p.out.near = true
}

// switched is told that the peer has. mu is held.
func (p *peer) switched() error {
	if p.near.seg == nil || p.near.open {
		return fmt.Errorf("%w: the peer switches to memory that is not shared", wire.ErrMalformed)
	}
	p.near.open = true
	p.link.Conn.Calm() // bells come to those who sleep
	p.e.rings.add(p)
	return nil
}

// severed is told that the link is over. What is in the ring is older. mu is held.
func (p *peer) severed(doing string, err error) {
	if !p.near.open {
		p.fail(p.lost(doing, err))
		return
	}
	if p.near.cut == nil {
		p.near.cut, p.near.cutting = err, doing
	}
	p.e.attendRings()
}
