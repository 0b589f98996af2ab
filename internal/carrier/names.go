package carrier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// This file remembers the addresses of names, so that a daemon whose name server is away reconnects
// as fast as any other: the last good addresses are dialled at once, and the name is looked up beside
// that.

const (
	// nameFresh is how long addresses are used without another lookup.
	nameFresh = 5 * time.Second

	// nameBound ends a lookup.
	nameBound = 30 * time.Second

	// newsWait is how long a dial that has failed with remembered addresses waits for a lookup: the
	// addresses may have changed, but no name server must hold up a daemon that would try again.
	newsWait = time.Second

	// maxNames bounds the names that are remembered; the one looked up longest ago is dropped.
	maxNames = 256
)

// names are those that this process dials.
var names = nameCache{lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}}

// A nameCache remembers names for the life of the process. It is safe for concurrent use.
type nameCache struct {
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)

	mu     sync.Mutex // guards the fields below
	cached map[string]*hostAddresses
}

// hostAddresses is what is known of one name.
type hostAddresses struct {
	last  []netip.Addr // of the last lookup that succeeded; nil: none did
	at    time.Time    // of that lookup
	begun *lookup      // under way; nil: none is
}

// A lookup ends when done is closed, which is after its other fields were set.
type lookup struct {
	done  chan struct{}
	addrs []netip.Addr
	err   error
}

// await returns the addresses, or the context's error if that ends before.
func (l *lookup) await(ctx context.Context) ([]netip.Addr, error) {
	select {
	case <-l.done:
		return l.addrs, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// get returns the last good addresses of a name, nil without any, and the lookup of newer ones, nil if
// they are fresh.
func (c *nameCache) get(host string, now time.Time) ([]netip.Addr, *lookup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.cached[host]
	switch {
	case e == nil:
		e = c.add(host)
	case e.last != nil && now.Sub(e.at) < nameFresh:
		return e.last, nil
	}
	if e.begun == nil {
		e.begun = &lookup{done: make(chan struct{})}
		go c.run(host, e) // ends within nameBound
	}
	return e.last, e.begun
}

// add returns a new entry. mu is held.
func (c *nameCache) add(host string) *hostAddresses {
	if c.cached == nil {
		c.cached = map[string]*hostAddresses{}
	}
	if len(c.cached) >= maxNames {
		oldest := host
		for name, e := range c.cached {
			if first := c.cached[oldest]; first == nil || e.at.Before(first.at) {
				oldest = name
			}
		}
		delete(c.cached, oldest) // a lookup under way notifies those who wait for it nevertheless
	}
	e := new(hostAddresses)
	c.cached[host] = e
	return e
}

// run looks a name up. Addresses of a name that no name server knows any more stay: name servers are
// wrong more often than daemons move, and who answers there has to prove its identity.
func (c *nameCache) run(host string, e *hostAddresses) {
	ctx, cancel := context.WithTimeout(context.Background(), nameBound) // of no single dial: all that wait for the name get the result
	defer cancel()
	addrs, err := c.lookup(ctx, host)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := e.begun
	if e.begun, l.addrs, l.err = nil, addrs, err; err == nil {
		e.last, e.at = addrs, time.Now()
	} else if e.last == nil && c.cached[host] == e {
		delete(c.cached, host)
	}
	close(l.done)
}

// addresses are where a dial leads.
type addresses struct {
	first []netip.AddrPort // to dial at once, in the order in which to try them (RFC 6724)
	host  string           // the name
	port  uint16
	newer *lookup // of the name's current addresses, where first are remembered ones; or nil
}

// resolve returns the addresses of "host:port".
func (c *nameCache) resolve(ctx context.Context, addr string) (a addresses, err error) {
	if at, err := netip.ParseAddrPort(addr); err == nil {
		return addresses{first: []netip.AddrPort{at}}, nil
	}
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return a, err
	}
	if host == "" {
		host = "localhost" // as in net.Dial
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return a, err
	}
	a.host, a.port = host, uint16(port)
	if ip, err := netip.ParseAddr(host); err == nil { // with a service that is no number
		a.first = a.at([]netip.Addr{ip})
		return a, nil
	}
	last, newer := c.get(host, time.Now())
	if last != nil {
		a.newer = newer
	} else if last, err = newer.await(ctx); err != nil {
		return a, nameError(host, err)
	}
	a.first = a.at(last)
	return a, nil
}

func (a addresses) at(ips []netip.Addr) (all []netip.AddrPort) {
	for _, ip := range ips {
		all = append(all, netip.AddrPortFrom(ip, a.port))
	}
	return all
}

// nameError returns an error of a lookup as one that has the name.
func nameError(host string, err error) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns
	}
	return &net.DNSError{UnwrapErr: err, Err: err.Error(), Name: host, IsTimeout: isTimeout(err)}
}

// dialAddresses connects by dial to the addresses, which are remembered ones if the name is being looked up:
// then it also connects to those that are news, if any, when they are there.
func dialAddresses[C io.Closer](ctx context.Context, a addresses, dial func(context.Context, []netip.AddrPort) (C, error)) (none C, err error) {
	if a.newer == nil {
		return dial(ctx, a.first)
	}
	wait, end := context.WithCancel(ctx)
	defer end()
	first := func(ctx context.Context) (C, error) {
		conn, err := dial(ctx, a.first)
		time.AfterFunc(newsWait, end)
		return conn, err
	}
	var noNews error // why there are no other addresses; nil: they are the same
	second := func(ctx context.Context) (C, error) {
		ips, err := a.newer.await(wait)
		news := slices.DeleteFunc(a.at(ips), func(n netip.AddrPort) bool { return slices.Contains(a.first, n) })
		if noNews = err; len(news) == 0 {
			return none, errNothing
		}
		return dial(ctx, news)
	}
	rest := []func(context.Context) (C, error){first, second}
	conn, errs := race(ctx, attemptDelay, func() (next func(context.Context) (C, error), ok bool) {
		if len(rest) == 0 {
			return nil, false
		}
		next, rest = rest[0], rest[1:]
		return next, true
	}, func(ctx context.Context, f func(context.Context) (C, error), _ func(time.Duration)) (C, error) {
		return f(ctx)
	})
	if errs == nil {
		return conn, nil
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, errNothing) })
	err = farthest(errs)
	if _, late := errors.AsType[*finishError](err); noNews != nil && !late && ctx.Err() == nil {
		return none, &rememberedError{err, nameError(a.host, noNews), a.first}
	}
	return none, err
}

// A rememberedError is that of a dial to remembered addresses of a name that could not be looked up.
type rememberedError struct {
	error
	lookup error
	addrs  []netip.AddrPort
}

func (e *rememberedError) Unwrap() error { return e.error }

// note says what is known of the name.
func (e *rememberedError) note() string {
	return fmt.Sprintf("dialled at %v, its last known addresses: %v", e.addrs, e.lookup)
}
