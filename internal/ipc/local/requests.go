package local

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

type dialResult struct {
	carrier overlay.Carrier // of a dial
	port    string          // of a lookup
	err     error
	again   bool // the helper is gone: ask the next one
}

// answer passes a request its result, if it is still pending.
func (c *Client) answer(request uint32, r dialResult) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait, ok := c.dials[request]
	if ok {
		delete(c.dials, request)
		wait <- r // has room for one
	}
	return ok
}

// Dial implements overlay.Connector.
func (c *Client) Dial(ctx context.Context, peer overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	if peer.Job != c.cfg.Process.Job {
		return overlay.Carrier{}, fmt.Errorf("local.Dial: %v: %w: this process belongs to job %s", peer, overlay.ErrForbidden, c.cfg.Process.Job)
	}
	for {
		conn, err := c.connected(ctx)
		if err != nil {
			return overlay.Carrier{}, fmt.Errorf("local.Dial: %v: %w", peer, err)
		}
		if ways == overlay.Reserved && !c.keepsReserves() {
			return overlay.Carrier{}, fmt.Errorf("local.Dial: %v: %w: the helper keeps no reserve", peer, overlay.ErrNoRelay)
		}
		r := c.requestPath(ctx, conn, peer.Rank, ways)
		switch {
		case r.again && ctx.Err() == nil:
			continue
		case r.err != nil:
			return overlay.Carrier{}, fmt.Errorf("local.Dial: %v: %w", peer, r.err)
		case !r.again:
			return r.carrier, nil
		}
	}
}

// requestPath makes one request to one helper.
func (c *Client) requestPath(ctx context.Context, conn *Conn, rank uint32, ways overlay.Ways) dialResult {
	return c.put(ctx, conn, func(request uint32) wire.Frame {
		if !c.knowsSizes() {
			ways = ways.Techniques()
		}
		return &wire.LocalDial{Request: request, Rank: rank, Budget: budgetOf(ctx), Ways: ways}
	})
}

// knowsSizes reports whether the helper supports the flags of overlay.Ways.
func (c *Client) knowsSizes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sizes
}

// keepsReserves reports whether the helper supports overlay.Reserved.
func (c *Client) keepsReserves() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keeps
}

// budgetOf returns how long the helper may take within the deadline of ctx.
func budgetOf(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return defaultBudget
	}
	left := time.Until(deadline)
	return max(left-min(left/10, answerMargin), time.Millisecond)
}

// put sends one request to one helper and waits for its result.
func (c *Client) put(ctx context.Context, conn *Conn, frame func(request uint32) wire.Frame) dialResult {
	wait := make(chan dialResult, 1)
	c.mu.Lock()
	if c.conn != conn {
		c.mu.Unlock()
		return dialResult{again: true}
	}
	c.request++
	request := c.request
	c.dials[request] = wait
	c.mu.Unlock()

	// A failure to send closes conn, which ends the session, which completes the request.
	conn.Send(frame(request), nil)
	select {
	case r := <-wait:
		return r
	case <-ctx.Done():
	}
	c.mu.Lock()
	delete(c.dials, request)
	c.mu.Unlock()
	conn.Send(&wire.LocalCancel{Request: request}, nil)
	select {
	case r := <-wait: // the answer arrived at the same time
		if r.carrier.Conn != nil {
			r.carrier.Conn.Close()
		}
	default:
	}
	return dialResult{err: fmt.Errorf("the helper was still trying: %w", ctx.Err())}
}
