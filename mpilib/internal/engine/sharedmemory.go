package engine

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/wire"
)

// sharedMemory is the state of setting up shared memory with a peer of the same machine. The
// lower process creates the memory and sends its descriptor over the link; the higher one maps
// it and confirms that with its own descriptor, or refuses with an empty one. Each then switches:
// its further envelopes go through its ring, and the link only carries bells and reports the end
// of the peer. The engine's lock guards it.
//
//	none --Share--> described --Share--> mapped --our Switch--> toRing
//	   '---refused-----'------> reason     '----its Switch--> fromRing
type sharedMemory struct {
	possible       bool                     // this side may map memory, or has created it
	peerDescriptor [shm.DescriptorSize]byte // of the peer, while its bytes arrive
	described      bool                     // the peer has sent its descriptor
	reason         error                    // why there is no shared memory
	bellReceived   bool                     // the peer has rung
	linkErr        error                    // the link is over; reported once the ring is empty
	linkErrDoing   string                   // the action that it interrupted
}

// sharingCalls are the calls that create and map memory: package shm's functions, except in tests.
type sharingCalls struct {
	create func(data int) (*shm.Segment, error)
	open   func(shm.Descriptor) (*shm.Segment, error)
	memory func(shm.Descriptor) (*shm.Memory, error)
}

var systemSharing = sharingCalls{create: shm.Create, open: shm.Open, memory: shm.OpenMemory}

// manyProcesses is from how many processes on each direction of a segment holds less.
const manyProcesses = 16

var errNotShared = errors.New("shared memory is switched off")

// startSharing offers the peer shared memory, if it is on this machine and this
// side is the one that offers. mu is held.
func (p *peer) startSharing() {
	switch {
	case p.transport.link.l.Path.Technique != 0: // on another node
		return
	case !p.e.cfg.SharedMemory:
		p.shm.reason = errNotShared
		return
	}
	p.shm.possible = true
	if p.e.cfg.process() < p.process {
		p.e.work.Go(p.createSegment)
	}
}

// createSegment creates the memory.
func (p *peer) createSegment() {
	data := shm.DefaultData
	if len(p.e.peers) > manyProcesses {
		data = shm.MinData
	}
	seg, err := p.e.sharing.create(data)
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if err != nil || p.proto.Failed != nil {
		p.refuseSharing(seg, err)
		return
	}
	p.transport.ring.share(seg)
	p.sendDescriptor(seg)
	p.transport.dispatch(false)
}

// sendDescriptor sends the peer the descriptor of the memory. mu is held.
func (p *peer) sendDescriptor(seg *shm.Segment) {
	b := seg.Descriptor().Append(nil)
	p.transport.send(wire.Envelope{Kind: wire.EnvelopeShare, Length: uint64(len(b))}, b)
}

// refuseSharing records why there will be no shared memory, and refuses it to the peer. mu is held.
func (p *peer) refuseSharing(seg *shm.Segment, err error) {
	if seg != nil {
		seg.Close() // it is not used yet
	}
	p.shm.possible, p.shm.reason = false, err
	p.queueControl(wire.Envelope{Kind: wire.EnvelopeShare})
	p.transport.dispatch(false)
}

// shareReceived handles Share: the peer shares memory, whose descriptor of n bytes follows, or
// refuses with 0 bytes. mu is held.
func (p *peer) shareReceived(n uint64) error {
	switch {
	case p.transport.fromRing || p.transport.toRing || p.shm.described, n != 0 && n != shm.DescriptorSize:
		return fmt.Errorf("%w: the peer shares memory out of order, or described in %d bytes", wire.ErrMalformed, n)
	case n > 0:
		p.shm.described = true
		p.in.descriptor = true
		p.proto.In.Size, p.proto.In.Left, p.proto.In.Into = n, n, p.shm.peerDescriptor[:]
		return nil
	}
	if p.shm.possible {
		p.shm.possible = false
		p.shm.reason = errors.New("the peer could not map shared memory; its own report says why")
	}
	p.transport.ring.unshare()
	return nil
}

// descriptorReceived acts on the peer's descriptor. mu is held.
func (p *peer) descriptorReceived() error {
	offer, err := shm.ParseDescriptor(p.shm.peerDescriptor[:])
	p.transport.ring.cpus = offer.CPUs
	if err == nil && int(offer.PID) == os.Getpid() {
		p.e.rings.local.Store(true)
	}
	switch {
	case !p.shm.possible: // the peer does not know yet
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeShare})
	case err != nil && p.transport.ring.seg == nil:
		p.refuseSharing(nil, err)
	case err != nil:
		return fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	case p.transport.ring.seg == nil && p.e.cfg.process() > p.process:
		p.e.work.Go(func() { p.mapSegment(offer) })
	case p.transport.ring.seg == nil:
		return fmt.Errorf("%w: the peer maps memory that was not described to it", wire.ErrMalformed)
	default:
		p.transport.ring.seg.CloseFile() // the peer has mapped it; an error has no consequence
		p.e.work.Go(func() { p.openPeerMemory(offer) })
	}
	return nil
}

// mapSegment maps the memory of the peer.
func (p *peer) mapSegment(o shm.Descriptor) {
	seg, err := p.e.sharing.open(o)
	mem, _ := p.e.sharing.memory(o) // on error all messages go through the ring
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if err != nil || p.proto.Failed != nil {
		p.refuseSharing(seg, err)
		return
	}
	p.transport.ring.share(seg)
	p.transport.ring.mem = mem
	p.sendDescriptor(seg)
	p.switchOver()
	p.transport.dispatch(false)
}

// openPeerMemory opens, if possible, the memory of the peer, which has mapped the segment, for
// zero-copy, and switches.
func (p *peer) openPeerMemory(o shm.Descriptor) {
	mem, _ := p.e.sharing.memory(o) // on error all messages go through the ring
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	p.transport.ring.mem = mem
	p.switchOver()
	p.transport.dispatch(false)
}

// addressOf returns the address of b.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// switchOver sends everything that is queued from here on through the ring. mu is held.
func (p *peer) switchOver() {
	p.queueControl(wire.Envelope{Kind: wire.EnvelopeSwitch})
	p.transport.switchOver()
}

// switchReceived handles Switch: the peer sends through its ring from here on. mu is held.
func (p *peer) switchReceived() error {
	if p.transport.ring.seg == nil || p.transport.fromRing {
		return fmt.Errorf("%w: the peer switches to memory that is not shared", wire.ErrMalformed)
	}
	if p.proto.Failed != nil { // while these bytes were read: who polled its ring would never find it empty
		return nil
	}
	p.transport.fromRing = true
	p.transport.link.bellsOnly = true
	p.transport.link.l.Conn.Calm() // only bells for sleeping processes follow
	p.e.rings.add(p)
	return nil
}

// linkLost implements linkUser. Records in the ring are older than the end of the link. mu is held.
func (p *peer) linkLost(doing string, err error) {
	if !p.transport.fromRing {
		p.fail(p.linkError(doing, err))
		return
	}
	p.transport.link.lost = true
	if p.shm.linkErr == nil {
		p.shm.linkErr, p.shm.linkErrDoing = err, doing
	}
	p.e.rings.serve()
}
