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
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/link/sealed"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// proofLabel keeps the link key's MACs over hellos apart from any other use.
const proofLabel = "isthmus v1 link proof"

// Identity is who a process is to its peers. NewIdentity makes one.
type Identity struct {
	Process    overlay.ProcessName
	Generation overlay.Generation
	Key        jobkey.ForLinks

	// Credentials returns by what the process is known on encrypted carriers. It
	// is called for each of them.
	Credentials func() (sealed.Credentials, error)
}

// NewIdentity returns who a rank of the key's job is in one of its lives. Its
// certificate is made when the first carrier needs one.
func NewIdentity(key jobkey.Key, rank uint32, generation overlay.Generation) Identity {
	return Identity{
		Process: overlay.ProcessName{Job: key.ID(), Rank: rank}, Generation: generation, Key: key.Links(),
		Credentials: sync.OnceValues(func() (sealed.Credentials, error) { return key.Certificates(rank, generation) }),
	}
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
	c, m, err := runHandshake(ctx, c, self, peer, t)
	if err != nil {
		return nil, err
	}
	l := newLink(c, m, peer != nil)
	l.begin(stream.Options{
		Lost: func(_ *stream.Carrier, err error, _ int) error {
			return fmt.Errorf("link to %v (%v): %w", l.Peer, l.Path, err)
		},
		Silent: func(bool) {}, Ended: func() {},
	})
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

// met is what a handshake led to. After a failure only hello, link and proven are set.
type met struct {
	hello    *wire.Hello // the peer's; nil after a failure before it came
	link     wire.ID
	received uint64 // by the peer
	rtt      time.Duration
	proven   bool // what failed was, as far as can be, found at the peer or said by it, not by somebody on the way
}

// runHandshake carries out the handshake. Both ends send a Hello at once. The end that
// was dialled then sends its Proof; the dialler checks it and sends its own,
// behind which data may follow directly: the dialler is ready after one round
// trip. Not a byte beyond the peer's frames is read.
//
// If either end wants the carrier encrypted, TLS comes between the hellos and
// the proofs (seal.go). What shake returns is the carrier to use from then on.
func runHandshake(ctx context.Context, c overlay.Carrier, self Identity, peer *overlay.ProcessName, t terms) (overlay.Carrier, met, error) {
	prepare(c.Conn)
	c.Conn = stream.ConnOf(c.Conn) // here, so that TLS reads it in that way too
	h := &handshake{carrier: c, conn: c.Conn, self: self, peer: peer, terms: t}
	interrupted := make(chan struct{})
	interrupt := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		c.Conn.SetDeadline(time.Unix(1, 0))
	})
	err := h.run(ctx)
	if !interrupt() {
		<-interrupted
		if err == nil { // our proof is out, or the peer's in: it may be a link to the peer, and so it is one
			c.Conn.SetDeadline(time.Time{})
		}
	}
	if err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) && socketError(err) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		switch {
		case h.theirs != nil:
		case ctx.Err() != nil && h.heard && h.padded():
			err = fmt.Errorf("%w: %w", errTrickle, err)
		case ctx.Err() == nil && !h.heard && socketError(err):
			err = fmt.Errorf("%w: %w", errClosedEarly, err)
		}
		return overlay.Carrier{}, met{hello: h.theirs, link: t.link, proven: h.proven()}, h.fail(ctx, err)
	}
	m := met{hello: h.theirs, link: t.link, received: h.received, rtt: h.rtt, proven: true}
	if peer == nil {
		m.link = h.theirs.Link
	}
	c.Conn, c.Path.Cipher = h.conn, h.cipher
	return c, m, nil
}

type handshake struct {
	carrier overlay.Carrier
	conn    net.Conn // the carrier's, or what encrypts it
	cipher  string   // of conn, if it is encrypted
	self    Identity
	peer    *overlay.ProcessName // nil when we were dialled
	terms

	ours, theirs *wire.Hello
	received     uint64 // by the peer
	rtt          time.Duration
	told         bool // the peer knows why we refuse it
	heard        bool // something came
}

