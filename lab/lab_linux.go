package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"

	"github.com/isthmus-grid/isthmus/lab/wan"
)

// A Lab is a set of running sites. Its methods are safe for concurrent use.
type Lab struct {
	plan     plan
	spec     Spec
	internet *Host
	hosts    map[string]*Host
	proxies  map[string]*ConnectProxy // by site
	splits   []*splitProxy
	emulator *wan.Emulator // nil if there is only one endpoint on the WAN
	reapers  []*reaper

	cancel   context.CancelFunc
	services sync.WaitGroup
	done     chan struct{} // closed when a service has failed

	mu     sync.Mutex
	err    error                   // of the first service that failed
	shapes map[[2]string]wan.Shape // what SetWAN set; Cut does not change it
	closed bool
}

// Up builds the sites of spec, starts their CONNECT proxies and the emulator of the WAN, and
// returns when hosts can be used. The process must have passed Main or Enter. The caller must Close
// the lab; it ends with the process at the latest. ctx bounds the construction, not the lab's life.
// Several labs may be up at once; the hosts file holds the names of the latest.
func Up(ctx context.Context, spec Spec) (*Lab, error) {
	if !isolated {
		return nil, ErrNotIsolated
	}
	if err := spec.Check(); err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.Background())
	l := &Lab{
		plan: makePlan(spec), spec: spec, hosts: make(map[string]*Host), proxies: make(map[string]*ConnectProxy),
		cancel: cancel, done: make(chan struct{}), shapes: make(map[[2]string]wan.Shape),
	}
	if err := l.build(ctx); err != nil {
		l.Close()
		return nil, fmt.Errorf("lab.Up: %w", err)
	}
	l.serve(life)
	return l, nil
}

// build makes everything that Up sets up but starts nothing.
func (l *Lab) build(ctx context.Context) error {
	if err := l.makeHosts(ctx); err != nil {
		return err
	}
	if err := l.connectHosts(ctx); err != nil {
		return err
	}
	for _, h := range l.plan.hosts {
		if h.role == roleProxy {
			if err := l.makeProxy(h); err != nil {
				return err
			}
		}
		if h.role == roleGateway && h.preset.split {
			p, err := newSplitProxy(l.hosts[h.name])
			if err != nil {
				return err
			}
			l.splits = append(l.splits, p)
		}
		if h.outer.udpLife > 0 {
			u, err := newReaper(l.hosts[h.name])
			if err != nil {
				return err
			}
			l.reapers = append(l.reapers, u)
		}
	}
	if err := l.RestoreNames(); err != nil {
		return err
	}
	if len(l.plan.paths) == 0 {
		return nil
	}
	for _, p := range l.plan.paths {
		l.shapes[[2]string{p.From, p.To}] = p.Shape
	}
	return l.internet.Do(func() (err error) {
		l.emulator, err = wan.New(l.plan.paths, wan.Options{})
		return err
	})
}

// serve starts the services that run as long as the lab.
func (l *Lab) serve(life context.Context) {
	if l.emulator != nil {
		l.services.Go(func() { l.fail(l.emulator.Serve(life)) })
	}
	for _, p := range l.proxies {
		l.services.Go(func() { l.fail(p.serve(life)) })
	}
	for _, p := range l.splits {
		l.services.Go(func() { l.fail(p.serve(life)) })
	}
	for _, u := range l.reapers {
		l.services.Go(func() { l.fail(u.serve(life)) })
	}
}

func (l *Lab) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.err == nil {
		l.err = err
		close(l.done)
	}
}

// Done returns a channel that is closed when the emulator or a CONNECT proxy has failed; Err then
// returns the cause.
func (l *Lab) Done() <-chan struct{} { return l.done }

// Err returns why Done is closed, or nil.
func (l *Lab) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close kills the processes that run in the lab's hosts, stops the emulator and the proxies, waits
// for these and releases the namespaces; sockets that others opened in them keep theirs until they
// close. It returns Err. A second Close does nothing.
func (l *Lab) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.mu.Unlock()
	if again {
		return l.Err()
	}
	for _, h := range l.hosts {
		h.killAll()
	}
	l.cancel()
	l.services.Wait()
	for _, p := range l.proxies {
		p.ln.Close() // an error means that it is closed: it served
	}
	for _, p := range l.splits {
		p.ln.Close()
	}
	for _, u := range l.reapers {
		u.nl.Close()
	}
	if l.emulator != nil {
		if err := l.emulator.Close(); err != nil {
			l.fail(err)
		}
	}
	for _, h := range l.hosts {
		h.quota.remove()
		h.close()
	}
	if l.internet != nil {
		l.internet.close()
	}
	return l.Err()
}

