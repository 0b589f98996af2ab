package gateway

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/nat/punch"
	"github.com/isthmus-grid/isthmus/overlay"
)

// forwardedLink describes a carried connection, for the log.
type forwardedLink struct {
	kind      string            // carry, inbound, reversed or traversal
	technique overlay.Technique // of a coordinated traversal; 0 if this side cannot know it
	asked     bool              // this gateway was the asker's end of that
	job       overlay.JobID
	principal overlay.Principal // of the process at this site
	ranks     []uint32          // the known ones, the asker's first
	node      string            // of this site
	peer      string            // the other node, as it reports
	id        string            // of the link, if known
	from, to  string            // addresses
	proxy     string            // the dialled proxy; empty otherwise
	form      encap.Form        // the form in which it was dialled
}

// metered carries a link and counts its bytes; AToB are those that leave the site.
type metered interface{ Stats() carrier.Stats }

// links are the carried connections, and counts of all.
type links struct {
	places  *limit.Counter[string] // by node of this site
	quota   *ratelimit.Limiter     // limits of carried links
	live    map[*liveLink]struct{}
	total   uint64
	refused uint64 // refused data connections
	lossy   carrier.LossyPaths
	bytes   uint64       // of ended links
	sums    traffic.Sums // the same, by principal
}

func newLinks(max, perNode int, quota *ratelimit.Limiter) links {
	places := limit.NewCounter[string](limit.Bounds{
		What: "links that are carried", Total: max, PerKey: perNode, TotalSetting: "limits.links", KeySetting: "limits.links_per_node",
	})
	return links{places: places, quota: quota, live: make(map[*liveLink]struct{})}
}

// LinkCounters count what the frontal carries and has carried.
type LinkCounters struct {
	Live    int    `json:"live"`
	Total   uint64 `json:"total"`   // all that were joined
	Refused uint64 `json:"refused"` // data connections that were turned away
	Bytes   uint64 `json:"bytes"`   // in both directions, live links included
}

func (l *links) counters() LinkCounters {
	c := LinkCounters{Live: len(l.live), Total: l.total, Refused: l.refused, Bytes: l.bytes}
	for live := range l.live {
		c.Bytes += live.meter.Stats().Total()
	}
	return c
}

// room returns an error if no more links of a node can be carried, or nil.
func (l *links) room(node string) error {
	err := l.places.Take(node, 1)
	if err == nil {
		l.places.Give(node, 1)
	}
	return err
}

// liveLink is a link that has its place: about to be carried, or carried.
type liveLink struct {
	forwardedLink
	started  time.Time
	meter    metered
	throttle *ratelimit.Throttle
	run      func(context.Context) error // until both ends have ended; closes both
	ctx      context.Context             // for run
	end      context.CancelCauseFunc     // ends it for a reason
}

// book takes a place for the link between a node of the site and the outside.
// The caller then carries it; if book refuses, the caller still owns both connections.
func (g *Gateway) book(l forwardedLink, inside *net.TCPConn, outside net.Conn) (*liveLink, error) {
	g.tune(inside, outside)
	m := meterOf(inside, outside, &g.links.lossy)
	live := &liveLink{forwardedLink: l, started: time.Now(), meter: m}
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.Audit.Ready()
	if err == nil {
		err = g.links.places.Take(l.node, 1)
	}
	if err == nil {
		if live.throttle, err = g.links.quota.Admit(l.owner(), func() uint64 { return m.Stats().Total() }); err != nil {
			g.links.places.Give(l.node, 1)
		}
	}
	if err != nil {
		g.links.refused++
		return nil, err
	}
	live.run = m.joining(live.throttle)
	live.ctx, live.end = context.WithCancelCause(g.ctx)
	g.links.live[live] = struct{}{}
	g.links.total++
	return live, nil
}

// workedBytes is what a link has carried, of both directions, by which its technique works: more than a handshake.
const workedBytes = 16 << 10

// Success is a technique by which a gateway has made a link to a node of another site, and the link has carried.
type Success struct {
	Technique overlay.Technique
	Far       string // the node
	At        time.Time
}

// Worked returns the successes of a gateway's live links that it made since a time as the asker's end.
func Worked(g *Gateway, since time.Time) (all []Success) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.links.live {
		if !l.asked || l.started.Before(since) {
			continue
		}
		if hasWorked(l.meter.Stats()) {
			all = append(all, Success{l.technique, l.peer, l.started})
		}
	}
	return all
}

