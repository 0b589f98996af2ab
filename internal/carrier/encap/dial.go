package encap

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Bounds of a dial that does not know yet which form gets through.
const (
	stagger   = 300 * time.Millisecond // before the next form is tried in parallel to those that have not answered
	tryBound  = 10 * time.Second       // for one form, which takes up to five round trips
	memory    = 5 * time.Minute        // how long a form that got through is used without a test
	maxCached = 4096                   // maximum number of remembered addresses
)

// Route is how connections leave a site.
type Route struct {
	// Dial opens a connection to addr, "host:port"; nil dials directly, or through HTTPProxy with
	// CONNECT.
	Dial func(ctx context.Context, addr string) (*net.TCPConn, error)

	// HTTPProxy is the one that Dial uses, if it does. One without CONNECT is asked to forward a
	// WebSocket.
	HTTPProxy carrier.HTTPProxy

	// OnlyTLS says that plain connections are known not to get through.
	OnlyTLS bool

	// NAT says that there is one on the way, which may have room for few sessions.
	NAT bool
}

// RouteOf returns the route out of a site with that profile, whose HTTP proxy is via.
func RouteOf(p overlay.SiteProfile, via carrier.HTTPProxy) Route {
	r := Route{OnlyTLS: p.Egress.OnlyTLS(), NAT: p.NAT.Translates()}
	if p.Egress.ThroughHTTPProxy() {
		r.HTTPProxy = via
	}
	return r
}

func (r Route) dial(ctx context.Context, addr string) (*net.TCPConn, error) {
	if r.Dial != nil {
		return r.Dial(ctx, addr)
	}
	return carrier.DialTCP(ctx, addr, r.HTTPProxy)
}

func (r Route) forms() []Form {
	if r.OnlyTLS {
		return []Form{TLS, WebSocket}
	}
	return []Form{Plain, TLS, WebSocket}
}

// Dialer dials proxies, and remembers which form got through to which. It is safe for concurrent
// use. Its owner ends it with Close, after the last Dial.
type Dialer struct {
	tls func() *tls.Config // nil: only plain connections

	// NATFull, if not nil, is called when a relay shares a connection since the NAT lets no new one
	// through, with about how many there had been. It must not block. Set it before the first Dial.
	NATFull func(connections int)

	unansweredAfter time.Duration // see the constant; tests shorten it

	work sync.WaitGroup // what Close waits for

	mu     sync.Mutex // guards the fields below
	cache  map[place]cachedForm
	asked  map[place]*race // under way
	shares map[place]*share
	begins int // as flows.share has it: first
	closed bool
}

// place is an address as reached over one route.
type place struct{ addr, via string }

type cachedForm struct {
	form  Form
	until time.Time
}

// A race determines the form for all dials that need it at that time.
type race struct {
	over chan struct{} // closed when err is known
	err  error
}

// NewDialer returns a Dialer that uses the TLS configuration from config, which is called for each
// dial.
func NewDialer(config func() *tls.Config) *Dialer {
	return &Dialer{
		tls: config, unansweredAfter: unansweredAfter,
		cache: make(map[place]cachedForm), asked: make(map[place]*race), shares: make(map[place]*share), begins: ownFirst,
	}
}

// SetNodes sets how many nodes of the site dial proxies through one NAT, each with a Dialer; it begins with few.
func (d *Dialer) SetNodes(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begins = firstOf(n)
}

// Dial opens a connection to the proxy at addr, in the form that got through last. If none is known
// it tries them in order: the next begins when the previous one has failed, or has connected and is
// silent for a while, and the first that is answered wins. A plain connection is tested with an
// observe frame, which every proxy answers; the one to use is made at the same time. Concurrent dials
// of the same proxy wait for the result.
//
// The connection is a *net.TCPConn if it is plain. An error names every form that was tried.
//
// Where a NAT may have no room for another session, relays may share a connection (see flows).
func (d *Dialer) Dial(ctx context.Context, addr string, r Route) (carrier.Stream, Form, error) {
	if r.NAT && r.HTTPProxy.Addr == "" {
		c, form, err := d.dialThroughNAT(ctx, addr, r)
		if n, full := d.full(); full && form == Shared && d.NATFull != nil {
			d.NATFull(n)
		}
		return c, form, err
	}
	return d.dialOwn(ctx, addr, r)
}

