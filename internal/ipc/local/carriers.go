package local

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// fault is the helper's report about one carrier.
type fault struct {
	conn net.Conn
	mu   sync.Mutex
	err  error
}

func (f *fault) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (c *Client) dialled(f *wire.LocalDialled, file *os.File) error {
	carrier, err := c.carrier(f.Carrier, overlay.Carrier{Path: f.Path, Seal: f.Seal, Idle: f.Idle}, file)
	if err != nil {
		return err
	}
	carrier.Outcome = func(err error) { c.outcome(f.Carrier, err) }
	if !c.answer(f.Request, dialResult{carrier: carrier}) {
		carrier.Conn.Close() // the Dial has ended meanwhile
	}
	return nil
}

// carrier completes made, the helper's description of a carrier, with file, which it closes, and
// registers the carrier for faults.
func (c *Client) carrier(id uint64, made overlay.Carrier, file *os.File) (overlay.Carrier, error) {
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return overlay.Carrier{}, fmt.Errorf("%w: the helper passed what is no socket: %w", wire.ErrMalformed, err)
	}
	f := &fault{conn: conn}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[id] = f
	if c.order = append(c.order, id); len(c.order) > rememberFaults {
		delete(c.faults, c.order[0])
		c.order = c.order[1:]
	}
	made.Conn, made.Here, made.Fault = conn, c.node, f.get
	return made, nil
}

// fault records what is wrong with a carrier and closes it, which ends the handshake that waits on
// it. An established link has none: the helper reports only that the other end never connected.
func (c *Client) fault(f *wire.LocalFault) {
	c.mu.Lock()
	known := c.faults[f.Carrier]
	delete(c.faults, f.Carrier)
	c.mu.Unlock()
	if known == nil {
		return
	}
	known.mu.Lock()
	known.err = f.Code.Errorf("%s", f.Text)
	known.mu.Unlock()
	known.conn.Close()
}

// outcome queues a report to the helper about a carrier's result.
func (c *Client) outcome(id uint64, err error) {
	said := &wire.LocalOutcome{Carrier: id}
	if err != nil {
		said.Code, said.Text = wire.CodeOf(err), err.Error()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.judged) == rememberFaults || c.faults[id] == nil {
		return // there are many, and later ones are similar; or the carrier was another helper's
	}
	c.judged = append(c.judged, said)
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// Accept implements overlay.Connector.
func (c *Client) Accept(ctx context.Context) (overlay.Carrier, error) {
	for {
		c.mu.Lock()
		ended, changed := c.ended, c.changed
		c.mu.Unlock()
		if ended != nil {
			return overlay.Carrier{}, fmt.Errorf("local.Accept: helper %s: %w", c.cfg.Socket, ended)
		}
		select {
		case carrier := <-c.incoming:
			return carrier, nil
		case <-changed:
		case <-ctx.Done():
			return overlay.Carrier{}, ctx.Err()
		}
	}
}

// Dropped returns how many incoming carriers were closed because they were not accepted in time.
func (c *Client) Dropped() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// drain closes the carriers that will not be accepted.
func (c *Client) drain() {
	for {
		select {
		case carrier := <-c.incoming:
			carrier.Conn.Close()
		default:
			return
		}
	}
}
