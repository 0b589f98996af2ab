package scale

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// pair is both ends of a link through the proxy.
type pair [2]*net.TCPConn

// measureProxy fills a proxy with links and makes all of them busy.
func (o Options) measureProxy(ctx context.Context) (*proxyFigures, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	key := ticket.NewKey()
	p, addr, err := o.start(ctx, partProxy, order{Key: key[:], Rate: o.Rate})
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	var links []pair
	var flows []*runner.Traffic
	defer func() {
		for _, l := range links {
			l[0].Close()
			l[1].Close()
		}
		for _, t := range flows {
			t.End()
		}
	}()
	more := func() error {
		l, err := dialPair(ctx, addr, key)
		if err != nil {
			return fmt.Errorf("link %d: %w", len(links)+1, err)
		}
		links = append(links, l)
		return nil
	}
	// One link first: what the proxy sets up for it is not part of each link's cost.
	if err := more(); err != nil {
		return nil, err
	}
	f := new(proxyFigures)
	if f.before, err = useOf(p.PID()); err != nil {
		return nil, err
	}
	for len(links) <= o.Links {
		if err := more(); err != nil {
			return nil, err
		}
	}
	if f.idle, err = useOf(p.PID()); err != nil {
		return nil, err
	}
	if f.socketsIdle, err = socketMemory(); err != nil {
		return nil, err
	}
	for _, l := range links[1:] {
		flows = append(flows, runner.Pump(l[0], l[1], 16<<10))
	}
	sleep.For(ctx, warmUp)
	counts := make([]uint64, len(flows))
	for i, t := range flows {
		counts[i] = t.Got()
	}
	start := time.Now()
	sleep.For(ctx, o.For)
	for i, t := range flows {
		f.linkBytes = append(f.linkBytes, float64(t.Got()-counts[i]))
	}
	f.took = time.Since(start)
	f.busy, err = useOf(p.PID())
	if err != nil {
		return nil, err
	}
	f.socketsBusy, err = socketMemory()
	return f, errors.Join(err, context.Cause(ctx))
}

// dialPair makes a link and checks that it carries a byte.
func dialPair(ctx context.Context, addr string, key ticket.Key) (ends pair, err error) {
	claims := wire.Ticket{Job: benchJob, Target: 1, Proxy: proxyName, Expires: uint64(time.Now().Add(time.Minute).UnixMilli())}
	rand.Read(claims.Link[:])
	for i := range ends {
		c, err := carrier.DialTCP(ctx, addr, carrier.HTTPProxy{})
		if err != nil {
			return ends, err
		}
		c.SetReadBuffer(64 << 10)
		c.SetWriteBuffer(64 << 10)
		claims.End = uint8(i)
		t := ticket.Issue(key, claims)
		c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := c.Write(wire.Append(nil, &t)); err != nil {
			return ends, err
		}
		ends[i] = c
	}
	if _, err := ends[0].Write([]byte{1}); err != nil {
		return ends, err
	}
	if _, err := ends[1].Read(make([]byte, 1)); err != nil {
		return ends, err
	}
	return ends, errors.Join(ends[0].SetDeadline(time.Time{}), ends[1].SetDeadline(time.Time{}))
}

// benchJob is a job without a key: a proxy does not need one.
const benchJob = overlay.JobID("scale-00112233445566778899aabbccddeeff")