// dialOwn is Dial for a connection of its own.
func (d *Dialer) dialOwn(ctx context.Context, addr string, r Route) (carrier.Stream, Form, error) {
	forms := r.forms()
	if d.tls == nil {
		forms = []Form{Plain}
	}
	at := place{addr, r.HTTPProxy.Addr}
	for {
		form, ok := d.remembered(at)
		if len(forms) == 1 {
			form, ok = forms[0], true
		}
		if ok && slices.Contains(forms, form) {
			s, err := d.open(ctx, form, addr, r)
			if err != nil && !r.dialFailed(err) {
				d.Forget(addr)
			}
			return s, form, err
		}
		asked, mine := d.joinRace(at)
		if mine {
			won, err := d.first(ctx, addr, r, forms, true)
			d.answer(ctx, at, won.form, err)
			if err != nil || won.stream != nil {
				return won.stream, won.form, err
			}
			continue // a plain connection was answered, and the one to use was not made
		}
		if err := asked.wait(ctx, addr); err != nil {
			return nil, 0, err
		}
	}
}

// wait returns when another dial's race for addr is over, with its error, or when ctx is.
func (r *race) wait(ctx context.Context, addr string) error {
	select {
	case <-r.over:
		return r.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return context.Canceled
		}
		return fmt.Errorf("%w: waited for another dial of %s to find out what gets through", overlay.ErrTimeout, addr)
	}
}

// joinRace returns the race under way for a place, or a new one that the caller must run.
func (d *Dialer) joinRace(at place) (r *race, mine bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r = d.asked[at]; r == nil {
		r, mine = &race{over: make(chan struct{})}, true
		d.asked[at] = r
	}
	return r, mine
}

// answer ends a race. The others get its error unless the caller gave up.
func (d *Dialer) answer(ctx context.Context, at place, f Form, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.asked[at]
	delete(d.asked, at)
	switch {
	case err == nil:
		d.note(at, f, memory)
	case ctx.Err() == nil:
		r.err = err
	}
	close(r.over)
}

// Prepare determines which form gets through to addr, unless that is known, so that a later dial,
// within the given time, need not.
func (d *Dialer) Prepare(ctx context.Context, addr string, r Route, within time.Duration) error {
	if d.tls == nil {
		return nil
	}
	at, forms := place{addr, r.HTTPProxy.Addr}, r.forms()
	for {
		if form, ok := d.remembered(at); ok && slices.Contains(forms, form) {
			d.remember(at, form, within)
			return nil
		}
		asked, mine := d.joinRace(at)
		if !mine {
			if err := asked.wait(ctx, addr); err != nil {
				return err
			}
			continue
		}
		won, err := d.first(ctx, addr, r, forms, false)
		d.answer(ctx, at, won.form, err)
		if err != nil {
			return err
		}
		if won.stream != nil {
			carrier.Reset(won.stream)
		}
	}
}

// Forget makes the next dial to addr determine again what gets through, because the last connection
// proved useless.
func (d *Dialer) Forget(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for at := range d.cache {
		if at.addr == addr {
			delete(d.cache, at)
		}
	}
}

func (d *Dialer) remembered(at place) (Form, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k, ok := d.cache[at]
	return k.form, ok && time.Now().Before(k.until)
}

// remember records which form got through, for at least the given time.
func (d *Dialer) remember(at place, f Form, within time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note(at, f, within)
}

// note is remember with mu held.
func (d *Dialer) note(at place, f Form, within time.Duration) {
	if len(d.cache) >= maxCached {
		clear(d.cache) // each costs a moment to determine again
	}
	until := time.Now().Add(within)
	if before := d.cache[at]; before.form == f && before.until.After(until) {
		until = before.until
	}
	d.cache[at] = cachedForm{f, until}
}

