package link

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/jobkey"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// proofLabel keeps the link key's MACs over hellos apart from any other use.
const proofLabel = "isthmus v1 link proof"

// Identity is who a process is to its peers.
type Identity struct {
	Process    overlay.ProcessName
	Generation overlay.Generation
	Key        jobkey.ForLinks
}

// Establish authenticates a carrier from both ends and returns a link over it
// that has no other: the link ends with the carrier. peer is the process that was
// dialled, or nil for a carrier that came in. A Mesh makes links that last.
//
// admit is asked once, before this end commits itself by its Proof: with the
// peer's Hello, which an incoming carrier's peer has not proven yet. It may
// wait. Its error is sent to the peer as a Refuse and returned.
//
// After an error the carrier is closed. The error names the peer, the path and
// the cause; what somebody on the way refused, and what the local helper knows
// about the carrier, come before what the socket says. It is bounded by ctx.
func Establish(ctx context.Context, c overlay.Carrier, self Identity, peer *overlay.ProcessName, admit func(*wire.Hello) error) (*Link, error) {
	t := terms{admit: func(h *wire.Hello) (uint64, error) {
		if h.Again {
			return 0, fmt.Errorf("%w: this process knows of no such link", overlay.ErrStale)
		}
		return 0, admit(h)
	}}
	if peer != nil {
		rand.Read(t.link[:]) // never fails (crypto/rand)
	}
	m, err := shake(ctx, c, self, peer, t)
	if err != nil {
		return nil, err
	}
	l := newLink(c, m, peer != nil)
	l.begin(func(_ *stream.Carrier, err error, _ int) error {
		return fmt.Errorf("link to %v (%v): %w", l.Peer, l.Path, err)
	}, func() {}, func() {})
	_, err = l.attach(c, m)
	return l, err
}

// terms are what a handshake is about.
type terms struct {
	link  wire.ID // zero at the dialled side, which learns it
	again bool

	// admit says whether this end wants the carrier, and how much of the peer's
	// stream it has received, in bytes.
	admit func(*wire.Hello) (received uint64, err error)
}

// met is what a handshake led to.
type met struct {
	hello    *wire.Hello // the peer's
	link     wire.ID
	received uint64 // by the peer
	rtt      time.Duration
}

// shake carries out the handshake. Both ends send a Hello at once. The end that
// was dialled then sends its Proof; the dialler checks it and sends its own,
// behind which data may follow directly: the dialler is ready after one round
// trip. Not a byte beyond the peer's frames is read.
func shake(ctx context.Context, c overlay.Carrier, self Identity, peer *overlay.ProcessName, t terms) (met, error) {
	h := &handshake{carrier: c, self: self, peer: peer, terms: t}
	interrupt := context.AfterFunc(ctx, func() { c.Conn.SetDeadline(time.Unix(1, 0)) })
	err := h.run()
	if !interrupt() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) && socketError(err) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return met{}, h.fail(err)
	}
	m := met{hello: h.theirs, link: t.link, received: h.received, rtt: h.rtt}
	if peer == nil {
		m.link = h.theirs.Link
	}
	return m, nil
}

type handshake struct {
	carrier overlay.Carrier
	self    Identity
	peer    *overlay.ProcessName // nil when we were dialled
	terms

	ours, theirs *wire.Hello
	received     uint64 // by the peer
	rtt          time.Duration
}

// refusal is a fault that this end found in the peer; it is told.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(class error, format string, args ...any) error {
	return &refusal{fmt.Errorf("%w: "+format, append([]any{class}, args...)...)}
}

func (h *handshake) run() error {
	h.ours = &wire.Hello{Job: h.self.Process.Job, From: h.self.Process.Rank, Generation: h.self.Generation, Dialled: h.peer != nil}
	if h.peer != nil {
		h.ours.To, h.ours.Link, h.ours.Again = h.peer.Rank, h.link, h.again
	} else {
		h.ours.To = h.ours.From // not known yet: whoever it is, it is answered
	}
	rand.Read(h.ours.Nonce[:])
	started := time.Now()
	if err := h.send(h.ours); err != nil {
		return fmt.Errorf("sending our hello: %w", err)
	}
	theirs, err := receive[*wire.Hello](h, "hello")
	if err != nil {
		return err
	}
	h.theirs = theirs
	if err := h.check(); err != nil {
		return err
	}
	if h.peer != nil {
		return h.proveSecond(started)
	}
	return h.proveFirst()
}

// proveFirst is the dialled end's part.
func (h *handshake) proveFirst() error {
	started, err := h.prove()
	if err != nil {
		return err
	}
	err = h.verify()
	h.rtt = time.Since(started)
	return err
}

