package relay

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan/star"
	"github.com/isthmus-grid/isthmus/wire"
)

// Run makes the three hosts, measures, and writes the rows to w: streams of 1 MiB messages and
// round trips, unlimited and at 1 Gb/s, each 7 times, through the proxy and directly in turn. It
// must be called first in main (see lab.Enter).
func Run(ctx context.Context, w io.Writer, o Options) error {
	if err := lab.Enter(); err != nil {
		return err
	}
	o.Repeat = cmp.Or(o.Repeat, 7)
	o.Stream = cmp.Or(o.Stream, 500*time.Millisecond)
	o.Trips = cmp.Or(o.Trips, 3000)
	r, err := newRig(ctx, o)
	if err != nil {
		return err
	}
	rows, err := r.measureAll(ctx)
	if err := errors.Join(err, r.close()); err != nil {
		return err
	}
	return bench.Write(w, o.JSON, rows...)
}

// rig is the hosts with their processes.
type rig struct {
	Options
	net           *star.Star
	key           ticket.Key
	proxy, server part
}

// The hosts but for the one in the middle.
const (
	client = iota
	server
)

// part is another process of this program that listens.
type part struct {
	*runner.Process // nil if it has not started
	addr            string
}

func newRig(ctx context.Context, o Options) (*rig, error) {
	n, err := star.New(2)
	if err != nil {
		return nil, err
	}
	r := &rig{Options: o, net: n, key: ticket.NewKey()}
	r.proxy, err = r.start(ctx, n.Centre, partProxy, star.Gateway(client), hex.EncodeToString(r.key[:]))
	if err == nil {
		r.server, err = r.start(ctx, n.Hosts[server], partServer, star.Addr(server), "-")
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// listenBound is the timeout until a part listens.
const listenBound = 10 * time.Second

// start starts a part on a host, where it listens at ip.
func (r *rig) start(ctx context.Context, at *star.Space, name string, ip netip.Addr, key string) (p part, err error) {
	cmd := exec.CommandContext(ctx, r.Self[0], append(r.Self[1:len(r.Self):len(r.Self)], name)...)
	p.Process, p.addr, err = runner.StartPart(cmd, func() error { return at.Do(cmd.Start) }, fmt.Sprint(netip.AddrPortFrom(ip, 0), " ", key), listenBound)
	return p, err
}

// close ends the processes. It returns the proxy's error, for example that it copied bytes.
func (r *rig) close() error {
	err := r.proxy.Stop()
	r.server.Stop()
	r.net.Close()
	return err
}

// bound is the deadline of every connection: longer than any measurement.
const bound = time.Minute

// dial connects from the client's host.
func (r *rig) dial(ctx context.Context, addr string) (c *net.TCPConn, err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	err = r.net.Hosts[client].Do(func() error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp4", addr)
		if err == nil {
			c = conn.(*net.TCPConn)
			err = c.SetDeadline(time.Now().Add(bound))
		}
		return err
	})
	return c, err
}

// direct returns a connection to the server.
func (r *rig) direct(ctx context.Context) (*net.TCPConn, error) { return r.dial(ctx, r.server.addr) }

// relayed returns a connection to the server through the proxy.
func (r *rig) relayed(ctx context.Context) (*net.TCPConn, error) {
	claims := wire.Ticket{
		Job: "bench-00000000000000000000000000000000", Target: 1, Proxy: proxyName,
		Expires: uint64(time.Now().Add(time.Minute).UnixMilli()),
	}
	binary.BigEndian.PutUint64(claims.Link[:], uint64(time.Now().UnixNano()))
	asker := ticket.Issue(r.key, claims)
	claims.End = 1
	target := ticket.Issue(r.key, claims)

	order := append([]byte{byte(len(r.proxy.addr))}, r.proxy.addr...)
	order = wire.Append(order, &target)
	to, err := r.direct(ctx)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	head := binary.BigEndian.AppendUint32([]byte{opRelay}, uint32(len(order)))
	if _, err := to.Write(append(head, order...)); err != nil {
		return nil, err
	}
	c, err := r.dial(ctx, r.proxy.addr)
	if err != nil {
		return nil, err
	}
	_, err = c.Write(wire.Append(nil, &asker))
	return c, err
}

// way is how to reach the server.
type way func(context.Context) (*net.TCPConn, error)

// stream returns the rate in Gbit/s at which messages go one way.
func (r *rig) stream(w way) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		c, err := w(ctx)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		buf := make([]byte, message)
		buf[0] = opSink
		sent := uint64(0)
		start := time.Now()
		for time.Since(start) < r.Stream {
			if _, err := c.Write(buf); err != nil {
				return 0, err
			}
			sent += message
		}
		c.CloseWrite()
		var count [8]byte
		if _, err := io.ReadFull(c, count[:]); err != nil {
			return 0, fmt.Errorf("waiting for the server's count: %w", err)
		}
		took := time.Since(start)
		if got := binary.BigEndian.Uint64(count[:]); got != sent-1 {
			return 0, fmt.Errorf("%d bytes arrived of %d", got, sent-1)
		}
		return float64(sent) * 8 / took.Seconds() / 1e9, nil
	}
}

