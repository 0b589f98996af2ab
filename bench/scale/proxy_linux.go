package scale

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// pair is both ends of a link through the proxy.
type pair struct {
	from, to *net.TCPConn
	got      atomic.Int64
}

func (p *pair) close() {
	p.from.Close()
	p.to.Close()
}

// measureProxy fills a proxy with links and makes all of them busy.
func (o Options) measureProxy(ctx context.Context) (*proxyFigures, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	key := ticket.NewKey()
	p, addr, err := o.start(ctx, partProxy, order{Key: key[:], Rate: o.Rate})
	if err != nil {
		return nil, err
	}
	defer p.stop()
	var busy sync.WaitGroup
	defer busy.Wait()
	var links []*pair
	defer func() {
		for _, l := range links {
			l.close()
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
	if f.before, err = useOf(p.pid()); err != nil {
		return nil, err
	}
	for len(links) <= o.Links {
		if err := more(); err != nil {
			return nil, err
		}
	}
	if f.idle, err = useOf(p.pid()); err != nil {
		return nil, err
	}
	if f.socketsIdle, err = socketMemory(); err != nil {
		return nil, err
	}
	measured := links[1:]
	for _, l := range measured {
		busy.Go(func() { l.send() })
		busy.Go(func() { l.receive() })
	}
	wait(ctx, warmUp)
	counts := make([]int64, len(measured))
	for i, l := range measured {
		counts[i] = l.got.Load()
	}
	start := time.Now()
	wait(ctx, o.For)
	for i, l := range measured {
		f.moved = append(f.moved, float64(l.got.Load()-counts[i]))
	}
	f.took = time.Since(start)
	f.busy, err = useOf(p.pid())
	if err != nil {
		return nil, err
	}
	f.socketsBusy, err = socketMemory()
	return f, errors.Join(err, context.Cause(ctx))
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// dialPair makes a link and checks that it carries a byte.
func dialPair(ctx context.Context, addr string, key ticket.Key) (*pair, error) {
	claims := wire.Ticket{Job: benchJob, Target: 1, Proxy: proxyName, Expires: uint64(time.Now().Add(time.Minute).UnixMilli())}
	rand.Read(claims.Link[:])
	var ends [2]*net.TCPConn
	for i := range ends {
		c, err := carrier.DialTCP(ctx, addr, carrier.HTTPProxy{})
		if err != nil {
			return nil, err
		}
		c.SetReadBuffer(64 << 10)
		c.SetWriteBuffer(64 << 10)
		claims.End = uint8(i)
		t := ticket.Issue(key, claims)
		c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := c.Write(wire.Append(nil, &t)); err != nil {
			return nil, err
		}
		ends[i] = c
	}
	p := &pair{from: ends[0], to: ends[1]}
	if _, err := p.from.Write([]byte{1}); err != nil {
		return nil, err
	}
	if _, err := p.to.Read(make([]byte, 1)); err != nil {
		return nil, err
	}
	p.from.SetDeadline(time.Time{})
	p.to.SetDeadline(time.Time{})
	return p, nil
}

// benchJob is a job without a key: a proxy does not need one.
const benchJob = overlay.JobID("scale-00112233445566778899aabbccddeeff")

// send sends until the link is closed; receive counts what arrives.
func (p *pair) send() {
	buf := make([]byte, 16<<10)
	for {
		if _, err := p.from.Write(buf); err != nil {
			return
		}
	}
}

func (p *pair) receive() {
	buf := make([]byte, 16<<10)
	for {
		n, err := p.to.Read(buf)
		p.got.Add(int64(n))
		if err != nil {
			return
		}
	}
}
