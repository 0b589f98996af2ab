package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

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

type dialResult struct {
	carrier overlay.Carrier // of a dial
	port    string          // of a lookup
	err     error
	again   bool // the helper is gone: ask the next one
}

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
		t := time.NewTimer(backoff)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

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

// Generation returns the process's generation, which does not change once Ready has returned; 0
// until a helper has assigned one.
func (c *Client) Generation() overlay.Generation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.life
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
