package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// DefaultSocket is the socket that a helper's settings have by default.
const DefaultSocket = "/run/isthmus/helper.sock"

const (
	// maxIncoming bounds the carriers that wait for Accept. At the bound, further ones are closed
	// and counted; their diallers see the close.
	maxIncoming = 64
	// maxReports bounds the links with reports to the helper; links beyond it are not reported.
	// Links that are not over count, since their reports must be repeated to another helper.
	maxReports = 1 << 16
	// rememberFaults bounds the carriers whose faults are still handled. A fault concerns a
	// carrier's first seconds, so the oldest are dropped.
	rememberFaults = 1024
	// maxReserves bounds the reserve relays that are still to be requested from the helper; further
	// ones are requested when Reserve is called again.
	maxReserves = 4096
	// greetTimeout bounds the connection to the helper and its welcome.
	greetTimeout = 10 * time.Second
	// defaultBudget is that of a Dial whose context has no deadline.
	defaultBudget = time.Minute
	// answerMargin is the part of its time that a Dial reserves, at most a tenth, so that the
	// helper's error arrives before the time is up.
	answerMargin = 200 * time.Millisecond
	minBackoff   = 20 * time.Millisecond
	maxBackoff   = time.Second
)

// ClientConfig is the identity of a process and the address of its helper.
type ClientConfig struct {
	Socket     string // the helper's Unix socket
	Process    overlay.ProcessName
	Generation overlay.Generation // 0: the helper assigns one; see Client.Generation
	Auth       jobkey.ForAuth     // signs the process's location
	Grant      []byte             // proves on whose behalf the job runs (package grant); none: the account of this process

	// Dead, if not nil, is called for processes of the job that died with their node, with the
	// helper's reason. Serve calls it, one call at a time; it owns ranks. It must not block.
	Dead func(ranks []uint32, why string)
}

// Client reaches the other processes of a job through the node's helper. It is an overlay.Connector
// once Serve runs. When the helper dies, carriers it gave out continue; the client registers with
// the next helper under the same generation, and Dials wait for that.
type Client struct {
	cfg ClientConfig

	incoming chan overlay.Carrier

	mu      sync.Mutex // guards the fields below; never held while sending to the helper
	conn    *Conn      // nil while no helper has welcomed this process
	node    overlay.NodeID
	life    overlay.Generation // 0 until the first helper has assigned one
	changed chan struct{}      // closed and replaced when conn, ended or dials change
	lastErr error              // why conn is nil
	ended   error              // why it stays nil
	stop    context.CancelFunc
	request uint32
	dials   map[uint32]chan dialResult // requests of all kinds that wait for their answer
	named   bool                       // the helper supports names
	sizes   bool                       // it supports sizes of packets
	keeps   bool                       // it supports reserve relays
	names   map[string]string          // published ones, with their ports
	faults  map[uint64]*fault
	order   []uint64 // keys of faults, oldest first
	dropped uint64

	telling sync.Mutex // held while reports are sent; held before mu
	reports map[[16]byte]report
	wanted  map[uint32]overlay.Generation // relays to reserve that were not requested from this helper yet; at most maxReserves
	judged  []*wire.LocalOutcome          // of this helper's carriers, not sent yet; at most rememberFaults
	news    chan struct{}                 // capacity 1: signals that there is one to send
}

// report is the last report on a link's traffic.
type report struct {
	overlay.Traffic
	sent bool // to this helper
}

var (
	_ overlay.Connector       = (*Client)(nil)
	_ overlay.TrafficReporter = (*Client)(nil)
	_ overlay.Reserver        = (*Client)(nil)
)

// NewClient returns a client, whose connections fail until Serve is called.
func NewClient(cfg ClientConfig) *Client {
	return &Client{
		cfg:      cfg,
		life:     cfg.Generation,
		incoming: make(chan overlay.Carrier, maxIncoming),
		changed:  make(chan struct{}),
		lastErr:  errors.New("not tried yet"),
		dials:    map[uint32]chan dialResult{},
		names:    map[string]string{},
		faults:   map[uint64]*fault{},
		reports:  map[[16]byte]report{},
		wanted:   map[uint32]overlay.Generation{},
		news:     make(chan struct{}, 1),
	}
}

// Serve keeps the process registered with its helper until ctx is done, Close is called or the
// helper refuses the process permanently. It returns nil in the first two cases, when everything
// that it started has ended. Call it once.
func (c *Client) Serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer c.drain()
	c.mu.Lock()
	c.stop = stop
	ended := c.ended
	c.mu.Unlock()
	if ended != nil {
		return nil
	}
	backoff := minBackoff
	for {
		err := c.session(ctx, func() { backoff = minBackoff })
		final := ctx.Err() != nil || permanent(err)
		if ctx.Err() != nil {
			err = net.ErrClosed
		}
		c.disconnected(err, final)
		if ctx.Err() != nil {
			return nil
		}
		if final {
			return err
		}
		sleep.For(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// Generation returns the process's generation, which does not change once Ready has returned; 0
// until a helper has assigned one.
func (c *Client) Generation() overlay.Generation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.life
}

// announce wakes waiters to check again. The caller must hold mu.
func (c *Client) announce() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Ready waits until the helper has registered the process, and returns the name of the node. The
// error says why the process is not registered.
func (c *Client) Ready(ctx context.Context) (overlay.NodeID, error) {
	if _, err := c.connected(ctx); err != nil {
		return overlay.NodeID{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node, nil
}

func (c *Client) connected(ctx context.Context) (*Conn, error) {
	for {
		c.mu.Lock()
		conn, ended, lastErr, changed := c.conn, c.ended, c.lastErr, c.changed
		c.mu.Unlock()
		switch {
		case ended != nil:
			return nil, fmt.Errorf("helper %s: %w", c.cfg.Socket, ended)
		case conn != nil:
			return conn, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if op, ok := errors.AsType[*net.OpError](lastErr); ok && op.Op == "dial" {
				lastErr = op.Err // without the name of the socket
			}
			return nil, fmt.Errorf("helper %s is not reachable: %w; is isthmus-helper running? (%w)", c.cfg.Socket, lastErr, ctx.Err())
		}
	}
}

// Close implements overlay.Connector: the helper withdraws the process when its socket closes, and
// is told before that this is not a death. Carriers that were not accepted are closed.
func (c *Client) Close() error {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		c.sendReport(conn)
		conn.Send(&wire.LocalLeave{}, nil) // a helper that is gone need not know
	}
	c.mu.Lock()
	c.ended = net.ErrClosed
	if c.stop != nil {
		c.stop()
	}
	c.announce()
	c.mu.Unlock()
	c.drain()
	return nil
}