// Host returns the host with the given name, "site/host"; a gateway is a host like others
// ("site/gw" unless the spec names it). It panics if there is no such host: the caller has made the
// lab's spec.
func (l *Lab) Host(name string) *Host {
	h, ok := l.hosts[name]
	if !ok {
		panic(fmt.Sprintf("lab.Host: no host %q", name))
	}
	return h
}

// Lookup is Host for names from external input: it returns an error that lists the hosts.
func (l *Lab) Lookup(name string) (*Host, error) {
	if h, ok := l.hosts[name]; ok {
		return h, nil
	}
	names := make([]string, len(l.plan.hosts))
	for i, h := range l.plan.hosts {
		names[i] = h.name
	}
	return nil, fmt.Errorf("lab: no host %q; there are %q", name, names)
}

// Hosts returns all hosts in the order of the spec, a gateway before its nodes.
func (l *Lab) Hosts() []*Host {
	hosts := make([]*Host, len(l.plan.hosts))
	for i, h := range l.plan.hosts {
		hosts[i] = l.hosts[h.name]
	}
	return hosts
}

// Outside returns the IPv4 address at which others reach a site's gateway: its own, or its
// provider's if that translates. It is not valid for a public site.
func (l *Lab) Outside(site string) (a netip.Addr) {
	for _, h := range l.plan.hosts {
		if h.role != roleGateway || siteOf(h.name) != site {
			continue
		}
		if h.on >= 0 && l.plan.hosts[h.on].preset.translates() {
			return l.plan.hosts[h.on].wan
		}
		return h.wan
	}
	return a
}

// Place returns the name by which Traffic counts what a site sends and receives: its own, or that
// of the first of the sites that share a provider.
func (l *Lab) Place(site string) string { return l.spec.place(site) }

// Proxy returns the CONNECT proxy of an http-proxy site, or nil. It listens on
// port 3128 of the host "site/proxy".
func (l *Lab) Proxy(site string) *ConnectProxy { return l.proxies[site] }

// Traffic returns what the WAN has carried, for each ordered pair of endpoints: a site's name
// stands for its gateway and all behind it, public hosts and proxies have their own ("site/host").
// It is empty if there is only one endpoint.
func (l *Lab) Traffic() []wan.Counter {
	if l.emulator == nil {
		return nil
	}
	return joined(l.emulator.Counters())
}

// SetWAN gives the paths from one site or endpoint to another a new shape, in that direction only,
// and ends a Cut of it. Packets in transit keep their due time.
func (l *Lab) SetWAN(from, to string, s wan.Shape) error {
	return l.reshape(from, to, func(wan.Shape) (remembered, used wan.Shape) { return s, s })
}

// Shapes returns the shape of each path, from one endpoint to another, as SetWAN or the spec gave
// it.
func (l *Lab) Shapes() map[[2]string]wan.Shape {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.shapes)
}

// Cut silently drops everything between a and b, in both directions, until Restore or SetWAN.
func (l *Lab) Cut(a, b string) error {
	cut := func(s wan.Shape) (remembered, used wan.Shape) {
		used = s
		used.Loss = 1
		return s, used
	}
	return errors.Join(l.reshape(a, b, cut), l.reshape(b, a, cut))
}

// Restore gives the paths between a and b the shape they had before Cut.
func (l *Lab) Restore(a, b string) error {
	restore := func(s wan.Shape) (remembered, used wan.Shape) { return s, s }
	return errors.Join(l.reshape(a, b, restore), l.reshape(b, a, restore))
}