// prove commits this end.
func (h *handshake) prove() (at time.Time, err error) {
	received, err := h.admit(h.theirs)
	if err != nil {
		return at, &refusal{err}
	}
	at = time.Now()
	if err := h.send(&wire.Proof{Received: received, MAC: proof(h.self.Key, h.ours, h.theirs, received)}); err != nil {
		return at, fmt.Errorf("sending our proof: %w", err)
	}
	return at, nil
}

// proveSecond is the dialler's part.
func (h *handshake) proveSecond(started time.Time) error {
	if err := h.verify(); err != nil {
		return err
	}
	h.rtt = time.Since(started)
	_, err := h.prove()
	return err
}

func (h *handshake) verify() error {
	p, err := receive[*wire.Proof](h, "proof")
	if err != nil {
		return err
	}
	want := proof(h.self.Key, h.theirs, h.ours, p.Received)
	if !hmac.Equal(p.MAC[:], want[:]) {
		return refuse(overlay.ErrForbidden, "its proof does not fit: it does not hold the job's key, or replays what another said")
	}
	h.received = p.Received
	return nil
}

// proof is the sender's MAC: over the label, its hello and the other's, and what
// it has received.
func proof(key jobkey.ForLinks, sender, receiver *wire.Hello, received uint64) (mac [32]byte) {
	m := hmac.New(sha256.New, key[:])
	m.Write([]byte(proofLabel))
	m.Write(wire.Append(nil, sender))
	m.Write(wire.Append(nil, receiver))
	m.Write(binary.BigEndian.AppendUint64(nil, received))
	return [32]byte(m.Sum(nil))
}

// check compares the peer's hello with what was expected. It is not
// authenticated yet.
func (h *handshake) check() error {
	t, self := h.theirs, h.self.Process
	switch {
	case t.Job != self.Job:
		return refuse(overlay.ErrForbidden, "it belongs to job %s, this process to job %s", t.Job, self.Job)
	case h.peer != nil && t.From != h.peer.Rank:
		return refuse(overlay.ErrForbidden, "it is rank %d, but rank %d was dialled", t.From, h.peer.Rank)
	case h.peer == nil && t.To != self.Rank:
		return refuse(overlay.ErrForbidden, "it looks for rank %d, this is rank %d", t.To, self.Rank)
	case t.From == self.Rank:
		return refuse(overlay.ErrForbidden, "it says that it is rank %d, as this process is", t.From)
	case t.Dialled == h.ours.Dialled && t.Dialled:
		return refuse(wire.ErrMalformed, "both ends say that they dialled")
	case t.Dialled == h.ours.Dialled:
		return refuse(wire.ErrMalformed, "both ends say that they were dialled")
	case h.peer == nil && t.Link == (wire.ID{}):
		return refuse(wire.ErrMalformed, "it names no link")
	}
	return nil
}

func (h *handshake) send(f wire.Frame) error {
	_, err := h.carrier.Conn.Write(wire.Append(nil, f))
	return err
}

// receive reads one frame of the expected type.
func receive[F wire.Frame](h *handshake, what string) (want F, err error) {
	f, err := wire.Read(h.carrier.Conn)
	if err != nil {
		if errors.Is(err, wire.ErrVersion) || errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrMagic) || errors.Is(err, wire.ErrType) {
			return want, &refusal{fmt.Errorf("in place of its %s: %w", what, err)}
		}
		if err == io.EOF {
			return want, fmt.Errorf("it closed the connection before its %s: %w", what, err)
		}
		return want, fmt.Errorf("waiting for its %s: %w", what, err)
	}
	if r, ok := f.(*wire.Refuse); ok {
		return want, r.Err()
	}
	want, ok := f.(F)
	if !ok {
		return want, refuse(wire.ErrType, "%v in place of its %s", f.Type(), what)
	}
	return want, nil
}

// socketError tells what the operating system said from what a peer said.
func socketError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, io.EOF)
}

// fail closes the carrier and words the error.
func (h *handshake) fail(err error) error {
	var found *refusal
	if errors.As(err, &found) {
		h.carrier.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		h.send(&wire.Refuse{Code: wire.CodeOf(found.err), By: h.self.Process.String(), Text: found.err.Error()})
	}
	h.carrier.Conn.Close()
	if h.carrier.Fault != nil && found == nil {
		if known := h.carrier.Fault(); known != nil {
			err = known
		}
	}
	return fmt.Errorf("link to %s (%v): %w", h.who(), h.carrier.Path, err)
}

func (h *handshake) who() string {
	switch {
	case h.peer != nil:
		return h.peer.String()
	case h.theirs != nil:
		return overlay.ProcessName{Job: h.theirs.Job, Rank: h.theirs.From}.String()
	}
	return "a process that dialled " + h.self.Process.String()
}
