package traverse

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// An Injection is a carried SYN and its destination.
type Injection struct {
	Level  Level
	SYN    []byte         // the packet that Connect gave to Carry
	Source netip.AddrPort // the client's address as seen from here: its mapping if it is behind a NAT
	Target netip.AddrPort // the listener's address on this host
}

// An Injected is a connection request that the local kernel has received. The Engine does the rest
// by itself, and drops it after some seconds.
type Injected struct {
	engine *Engine
	key    endpoints
	flow   *flow
	talk   *conversation // guarded by engine.mu
	answer chan struct{} // closed when the kernel has answered
	fault  chan error    // buffered for one: the first segment that could not be sent
}

// Close drops the connection before its time: it is established, or given up.
func (i *Injected) Close() { i.engine.remove(i.key, i.flow) }

// Inject gives a carried SYN to the local kernel, with what the level adds, and returns when the
// kernel has answered it; the connection then appears at the listener after about a round trip. The
// same SYN again is a duplicate and has no further effect. It ends with ctx and after a second in
// any case.
//
// It fails with overlay.ErrForbidden when the packet is anything but a bare SYN from another host
// to an address of this one, overlay.ErrRefused when the kernel does not answer, and
// overlay.ErrOverloaded.
func (e *Engine) Inject(ctx context.Context, in Injection) (*Injected, error) {
	fail := func(err error) (*Injected, error) {
		return nil, fmt.Errorf("injecting a SYN from %v to %v (%v): %w", in.Source, in.Target, in.Level, err)
	}
	syn, err := Parse(in.SYN)
	if err != nil {
		return fail(err)
	}
	talk, err := newConversation(in.Level, syn, in.Source, in.Target)
	if err != nil {
		return fail(err)
	}
	if err := checkLocal(talk.syn.Dst.Addr()); err != nil {
		return fail(err)
	}
	i, fresh, err := e.join(time.Now(), talk)
	if err != nil {
		return fail(err)
	}
	if fresh {
		for _, s := range talk.start() {
			if err := e.sockets.send(s); err != nil {
				i.Close()
				return fail(err)
			}
		}
	}
	if err := i.wait(ctx); err != nil {
		i.Close()
		return fail(err)
	}
	return i, nil
}

// checkLocal ensures that a packet to addr stays on this host.
func checkLocal(addr netip.Addr) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == addr {
			return nil
		}
	}
	return fmt.Errorf("%w: no interface of this host has the address %v", overlay.ErrForbidden, addr)
}

// join registers a conversation, or returns the one that the same SYN began.
func (e *Engine) join(now time.Time, talk *conversation) (i *Injected, fresh bool, err error) {
	key := endpoints{local: talk.syn.Dst, remote: talk.syn.Src}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.flows[key]; f != nil && f.target != nil && f.target.talk.syn.Seq == talk.syn.Seq && now.Before(f.expires) {
		return f.target, false, nil
	}
	i = &Injected{engine: e, key: key, talk: talk, answer: make(chan struct{}), fault: make(chan error, 1)}
	i.flow = &flow{seen: i.seen, failed: i.failed, target: i}
	return i, true, e.add(now, key, i.flow)
}

// seen is flow.seen.
func (i *Injected) seen(now time.Time, s Segment, outgoing bool) []Segment {
	before := i.talk.answered
	send := i.talk.step(now, s, outgoing)
	if i.talk.answered && !before {
		close(i.answer)
	}
	return send
}

// failed is flow.failed.
func (i *Injected) failed(err error) {
	select {
	case i.fault <- err:
	default: // one error is enough
	}
}

// wait waits for the kernel's answer.
func (i *Injected) wait(ctx context.Context) error {
	timer := time.NewTimer(answerWait)
	defer timer.Stop()
	select {
	case <-i.answer:
		return nil
	case err := <-i.fault:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for this host's answer to it: %w", context.Cause(ctx))
	case <-timer.C:
		return fmt.Errorf("%w: this host did not answer it within %v; does a process listen there (ss -ltn), "+
			"and does its own firewall accept what comes over lo and let SYN/ACKs out?", overlay.ErrRefused, answerWait)
	}
}