// reshape calls change, for each path from one to the other, for the shape to remember and the
// shape to use.
func (l *Lab) reshape(from, to string, change func(wan.Shape) (remembered, used wan.Shape)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := false
	for _, f := range l.ends(from) {
		for _, t := range l.ends(to) {
			s, ok := l.shapes[[2]string{f, t}]
			if !ok {
				continue
			}
			found = true
			remembered, used := change(s)
			if err := l.emulator.Shape(f, t, used); err != nil {
				return fmt.Errorf("lab: the way from %s to %s: %w", f, t, err)
			}
			l.shapes[[2]string{f, t}] = remembered
		}
	}
	if !found {
		return fmt.Errorf("lab: no way from %q to %q; places are %q", from, to, l.spec.endpoints())
	}
	return nil
}

// Reshape gives one path a shape, with its ends named as Shapes names them.
func (l *Lab) Reshape(ends [2]string, s wan.Shape) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.shapes[ends]; !ok {
		return fmt.Errorf("lab: no way from %q to %q", ends[0], ends[1])
	}
	if err := l.emulator.Shape(ends[0], ends[1], s); err != nil {
		return fmt.Errorf("lab: the way from %s to %s: %w", ends[0], ends[1], err)
	}
	l.shapes[ends] = s
	return nil
}

// ends returns the names on the WAN of a site or endpoint.
func (l *Lab) ends(name string) (all []string) {
	for _, e := range l.spec.expand(name) {
		all = append(all, l.plan.ends(e)...)
	}
	return all
}

// CutUplink silently drops everything that passes a site's first or second uplink (1 or 2), in both
// directions, until RestoreUplink.
func (l *Lab) CutUplink(site string, n int) error {
	return l.eachUplinkPath(site, n, func(s wan.Shape) wan.Shape {
		s.Loss = 1
		return s
	})
}

// RestoreUplink ends a CutUplink.
func (l *Lab) RestoreUplink(site string, n int) error {
	return l.eachUplinkPath(site, n, func(s wan.Shape) wan.Shape { return s })
}

// eachUplinkPath changes the shapes of the paths from and to one uplink.
func (l *Lab) eachUplinkPath(site string, n int, change func(wan.Shape) wan.Shape) error {
	ends := l.plan.ends(site)
	if n < 1 || n > len(ends) || len(ends) < 2 {
		return fmt.Errorf("lab: uplink %d of %q: it has not two", n, site)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for pair, s := range l.shapes {
		if pair[0] == ends[n-1] || pair[1] == ends[n-1] {
			if err := l.emulator.Shape(pair[0], pair[1], change(s)); err != nil {
				return fmt.Errorf("lab: uplink %d of %s: %w", n, site, err)
			}
		}
	}
	return nil
}

// Resolve returns the address of a host by the name that programs in the lab
// use, host.site.
func (l *Lab) Resolve(name string) (netip.Addr, bool) {
	for _, h := range l.plan.hosts {
		if h.dnsName() == name {
			return h.addr, true
		}
	}
	return netip.Addr{}, false
}

// onlyTLS reports whether a site's proxy lets only TLS through.
func (l *Lab) onlyTLS(site string) bool {
	for _, s := range l.spec.Sites {
		if s.Name == site {
			p, err := lookupPreset(s.Preset)
			return err == nil && p.onlyTLS
		}
	}
	return false
}

// makeProxy makes the CONNECT proxy that host h runs for its site.
func (l *Lab) makeProxy(h hostPlan) error {
	site := siteOf(h.name)
	ours := make(map[netip.Addr]bool)
	for _, other := range l.plan.hosts {
		if siteOf(other.name) == site {
			for _, a := range other.families() {
				ours[a.addr], ours[a.wan] = true, true
			}
		}
	}
	host := l.hosts[h.name]
	var ln net.Listener
	err := host.Do(func() (err error) { // all addresses, of both versions of IP
		ln, err = net.ListenTCP("tcp", &net.TCPAddr{Port: proxyPort})
		return err
	})
	if err != nil {
		return fmt.Errorf("CONNECT proxy of %s: %w", site, err)
	}
	l.proxies[site] = &ConnectProxy{
		onlyTLS: l.onlyTLS(site),
		ln:      ln,
		clients: func(a netip.Addr) bool { return ours[a.Unmap()] },
		resolve: l.Resolve,
		dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			return host.Dial(ctx, "tcp", to.String())
		},
	}
	return nil
}
