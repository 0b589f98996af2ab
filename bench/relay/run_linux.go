package relay

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/wire"
)

// Options say how to measure. Zero fields take the values of Run's comment.
type Options struct {
	// Self is the command line that runs this program as a part, less the
	// part's name. Element 0 is a path.
	Self []string

	Repeat int           // of each comparison
	Stream time.Duration // each stream
	Trips  int           // round trips of each latency measurement
	JSON   bool
}

// Run makes the three hosts, measures, and writes the rows to w: streams of 1 MiB messages and
// round trips, unlimited and at 1 Gb/s, each 7 times, through the proxy and directly in turn. It
// must be called first in main (see lab.Enter).
func Run(ctx context.Context, w io.Writer, o Options) error {
	if err := lab.Enter(); err != nil {
		return err
	}
	o.Repeat = orDefault(o.Repeat, 7)
	o.Stream = orDefault(o.Stream, 500*time.Millisecond)
	o.Trips = orDefault(o.Trips, 3000)
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

func orDefault[T comparable](v, preset T) T {
	var zero T
	if v == zero {
		return preset
	}
	return v
}

// rig is the hosts with their processes.
type rig struct {
	Options
	net    *network
	key    ticket.Key
	proxy  *process
	server *process
}

func newRig(ctx context.Context, o Options) (*rig, error) {
	n, err := newNetwork()
	if err != nil {
		return nil, err
	}
	r := &rig{Options: o, net: n, key: ticket.NewKey()}
	if r.proxy, err = startPart(ctx, n.middle, o.Self, partProxy, middleLeft.Addr(), hex.EncodeToString(r.key[:])); err != nil {
		r.close()
		return nil, err
	}
	if r.server, err = startPart(ctx, n.server, o.Self, partServer, serverAddr.Addr(), "-"); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// close ends the processes. It returns the proxy's error, for example that it copied bytes.
func (r *rig) close() error {
	err := r.proxy.stop()
	r.server.stop()
	r.net.close()
	return err
}

// bound is the deadline of every connection: longer than any measurement.
const bound = time.Minute

// dial connects from the client's host.
func (r *rig) dial(ctx context.Context, addr string) (c *net.TCPConn, err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	err = r.net.client.do(func() error {
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
	var rows []bench.Row
	add := func(more []bench.Row, err error) error {
		rows = append(rows, more...)
		return err
	}
	if err := add(r.compare(ctx, "stream", "Gbit/s", "unlimited", message, 0.9, r.stream)); err != nil {
		return nil, err
	}
	trips := func(size, n int) func(way) func(context.Context) (float64, error) {
		return func(w way) func(context.Context) (float64, error) { return r.trip(w, size, n) }
	}
	if err := add(r.compare(ctx, "round_trip", "us", "unlimited", message, 0, trips(message, max(r.Trips/50, 1)))); err != nil {
		return nil, err
	}
	if err := add(r.latency(ctx, trips(1, r.Trips))); err != nil {
		return nil, err
	}
	if err := r.net.limit(gigabit); err != nil {
		return nil, err
	}
	if err := add(r.compare(ctx, "stream", "Gbit/s", "1 Gb/s", message, 0.95, r.stream)); err != nil {
		return nil, err
	}
	return rows, r.net.limit(0)
}

// compare measures directly and through the proxy in turn, and returns a row for the latter, with a
// minimum ratio as the target, if any.
func (r *rig) compare(ctx context.Context, figure, unit, link string, size int, target float64, measure func(way) func(context.Context) (float64, error)) ([]bench.Row, error) {
	values, err := bench.Interleave(ctx, r.Repeat, measure(r.direct), measure(r.relayed))
	if err != nil {
		return nil, err
	}
	direct, relayed := bench.Median(values[0]), bench.Median(values[1])
	row := bench.Row{
		Bench: "relay", Figure: figure, Value: relayed, Unit: unit, Against: "direct", Ratio: relayed / direct,
		Params: map[string]any{
			"link": link, "message": size, "repeat": r.Repeat, "direct": bench.Round(direct),
			"spread": bench.Round(bench.Spread(values[1])), "direct_spread": bench.Round(bench.Spread(values[0])),
		},
	}
	if target > 0 {
		row = row.AtLeast(target)
	}
	return []bench.Row{row}, nil
}

// latency returns the round trip of one byte and what the relay adds to one way.
func (r *rig) latency(ctx context.Context, trip func(way) func(context.Context) (float64, error)) ([]bench.Row, error) {
	values, err := bench.Interleave(ctx, r.Repeat, trip(r.direct), trip(r.relayed))
	if err != nil {
		return nil, err
	}
	direct, relayed := bench.Median(values[0]), bench.Median(values[1])
	params := map[string]any{
		"link": "unlimited", "message": 1, "repeat": r.Repeat, "direct": bench.Round(direct),
		"spread": bench.Round(bench.Spread(values[1])), "direct_spread": bench.Round(bench.Spread(values[0])),
	}
	added := bench.Row{Bench: "relay", Figure: "added_one_way", Params: params, Value: (relayed - direct) / 2, Unit: "us"}
	return []bench.Row{
		{Bench: "relay", Figure: "round_trip", Params: params, Value: relayed, Unit: "us", Against: "direct", Ratio: relayed / direct},
		added.AtMost(25),
	}, nil
}
