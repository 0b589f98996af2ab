package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// permanent reports whether a repetition would fail in the same way.
func permanent(err error) bool {
	for _, class := range []error{overlay.ErrForbidden, overlay.ErrStale, overlay.ErrDuplicate, wire.ErrVersion, wire.ErrMagic} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// session registers with the helper and handles its frames until it disconnects.
func (c *Client) session(ctx context.Context, welcomed func()) error {
	conn, welcome, err := c.handshake(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	welcomed()
	c.mu.Lock()
	c.conn, c.node, c.named = conn, welcome.Node, welcome.Features&wire.FeatureNames != 0
	c.sizes, c.keeps = welcome.Features&wire.FeaturePacketSize != 0, welcome.Features&wire.FeatureReserve != 0
	again := c.publishAgain()
	c.announce()
	c.mu.Unlock()
	for _, f := range again {
		conn.Send(f, nil) // a failure ends the session, and the next one publishes
	}
	defer c.reportTo(conn)()
	for {
		f, file, err := conn.Receive()
		if err != nil {
			return fmt.Errorf("the connection to the helper ended: %w", err)
		}
		if err := c.handle(f, file); err != nil {
			return err
		}
	}
}

func (c *Client) handshake(ctx context.Context) (*Conn, *wire.LocalWelcome, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "unix", c.cfg.Socket)
	if err != nil {
		return nil, nil, err
	}
	conn := NewConn(raw.(*net.UnixConn))
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	welcome, err := c.register(conn)
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("it accepted the connection but did not answer within %v: %w", greetTimeout, overlay.ErrTimeout)
		}
		return nil, nil, err
	}
	return conn, welcome, nil
}

func (c *Client) register(conn *Conn) (*wire.LocalWelcome, error) {
	var err error
	if len(c.cfg.Grant) > 0 {
		err = conn.Send(&wire.LocalGrant{Grant: c.cfg.Grant}, nil)
	}
	hello := &wire.LocalHello{Features: wire.FeaturePacketSize, Key: c.cfg.Auth.Public(), Job: c.cfg.Process.Job, Rank: c.cfg.Process.Rank, Generation: c.Generation()}
	err = errors.Join(err, conn.Send(hello, nil))
	for {
		// A helper that refuses at once may have closed before the hello was sent: its reason is
		// more important than the failure of the hello.
		f, file, readErr := conn.Receive()
		switch f := f.(type) {
		case *wire.LocalPlace:
			readErr = c.prove(conn, f)
		case *wire.LocalWelcome:
			if len(c.cfg.Grant) > 0 && f.Features&wire.FeatureGrants == 0 {
				return nil, fmt.Errorf("%w: the helper of %v is too old to take the job's grant; upgrade it, or unset the grant", wire.ErrVersion, f.Node)
			}
			return f, nil
		case *wire.Refuse:
			return nil, f.Err()
		case *wire.LocalIncoming, *wire.LocalDead: // the helper may register the process a moment before it sends the welcome
			readErr = c.handle(f, file)
		case nil:
		default:
			readErr = fmt.Errorf("%w: %v in place of a welcome", wire.ErrType, f.Type())
			if file != nil {
				file.Close()
			}
		}
		if readErr != nil {
			return nil, errors.Join(err, readErr)
		}
	}
}

// prove adopts the generation that the helper assigns, permanently, and signs that the process is
// at the helper's node in that generation.
func (c *Client) prove(conn *Conn, place *wire.LocalPlace) error {
	if err := place.Generation.Check(time.Now()); err != nil {
		return fmt.Errorf("helper of %v: %w", place.Node, err)
	}
	c.mu.Lock()
	had := c.life
	if had == 0 {
		c.life = place.Generation
	}
	c.mu.Unlock()
	if had != 0 && had != place.Generation || place.Generation == 0 {
		return fmt.Errorf("%w: the helper of %v gives generation %d to %v, which is in generation %d", wire.ErrMalformed, place.Node, place.Generation, c.cfg.Process, had)
	}
	proof := c.cfg.Auth.Prove(c.cfg.Process, place.Generation, place.Node)
	return conn.Send(&wire.LocalProof{Signature: [64]byte(proof[len(jobkey.Public{}):])}, nil)
}

// handle handles one frame. It owns file.
func (c *Client) handle(f wire.Frame, file *os.File) error {
	switch f := f.(type) {
	case *wire.LocalDialled:
		return c.dialled(f, file)
	case *wire.LocalIncoming:
		carrier, err := c.carrier(f.Carrier, overlay.Carrier{Path: f.Path, Seal: f.Seal, Idle: f.Idle}, file)
		if err != nil {
			return err
		}
		select {
		case c.incoming <- carrier:
		default:
			c.mu.Lock()
			c.dropped++ // before the drop is visible to others
			c.mu.Unlock()
			carrier.Conn.Close()
		}
	case *wire.LocalNamed:
		c.answer(f.Request, dialResult{port: f.Port})
	case *wire.LocalFailed:
		c.answer(f.Request, dialResult{err: f.Code.Errorf("%s", f.Text)})
	case *wire.LocalFault:
		c.fault(f)
	case *wire.LocalDead:
		if c.cfg.Dead != nil {
			c.cfg.Dead(f.Ranks, f.Text)
		}
	case *wire.Refuse:
		return f.Err()
	default:
		return fmt.Errorf("%w: the helper sent %v", wire.ErrType, f.Type())
	}
	return nil
}

// disconnected records the loss of the helper and makes every Dial that waits for its answer ask
// again.
func (c *Client) disconnected(err error, final bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.lastErr = nil, err
	if final && c.ended == nil {
		c.ended = err
	}
	for request, wait := range c.dials {
		delete(c.dials, request)
		wait <- dialResult{again: true}
	}
	clear(c.faults) // the next helper numbers its carriers anew
	c.order, c.judged = nil, nil
	clear(c.wanted)
	c.announce()
}
