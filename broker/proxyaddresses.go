package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A proxy names addresses that sites dial. It must not send them to others' hosts: what counts is where its session
// comes from, and where it answers over TLS with its certificate when the broker dials it.

// How long the result of a dial counts, and how long one may take: the proxy gives the broker 10 s to answer.
const (
	provenLife   = 10 * time.Minute
	unprovenLife = time.Minute
	proofTime    = 8 * time.Second
	maxProofs    = 10_000 // remembered results; then all are forgotten
)

// proxies are the proxies that have a session, and what is known of their addresses.
type proxies struct {
	*registry.Proxies
	proofs proofs
}

// proofs are the results of dials to proxies' addresses.
type proofs struct {
	mu      sync.Mutex // guards results; not held while dialling
	results map[proofKey]proof
}

type proofKey struct {
	proxy string
	addr  netip.AddrPort
}

type proof struct {
	err   error
	until time.Time
}

// of returns a result that still counts.
func (p *proofs) of(key proofKey, now time.Time) (one proof, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one = p.results[key]
	return one, now.Before(one.until)
}

func (p *proofs) keep(key proofKey, err error, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.results) >= maxProofs {
		maps.DeleteFunc(p.results, func(_ proofKey, one proof) bool { return !now.Before(one.until) })
	}
	if p.results == nil || len(p.results) >= maxProofs {
		p.results = map[proofKey]proof{}
	}
	life := provenLife
	if err != nil {
		life = unprovenLife
	}
	p.results[key] = proof{err, now.Add(life)}
}

// ownOnly removes from an offer, whose session comes from an address, the addresses that are not shown to be the proxy's own, and returns an error for each
// that was judged now, or if none is left.
func (b *Broker) ownOnly(ctx context.Context, from netip.Addr, o *registry.Offer) (removed []error, err error) {
	if b.cfg.AllowLoopback { // all hosts are this one
		return nil, nil
	}
	var dials sync.WaitGroup
	errs, fresh := make([]error, len(o.Addresses)), make([]bool, len(o.Addresses))
	for i, addr := range o.Addresses {
		ip, key := addr.Addr().Unmap(), proofKey{o.Name, addr}
		within := func(p netip.Prefix) bool { return p.Contains(ip) }
		if ip == from.Unmap() || slices.ContainsFunc(b.cfg.ProxyNetworks, within) {
			continue
		}
		if one, ok := b.proxies.proofs.of(key, time.Now()); ok {
			errs[i] = one.err
			continue
		}
		dials.Go(func() {
			errs[i], fresh[i] = proveProxy(ctx, b.creds, o.Name, addr), true
			b.proxies.proofs.keep(key, errs[i], time.Now())
		})
	}
	dials.Wait()
	var own []netip.AddrPort
	for i, addr := range o.Addresses {
		switch {
		case errs[i] == nil:
			own = append(own, addr)
		case fresh[i]:
			removed = append(removed, fmt.Errorf("%w: address %v is not shown to be that of proxy %s: its session comes from %v, and it does not answer there: %w",
				overlay.ErrForbidden, addr, o.Name, from, errs[i]))
		}
	}
	o.Addresses = own
	if host := func(a netip.AddrPort) bool { return a.Addr() == o.STUN.Addr() }; !slices.ContainsFunc(own, host) {
		o.STUN = netip.AddrPort{}
	}
	if len(own) == 0 { // without what the dials met: the broker is no scanner of ports
		return removed, fmt.Errorf("%w: none of the addresses that proxy %s offers is that of its session, %v, nor does it answer there when broker %s dials it; correct advertise in its settings, or list the addresses in proxy_networks of the broker's",
			overlay.ErrForbidden, o.Name, from, b.name)
	}
	return removed, nil
}

// proveProxy returns why addr is not shown to be that proxy's.
func proveProxy(ctx context.Context, creds *control.Credentials, name string, addr netip.AddrPort) error {
	ctx, cancel := context.WithTimeoutCause(ctx, proofTime, fmt.Errorf("%w after %v", overlay.ErrTimeout, proofTime))
	defer cancel()
	raw, err := carrier.DialTCP(ctx, addr.String(), carrier.HTTPProxy{})
	if err != nil {
		return err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })()
	c := tls.Client(raw, creds.DataClientOf(control.Identity{Role: control.RoleProxy, Name: name}))
	err = c.HandshakeContext(ctx)
	if err == nil {
		_, err = c.Write(wire.Append(nil, &wire.Observe{})) // a question that every proxy answers, and does not count as refused
	}
	if err == nil {
		_, err = wire.Read(c)
	}
	if err != nil && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}