// try is the result of one form.
type try struct {
	form   Form
	stream carrier.Stream // may be nil for a plain connection that was answered, which has served its purpose
	err    error
}

// first returns the first form that was answered. All others have ended.
func (d *Dialer) first(ctx context.Context, addr string, r Route, forms []Form, use bool) (won try, err error) {
	tries := make(chan try, len(forms))
	var running sync.WaitGroup
	defer func() {
		running.Wait()
		close(tries)
		for t := range tries { // those that were as fast as the winner
			if t.stream != nil {
				carrier.Reset(t.stream)
			}
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The next form is tried after a while without an answer, counted from when the previous one
	// has connected: a SYN is the same in all forms. Only an HTTP proxy may distinguish them
	// earlier.
	connected := make(chan time.Duration, len(forms)) // round trips, 0 if not known
	after := r
	after.Dial = func(ctx context.Context, addr string) (*net.TCPConn, error) {
		c, err := r.dial(ctx, addr)
		if err == nil {
			rtt, _ := carrier.LeastRTT(c)
			connected <- rtt // buffered for all
		}
		return c, err
	}
	next := time.NewTimer(stagger)
	next.Stop()
	defer next.Stop()
	begun, ended := 0, 0
	begin := func() {
		form := forms[begun]
		begun++
		running.Go(func() {
			if form == Plain {
				tries <- d.tryPlain(ctx, addr, after, r, use)
			} else {
				tries <- d.try(ctx, form, addr, after)
			}
		})
		if r.HTTPProxy.Addr != "" {
			next.Reset(stagger)
		}
	}
	var failed failures
	begin()
	for {
		select {
		case rtt := <-connected:
			next.Reset(silentAfter(rtt))
		case <-next.C:
			if begun < len(forms) {
				begin()
			}
		case t := <-tries:
			if t.err == nil {
				return t, nil
			}
			ended++
			failed.add(t)
			switch {
			case begun < len(forms) && !r.dialFailed(t.err):
				begin()
			case ended == begun:
				return try{}, failed.err(addr)
			}
		}
	}
}

// errNoConnection means that no connection could be established, which holds for all forms unless
// an HTTP proxy judges them.
type errNoConnection struct{ error }

func (e errNoConnection) Unwrap() error { return e.error }

func (r Route) dialFailed(err error) bool {
	_, no := errors.AsType[errNoConnection](err)
	return no && r.HTTPProxy.Addr == ""
}

// try opens a connection in a form whose handshake is an answer.
func (d *Dialer) try(ctx context.Context, form Form, addr string, r Route) try {
	ctx, cancel := context.WithTimeout(ctx, tryBound)
	defer cancel()
	s, err := d.open(ctx, form, addr, r)
	return try{form, s, err}
}

// tryPlain tests whether a plain connection is answered. If it is to be used, another one is made at the
// same time, as soon as the first has connected: the first cannot be used any more.
func (d *Dialer) tryPlain(ctx context.Context, addr string, tested, used Route, use bool) try {
	ctx, cancel := context.WithTimeout(ctx, tryBound)
	defer cancel()
	s, err := d.open(ctx, Plain, addr, tested)
	if err != nil {
		return try{Plain, nil, err}
	}
	second := make(chan carrier.Stream, 1)
	go func() {
		defer close(second)
		if use {
			if s, err := d.open(ctx, Plain, addr, used); err == nil {
				second <- s
			}
		}
	}()
	err = observed(ctx, s)
	if err != nil {
		cancel()
	}
	made, ok := <-second
	switch {
	case !ok:
		return try{Plain, nil, err} // if there is no error, it is made by itself
	case err != nil:
		carrier.Reset(made)
		return try{Plain, nil, err}
	}
	return try{Plain, made, nil}
}

// silentAfter returns how long after it has connected a form without an answer counts as silent.
func silentAfter(rtt time.Duration) time.Duration { return max(stagger, 2*rtt) }

// observed sends an observe frame on a plain connection, which it ends, and returns why it got no
// answer.
func observed(ctx context.Context, s carrier.Stream) error {
	defer carrier.Reset(s) // unacknowledged data does not matter
	defer context.AfterFunc(ctx, func() { s.SetDeadline(time.Unix(1, 0)) })()
	if _, err := s.Write(wire.Append(nil, &wire.Observe{})); err != nil {
		return silence(ctx, err)
	}
	// A refusal is also an answer: the form gets through.
	_, err := wire.Read(s)
	return silence(ctx, err)
}

// silence returns the error of a connection on which nothing was received.
func silence(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled
	case ctx.Err() != nil:
		return fmt.Errorf("%w: connected, and nothing that was sent got an answer", overlay.ErrTimeout)
	}
	return fmt.Errorf("%w: connected, and cut off when something was sent: %w", overlay.ErrRefused, err)
}

// open opens a connection of one form.
func (d *Dialer) open(ctx context.Context, form Form, addr string, r Route) (carrier.Stream, error) {
	if form != Plain {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tryBound)
		defer cancel()
	}
	c, err := r.dial(ctx, addr)
	if err != nil {
		if form == WebSocket && r.HTTPProxy.Addr != "" && ctx.Err() == nil {
			return r.forwarded(ctx, addr, err)
		}
		return nil, errNoConnection{err}
	}
	if form == Plain {
		return c, nil
	}
	s, err := d.encapsulate(ctx, form, c, addr)
	if err != nil {
		carrier.Reset(c)
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, context.Canceled
		}
		class := overlay.ErrRefused
		if ctx.Err() != nil {
			class = overlay.ErrTimeout
		}
		return nil, fmt.Errorf("%w: %w", class, err)
	}
	return s, nil
}