// refusal is a fault that this end found in the peer; it is told.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(class error, format string, args ...any) error {
	return &refusal{fmt.Errorf("%w: "+format, append([]any{class}, args...)...)}
}

func (h *handshake) run(ctx context.Context) error {
	h.ours = h.hello()
	started := time.Now()
	if err := h.sendHello(); err != nil {
		return fmt.Errorf("sending our hello: %w", err)
	}
	if h.peer != nil {
		return h.ask(ctx, started)
	}
	return h.answer(ctx)
}

// hello is what this end says of itself and of what it wants.
func (h *handshake) hello() *wire.Hello {
	f := &wire.Hello{
		Job: h.self.Process.Job, From: h.self.Process.Rank, Generation: h.self.Generation,
		Site: h.carrier.Here.Site, Dialled: h.peer != nil, Features: wire.FeatureWindow,
	}
	if h.carrier.Seal {
		f.Features |= wire.FeatureSeal
	}
	if h.peer != nil {
		f.To, f.Link, f.Again = h.peer.Rank, h.link, h.again
	} else {
		f.To = f.From // not known yet: whoever it is, it is answered
	}
	rand.Read(f.Nonce[:])
	return f
}

// meet reads the peer's hello and checks it.
func (h *handshake) meet() (err error) {
	if h.theirs, err = receive[*wire.Hello](hearing{h}, "hello"); err != nil {
		return err
	}
	return h.check()
}

// hearing reads from the handshake's connection and notes that something came.
type hearing struct{ h *handshake }

func (r hearing) Read(b []byte) (int, error) {
	n, err := r.h.conn.Read(b)
	r.h.heard = r.h.heard || n > 0
	return n, err
}

// ask is the dialler's part.
func (h *handshake) ask(ctx context.Context, started time.Time) error {
	if err := h.meetSealed(ctx); err != nil {
		return err
	}
	if err := h.verify(); err != nil {
		return err
	}
	h.rtt = time.Since(started)
	p, err := h.proof()
	if err != nil {
		return err
	}
	return h.sendProof(p)
}

// answer is the dialled end's part.
func (h *handshake) answer(ctx context.Context) error {
	if err := h.meet(); err != nil {
		return err
	}
	p, err := h.proof()
	started := time.Now()
	switch {
	case h.ours.Seal() || h.theirs.Seal():
		err = h.sealAsServer(ctx, p, err)
	case err == nil:
		err = h.sendProof(p)
	}
	if err != nil {
		return err
	}
	err = h.verify()
	h.rtt = time.Since(started)
	return err
}

// proof asks whether this end wants the carrier. By sending it the end commits
// itself.
func (h *handshake) proof() (*wire.Proof, error) {
	received, err := h.admit(h.theirs)
	if err != nil {
		return nil, &refusal{err}
	}
	return &wire.Proof{Received: received, MAC: proof(h.self.Key, h.ours, h.theirs, received)}, nil
}

func (h *handshake) sendProof(p *wire.Proof) error {
	if err := h.send(p); err != nil {
		return fmt.Errorf("sending our proof: %w", err)
	}
	return nil
}