// trip returns the median time of a round trip of size bytes each way, in us.
func (r *rig) trip(w way, size, trips int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		c, err := w(ctx)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		if _, err := c.Write(binary.BigEndian.AppendUint32([]byte{opEcho}, uint32(size))); err != nil {
			return 0, err
		}
		buf := make([]byte, size)
		var us []float64
		for i := range trips + trips/10 {
			start := time.Now()
			if _, err := c.Write(buf); err != nil {
				return 0, err
			}
			if _, err := io.ReadFull(c, buf); err != nil {
				return 0, fmt.Errorf("waiting for the echo: %w", err)
			}
			if i >= trips/10 { // the first ones warm up
				us = append(us, float64(time.Since(start).Nanoseconds())/1e3)
			}
		}
		return bench.Median(us), nil
	}
}

const gigabit = 1_000_000_000

func (r *rig) measureAll(ctx context.Context) ([]bench.Row, error) {
	trips := func(size, n int) func(way) func(context.Context) (float64, error) {
		return func(w way) func(context.Context) (float64, error) { return r.trip(w, size, n) }
	}
	stream, err := r.compare(ctx, "stream", "Gbit/s", "unlimited", message, r.stream)
	if err != nil {
		return nil, err
	}
	large, err := r.compare(ctx, "round_trip", "us", "unlimited", message, trips(message, max(r.Trips/50, 1)))
	if err != nil {
		return nil, err
	}
	small, err := r.compare(ctx, "round_trip", "us", "unlimited", 1, trips(1, r.Trips))
	if err != nil {
		return nil, err
	}
	// What the relay adds to one way.
	added := bench.Row{Bench: "relay", Figure: "added_one_way", Params: small.Params, Value: (small.Value - small.Value/small.Ratio) / 2, Unit: "us"}
	if err := r.limit(gigabit); err != nil {
		return nil, err
	}
	limited, err := r.compare(ctx, "stream", "Gbit/s", "1 Gb/s", message, r.stream)
	if err != nil {
		return nil, err
	}
	return []bench.Row{stream.AtLeast(0.9), large, small, added.AtMost(25), limited.AtLeast(0.95)}, r.limit(0)
}

// limit limits both wires, in both directions, to rate bit/s; 0 removes the limit.
func (r *rig) limit(rate uint64) error {
	for i, host := range r.net.Hosts {
		err := errors.Join(
			host.Do(func() error { return runner.Limit("eth0", rate) }),
			r.net.Centre.Do(func() error { return runner.Limit(star.Port(i), rate) }))
		if err != nil {
			return fmt.Errorf("limiting the wire of host %d to %d bit/s: %w", i, rate, err)
		}
	}
	return nil
}

// compare measures directly and through the proxy in turn, and returns a row for the latter.
func (r *rig) compare(ctx context.Context, figure, unit, link string, size int, measure func(way) func(context.Context) (float64, error)) (row bench.Row, err error) {
	values, err := bench.Interleave(ctx, r.Repeat, measure(r.direct), measure(r.relayed))
	if err != nil {
		return row, err
	}
	direct, relayed := bench.Median(values[0]), bench.Median(values[1])
	return bench.Row{
		Bench: "relay", Figure: figure, Value: relayed, Unit: unit, Against: "direct", Ratio: relayed / direct,
		Params: map[string]any{
			"link": link, "message": size, "repeat": r.Repeat, "direct": bench.Round(direct),
			"spread": bench.Round(bench.Spread(values[1])), "direct_spread": bench.Round(bench.Spread(values[0])),
		},
	}, nil
}