// encapsulate performs the handshakes of a form on c.
func (d *Dialer) encapsulate(ctx context.Context, form Form, c *net.TCPConn, addr string) (s carrier.Stream, err error) {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
	}()
	s = c
	if form == TLS || form == WebSocketTLS {
		t := secured{tls.Client(c, d.tls())}
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("TLS %w: %w", ErrHandshake, err)
		}
		s = t
	}
	if form == WebSocket || form == WebSocketTLS {
		return requestWebSocket(s, addr, webSocketPath, nil)
	}
	return s, nil
}

// forwarded asks an HTTP proxy that opened no tunnel, because of noTunnel, to forward the request
// for a WebSocket.
func (r Route) forwarded(ctx context.Context, addr string, noTunnel error) (carrier.Stream, error) {
	c, err := carrier.DialTCP(ctx, r.HTTPProxy.Addr, carrier.HTTPProxy{})
	if err != nil {
		return nil, errNoConnection{noTunnel}
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	header := http.Header{}
	if p := r.HTTPProxy; p.User != "" {
		header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(p.User+":"+p.Password)))
	}
	s, err := requestWebSocket(c, addr, "http://"+addr+webSocketPath, header)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		carrier.Reset(c)
		return nil, fmt.Errorf("%w; forwarded by HTTP proxy %s: %w", noTunnel, r.HTTPProxy.Addr, err)
	}
	return s, nil
}

// failures are the failed forms, in the order in which they failed.
type failures []try

func (f *failures) add(t try) { *f = append(*f, t) }

// err returns the error of a dial whose forms all failed. It has the class of the first in the
// forms' order.
func (f failures) err(addr string) error {
	slices.SortStableFunc(f, func(a, b try) int { return int(a.form) - int(b.form) })
	var texts []string
	last := ""
	for _, t := range f {
		text := t.err.Error()
		if text == last {
			text = "the same"
		} else {
			last = text
		}
		texts = append(texts, fmt.Sprintf("%v: %s", t.form, text))
	}
	if len(f) == 1 || len(slices.Compact(texts)) == 1 {
		return f[0].err
	}
	return &dialError{fmt.Sprintf("%s: %s", addr, strings.Join(texts, "; ")), f[0].err}
}

type dialError struct {
	text  string
	cause error
}

func (e *dialError) Error() string { return e.text }
func (e *dialError) Unwrap() error { return e.cause }