func (h *handshake) verify() error {
	p, err := receive[*wire.Proof](h.conn, "proof")
	if err != nil {
		return err
	}
	want := proof(h.self.Key, h.theirs, h.ours, p.Received)
	if !hmac.Equal(p.MAC[:], want[:]) {
		return refuse(overlay.ErrForbidden, "its proof does not fit: it does not hold the job's key, or somebody replays or changes what was said")
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

// proven reports whether the peer has shown that it is the peer, or cannot be
// asked to: on a carrier in plain text anybody on the way can refuse in its name
// once it has said hello.
func (h *handshake) proven() bool {
	if h.theirs == nil {
		return false
	}
	return h.cipher != "" || !h.ours.Seal() && !h.theirs.Seal()
}

// check compares the peer's hello with what was expected. It is not
// authenticated yet.
func (h *handshake) check() error {
	t, self := h.theirs, h.self.Process
	told := h.carrier.Path.Peer.Site // whoever carried the intro may have changed it
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
	case t.Site != "" && told != "" && t.Site != told:
		return refuse(overlay.ErrForbidden, "it is at site %s, but was announced as one of %s, for which other rules may hold", t.Site, told)
	}
	return nil
}

// padding is how much comes before a hello: with it the handshake's first segment is a
// full one (RFC 4821 calls it a probe of the path's MTU).
const padding = 2048

// sendHello sends the hello, and padding before it where a network is between the
// ends: where packets of full size vanish it is the handshake that fails, and not the
// stream behind it. Small ones pass anywhere.
func (h *handshake) sendHello() error {
	var b []byte
	if h.padded() {
		b = wire.Append(b, &wire.Padding{N: padding})
	}
	_, err := h.conn.Write(wire.Append(b, h.ours))
	return err
}

func (h *handshake) padded() bool {
	p := h.carrier.Path
	return p.Technique != 0 && !p.Small
}

func (h *handshake) send(f wire.Frame) error {
	_, err := h.conn.Write(wire.Append(nil, f))
	return err
}

// receive reads one frame of the expected type.
func receive[F wire.Frame](from io.Reader, what string) (want F, err error) {
	f, err := wire.Read(from)
	for err == nil && f.Type() == wire.TypePadding {
		f, err = wire.Read(from)
	}
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
		return want, &refused{r.Err(), r}
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

// fail tells the peer what is wrong with it, closes the carrier and words the
// error.
func (h *handshake) fail(ctx context.Context, err error) error {
	var found *refusal
	if errors.As(err, &found) {
		h.sendRefusal(found)
		if h.peer == nil && h.theirs != nil && h.theirs.Seal() && h.cipher == "" && ctx.Err() == nil {
			h.drain()
		}
	}
	h.conn.Close()
	if h.carrier.Fault != nil && found == nil {
		if known := h.carrier.Fault(); known != nil {
			err = known
		}
	}
	if r, ok := errors.AsType[*refused](err); ok && r.by.By == h.peerName() { // which need not be said again
		err = r.by.Code.Errorf("it says: %s", r.by.Text)
	}
	return fmt.Errorf("link to %s (%v): %w", h.peerName(), h.carrier.Path, err)
}

// refused is the error of a refusal that came.
type refused struct {
	error
	by *wire.Refuse
}

func (r *refused) Unwrap() error { return r.error }

// sendRefusal sends the peer a refusal, once.
func (h *handshake) sendRefusal(found *refusal) {
	if h.told {
		return
	}
	h.told = true
	h.conn.SetWriteDeadline(time.Now().Add(time.Second))
	h.send(h.refuse(found))
}

func (h *handshake) refuse(found *refusal) *wire.Refuse {
	return &wire.Refuse{Code: wire.CodeOf(found.err), By: h.self.Process.String(), Text: found.err.Error()}
}

// drain reads on until the peer, which was refused, closes, or its moment is
// over. It has begun TLS already, and what is unread at the close would reset
// the connection and might overtake the refusal.
func (h *handshake) drain() {
	if c, ok := h.conn.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
	}
	h.conn.SetReadDeadline(time.Now().Add(time.Second))
	io.Copy(io.Discard, io.LimitReader(h.conn, 64<<10))
}

func (h *handshake) peerName() string {
	switch {
	case h.peer != nil:
		return h.peer.String()
	case h.theirs != nil:
		return overlay.ProcessName{Job: h.theirs.Job, Rank: h.theirs.From}.String()
	}
	return "a process that dialled " + h.self.Process.String()
}
