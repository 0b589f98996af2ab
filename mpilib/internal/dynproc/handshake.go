package dynproc

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// A Handshake is what the roots of two jobs say to each other at a port, on a link
// that both have proven to know the port:
//
//	connects                          accepts
//	offer: magic size nonce   ---->
//	                          <----   offer       when it comes to Accept
//	magic                     ---->               it is still there
//	        both sides' processes join the joint job
//	verdict                   ---->
//	                          <----   verdict
//
// The joint job's key follows from the port's and both nonces; it is never sent
// between the jobs.
type Handshake struct {
	listener *Listener
	link     *link.Link
	leaves   bool // the listener is used by this handshake only
	timeout  time.Duration

	Key    jobkey.Key // of the joint job
	Others int        // processes of the other side
}

const (
	portMagic = "ISjoin01"
	nonceLen  = 32
	offerLen  = len(portMagic) + 4 + nonceLen // magic, size:u32 (big-endian), nonce
	// stepTimeout bounds how long a root waits for messages that the other sends without waiting
	// itself.
	stepTimeout = 15 * time.Second
)

// Handshake agrees on a joint job with the other job's root, by connecting to its port or accepting
// at one, and returns when both know the joint job's key. mine is the number of processes of this
// side.
func (g *Connections) Handshake(ctx context.Context, connects bool, port string, mine int) (*Handshake, error) {
	if connects {
		key, err := ParsePort(port)
		if err != nil {
			return nil, err
		}
		l, visit, err := g.Dial(ctx, key)
		if err != nil {
			return nil, err
		}
		k := &Handshake{listener: l, link: visit, leaves: true, timeout: g.cfg.Timeout}
		if err := k.propose(ctx, key, mine); err != nil {
			l.Close() // with the link, without waiting for its other end
			return nil, fmt.Errorf("at the port: %w", err)
		}
		return k, nil
	}
	l, err := g.portOf(port)
	if err != nil {
		return nil, err
	}
	key, err := ParsePort(port)
	if err != nil {
		return nil, err
	}
	for {
		select {
		case caller := <-l.callers:
			k := &Handshake{listener: l, link: caller, timeout: g.cfg.Timeout}
			if k.receive(ctx, key, mine) == nil {
				return k, nil
			}
			k.Close() // the caller has left or violates the protocol: try the next one
		case <-l.closed:
			return nil, errNotMine
		case <-ctx.Done():
			return nil, fmt.Errorf("no process has connected: %w", context.Cause(ctx))
		}
	}
}

// Close ends the handshake.
func (k *Handshake) Close() {
	k.listener.CloseLink(k.link)
	if k.leaves {
		k.listener.Close()
	}
}

// propose is the part of the connecting side.
func (k *Handshake) propose(ctx context.Context, port jobkey.Key, mine int) error {
	defer k.bound(ctx, 0)()
	out := newOffer(mine)
	if _, err := k.link.Conn.Write(out); err != nil {
		return k.explain(ctx, fmt.Errorf("reaching the other job: %w", err))
	}
	in := make([]byte, offerLen)
	if _, err := io.ReadFull(k.link.Conn, in); err != nil {
		return k.explain(ctx, fmt.Errorf("waiting for the other job to accept: %w", err))
	}
	if err := k.settle(port, in, in, out, mine); err != nil {
		return err
	}
	_, err := k.link.Conn.Write([]byte(portMagic))
	return k.explain(ctx, err)
}

// receive is the part of the accepting side.
func (k *Handshake) receive(ctx context.Context, port jobkey.Key, mine int) error {
	defer k.bound(ctx, stepTimeout)()
	in := make([]byte, offerLen)
	if _, err := io.ReadFull(k.link.Conn, in); err != nil {
		return k.explain(ctx, err)
	}
	out := newOffer(mine)
	if err := k.settle(port, in, out, in, mine); err != nil {
		return err
	}
	if _, err := k.link.Conn.Write(out); err != nil {
		return k.explain(ctx, err)
	}
	magic := make([]byte, len(portMagic))
	if _, err := io.ReadFull(k.link.Conn, magic); err != nil {
		return k.explain(ctx, err)
	}
	if string(magic) != portMagic {
		return fmt.Errorf("%w: the other job's root sent an invalid offer; it may be of another version", mpi.ErrMismatch)
	}
	return nil
}

func newOffer(size int) []byte {
	b := binary.BigEndian.AppendUint32([]byte(portMagic), uint32(size))
	b = append(b, make([]byte, nonceLen)...)
	rand.Read(b[len(b)-nonceLen:]) // never fails (crypto/rand)
	return b
}

// settle reads the other side's offer and derives the key from the offers of the accepting and the
// connecting side.
func (k *Handshake) settle(port jobkey.Key, theirs, accepts, connects []byte, mine int) error {
	if string(theirs[:len(portMagic)]) != portMagic {
		return fmt.Errorf("%w: the other job's root sent an invalid offer; it may be of another version", mpi.ErrMismatch)
	}
	n := binary.BigEndian.Uint32(theirs[len(portMagic):])
	if n == 0 || uint64(n)+uint64(mine) > math.MaxInt32 {
		return fmt.Errorf("%w: the other job says that it has %d processes", mpi.ErrMismatch, n)
	}
	k.Others = int(n)
	nonces := append(append([]byte(nil), accepts[offerLen-nonceLen:]...), connects[offerLen-nonceLen:]...)
	k.Key = port.Joint(nonces)
	return nil
}

// conclude sends this side's result, mine, to the other root, and returns the result of both.
func (k *Handshake) conclude(ctx context.Context, mine error) error {
	if mine != nil { // it is sent even if ctx is done
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), broadcastTimeout)
		defer cancel()
	}
	// The other side's processes join at the same time, within this bound.
	defer k.bound(ctx, k.timeout+stepTimeout)()
	out := outcomeOf(mine)
	b := append([]byte{out.Class}, out.Text[:]...)
	if _, err := k.link.Conn.Write(b); err != nil || mine != nil {
		return mpi.FirstOf(mine, k.explain(ctx, err))
	}
	if _, err := io.ReadFull(k.link.Conn, b); err != nil {
		return k.explain(ctx, fmt.Errorf("waiting for the other job's processes to join: %w", err))
	}
	in := outcome{Class: b[0], Text: [len(out.Text)]byte(b[1:])}
	return in.err("the other job")
}

// bound makes reads and writes end with ctx, and after d unless it is 0. The returned function
// reverts that.
func (k *Handshake) bound(ctx context.Context, d time.Duration) func() {
	conn := k.link.Conn
	conn.SetDeadline(time.Time{})
	if d > 0 {
		conn.SetDeadline(time.Now().Add(d))
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// explain adds the cause to an error of the link: the context's, or that the other end has left.
func (k *Handshake) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the other job's root has left: %w", mpi.ErrPort, err)
	}
	return fmt.Errorf("%w: %w", mpi.ErrPort, k.link.Explain(err))
}
