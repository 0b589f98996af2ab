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

// proofLabel separates the link key's MACs over hellos from its other uses.
const proofLabel = "isthmus v1 link proof"

// Identity is what a process presents to its peers. NewIdentity makes one.
type Identity struct {
	Process    overlay.ProcessName
	Generation overlay.Generation
	Key        jobkey.ForLinks

	// Credentials returns the process's credentials for encrypted carriers. It is called once for
	// each of them.
	Credentials func() (sealed.Credentials, error)
}

// NewIdentity returns the identity of one generation of a rank of the key's job. Its certificate is
// made when the first carrier needs one.
func NewIdentity(key jobkey.Key, rank uint32, generation overlay.Generation) Identity {
	return Identity{
		Process: overlay.ProcessName{Job: key.ID(), Rank: rank}, Generation: generation, Key: key.Links(),
		Credentials: sync.OnceValues(func() (sealed.Credentials, error) { return key.Certificates(rank, generation) }),
	}
}

// Establish authenticates a carrier from both ends and returns a link that uses only this carrier:
// the link ends with it. peer is the process that was dialled, or nil for an incoming carrier. A
// Mesh makes links that outlive their carriers.
//
// admit is called once, before this end commits itself by sending its Proof, with the peer's Hello;
// the peer of an incoming carrier has not proven that Hello yet. admit may block. Its error is sent
// to the peer as a Refuse and returned.
//
// On error the carrier is closed. The error names the peer, the path and the cause; a refusal by a
// process on the way, and what the local helper knows about the carrier, take precedence over the
// socket's error. ctx bounds Establish.
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

// terms are the parameters of a handshake.
type terms struct {
	link  wire.ID // zero at the dialled side, which learns it
	again bool

	// admit decides whether this end accepts the carrier, and returns how many bytes of the peer's
	// stream it has received.
	admit func(*wire.Hello) (received uint64, err error)
}

// met is the result of a handshake. After a failure only hello, link and proven are set.
type met struct {
	hello    *wire.Hello // the peer's; nil if the handshake failed before it arrived
	link     wire.ID
	received uint64 // by the peer
	rtt      time.Duration
	proven   bool // as far as this end can tell, the failure was detected at the peer or reported by it, not by a process on the way
}

// runHandshake performs the handshake. Both ends send a Hello at once. The dialled end then sends
// its Proof; the dialler checks it and sends its own, and data may follow directly: the dialler is
// ready after one round trip. The handshake reads no byte beyond the peer's frames.
//
// If either end wants the carrier encrypted, TLS runs between the hellos and the proofs (seal.go).
// The caller must use the returned carrier from then on.
func runHandshake(ctx context.Context, c overlay.Carrier, self Identity, peer *overlay.ProcessName, t terms) (overlay.Carrier, met, error) {
	prepare(c.Conn)
	c.Conn = stream.ConnOf(c.Conn) // before the handshake, so that TLS reads through it too
	h := &handshake{carrier: c, conn: c.Conn, self: self, peer: peer, terms: t}
	interrupted := make(chan struct{})
	interrupt := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		c.Conn.SetDeadline(time.Unix(1, 0))
	})
	err := h.run(ctx)
	if !interrupt() {
		<-interrupted
		if err == nil { // our proof is sent, or the peer's has arrived: the peer may have the link already, so keep it
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
	refusalSent  bool // the peer has been sent the refusal
	heard        bool // at least one byte arrived
}

// refusal is a fault that this end found in the peer; it is sent to the peer.
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

// hello returns this end's Hello.
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
		f.To = f.From // not known yet: the dialler may be any rank
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

// hearing reads from the handshake's connection and records that data arrived.
type hearing struct{ h *handshake }

func (r hearing) Read(b []byte) (int, error) {
	n, err := r.h.conn.Read(b)
	r.h.heard = r.h.heard || n > 0
	return n, err
}

// ask performs the dialler's part.
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

// answer performs the dialled end's part.
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

// proof asks admit whether this end accepts the carrier and returns the Proof. Sending it commits
// this end.
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
		return refuse(overlay.ErrForbidden, "its proof is wrong: it does not have the job's key, or an attacker replays or modifies messages")
	}
	h.received = p.Received
	return nil
}

// proof returns the sender's MAC over the label, its hello, the receiver's hello, and the number of
// bytes it has received.
func proof(key jobkey.ForLinks, sender, receiver *wire.Hello, received uint64) (mac [32]byte) {
	m := hmac.New(sha256.New, key[:])
	m.Write([]byte(proofLabel))
	m.Write(wire.Append(nil, sender))
	m.Write(wire.Append(nil, receiver))
	m.Write(binary.BigEndian.AppendUint64(nil, received))
	return [32]byte(m.Sum(nil))
}

// proven reports whether the peer has authenticated itself, or cannot be required to: on a
// plain-text carrier any process on the way can send a refusal in the peer's name once the peer has
// sent its hello.
func (h *handshake) proven() bool {
	if h.theirs == nil {
		return false
	}
	return h.cipher != "" || !h.ours.Seal() && !h.theirs.Seal()
}

// check compares the peer's hello with what was expected. The hello is not authenticated yet.
func (h *handshake) check() error {
	t, self := h.theirs, h.self.Process
	told := h.carrier.Path.Peer.Site // may have been changed by the daemons that carried the signalling
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

// padding is how many bytes precede a hello: with them the handshake's first segment is full-sized,
// a probe of the path's MTU in the sense of RFC 4821.
const padding = 2048

// sendHello sends the hello, preceded by padding where there is a network between the ends: if the
// path drops full-sized packets, the handshake fails and not the stream after it. Small packets
// pass on any path.
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

// socketError distinguishes an error of the operating system from one that a peer reported.
func socketError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, io.EOF)
}

// fail sends the peer the refusal if there is one, closes the carrier and returns the error to
// report.
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
	if r, ok := errors.AsType[*refused](err); ok && r.by.By == h.peerName() { // no need to name it twice
		err = r.by.Code.Errorf("it says: %s", r.by.Text)
	}
	return fmt.Errorf("link to %s (%v): %w", h.peerName(), h.carrier.Path, err)
}

// refused is the error for a Refuse that was received.
type refused struct {
	error
	by *wire.Refuse
}

func (r *refused) Unwrap() error { return r.error }

// sendRefusal sends the peer a refusal, at most once.
func (h *handshake) sendRefusal(found *refusal) {
	if h.refusalSent {
		return
	}
	h.refusalSent = true
	h.conn.SetWriteDeadline(time.Now().Add(time.Second))
	h.send(h.refuse(found))
}

func (h *handshake) refuse(found *refusal) *wire.Refuse {
	return &wire.Refuse{Code: wire.CodeOf(found.err), By: h.self.Process.String(), Text: found.err.Error()}
}

// drain reads until the refused peer closes, or a second has passed. The peer has begun TLS
// already; unread data at the close would make the kernel reset the connection, and the reset might
// overtake the refusal.
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