func hasWorked(s carrier.Stats) bool { return s.AToB > 0 && s.BToA > 0 && s.Total() >= workedBytes }

func (g *Gateway) tune(conns ...net.Conn) {
	for _, c := range conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			if err := carrier.Tune(tcp, tuning); err != nil {
				g.log.Debug("socket not tuned", "error", err)
			}
		}
	}
}

// meterOf returns how a link is carried: the kernel copies between two of its sockets. Anything
// else is a stream that only this process can read.
func meterOf(inside *net.TCPConn, outside net.Conn, lossy *carrier.LossyPaths) forwarder {
	if tcp, ok := outside.(*net.TCPConn); ok {
		return &spliced{inside: inside, outside: tcp, lossy: lossy}
	}
	return &bridged{nodeEnd: nodeEnd{TCPConn: inside}, outside: outside}
}

// forwarder is a method of carrying a link.
type forwarder interface {
	metered
	joining(*ratelimit.Throttle) func(context.Context) error
}

// spliced is a link between two sockets.
type spliced struct {
	carrier.Meter
	inside, outside *net.TCPConn
	lossy           *carrier.LossyPaths
}

func (s *spliced) joining(p *ratelimit.Throttle) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := carrier.Join(ctx, s.inside, s.outside, carrier.Options{Meter: &s.Meter, Pacer: p, Lossy: s.lossy})
		return err
	}
}

// bridged is a link between a socket and a stream.
type bridged struct {
	nodeEnd
	outside net.Conn
}

func (b *bridged) joining(p *ratelimit.Throttle) func(context.Context) error {
	b.throttle = p
	return func(ctx context.Context) error { return punch.Bridge(ctx, b.outside, &b.nodeEnd) }
}

// owner is the principal on whose behalf the link is carried.
func (l forwardedLink) owner() quota.Owner {
	return quota.Owner{User: l.principal.User, Project: l.principal.Project, Job: l.job}
}

// carryBetween books and carries, or refuses.
func (g *Gateway) carryBetween(l forwardedLink, inside *net.TCPConn, outside net.Conn) {
	live, err := g.book(l, inside, outside)
	if err != nil {
		g.logLink(l, "not carried", err)
		cut(outside)
		g.refuse(inside, err)
		return
	}
	g.carryLink(live)
}

// carryLink carries until both ends have ended.
func (g *Gateway) carryLink(l *liveLink) {
	start := time.Now()
	defer l.end(nil)
	err := l.run(l.ctx)
	if cause := context.Cause(l.ctx); cause != nil && g.ctx.Err() == nil {
		err = cause
	}
	e := l.ended(g.site, time.Since(start), err)
	l.throttle.Close()
	g.whenEnded().Publish(l, e)
}

// ServeQuota makes links wait for their turn until the returned function is called. That is when no
// link is left, so that the last bytes are counted.
func (g *Gateway) ServeQuota() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { g.links.quota.Serve(ctx) })
	return func() { cancel(); served.Wait() }
}

// cut closes a connection on which no data was sent. A stream of hole punching would otherwise wait
// for its peer before it closes.
func cut(c net.Conn) {
	if p, ok := c.(*punch.Conn); ok {
		p.Abort()
		return
	}
	c.Close()
}

// logLink writes the log line of one link.
func (g *Gateway) logLink(l forwardedLink, what string, err error, more ...any) {
	cause := "ended"
	if err != nil {
		cause = err.Error()
	}
	line := []any{"kind", l.kind, "job", l.job, "ranks", l.ranks, "node", l.node, "peer", l.peer,
		"link", l.id, "from", l.from, "to", l.to, "cause", cause}
	if l.technique != 0 {
		line = append(line, "technique", l.technique.String())
	}
	if l.principal.IsSet() {
		line = append(line, "user", l.principal.User, "project", l.principal.Project)
	}
	g.log.Info(what, append(line, more...)...)
}

// cut ends the links of processes and returns how many there were.
func (l *links) cut(processes []overlay.ProcessName, reason error) (ended int) {
	ranks := make(map[overlay.JobID]map[uint32]bool)
	for _, p := range processes {
		if ranks[p.Job] == nil {
			ranks[p.Job] = make(map[uint32]bool)
		}
		ranks[p.Job][p.Rank] = true
	}
	for live := range l.live {
		if of := ranks[live.job]; slices.ContainsFunc(live.ranks, func(r uint32) bool { return of[r] }) {
			live.end(reason)
			ended++
		}
	}
	return ended
}
