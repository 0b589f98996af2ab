package stripe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/lab/wan/star"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The hosts of the long path.
const (
	near = iota
	far
	middle
)

// relayPort is that of the relay.
const relayPort = 7001

// longPath is two hosts, and a third half way between them that relays as a proxy does.
type longPath struct {
	path
	relay *net.TCPListener
	tune  carrier.Tuning     // of the relay's sockets
	lossy carrier.LossyPaths // as a proxy has it
	stop  context.CancelFunc
	work  sync.WaitGroup
}

func newLongPath(ctx context.Context, o Options, rate int64) (_ *longPath, err error) {
	whole := wan.Shape{Delay: o.RTT / 2, Loss: o.Loss, Rate: rate}
	// Two halves with half the loss each lose nearly the same in sequence as the whole.
	half := wan.Shape{Delay: o.RTT / 4, Loss: o.Loss / 2, Rate: rate, Queue: int(float64(rate) / 8 * o.RTT.Seconds())}
	l := new(longPath)
	if l.DistantHosts, err = runner.NewDistantHosts(3,
		runner.Between(near, far, whole), runner.Between(far, near, whole),
		runner.Between(near, middle, half), runner.Between(middle, near, half),
		runner.Between(far, middle, half), runner.Between(middle, far, half),
	); err != nil {
		return nil, err
	}
	err = l.Hosts[middle].Do(func() (err error) {
		l.relay, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(star.Addr(middle), relayPort)))
		return err
	})
	if err != nil {
		return nil, errors.Join(err, l.DistantHosts.Close())
	}
	ctx, l.stop = context.WithCancel(ctx)
	l.work.Go(func() { l.serveRelay(ctx) })
	return l, nil
}

// serveRelay joins each connection with one of its own to the far host.
func (l *longPath) serveRelay(ctx context.Context) {
	for {
		in, err := l.relay.AcceptTCP()
		if err != nil {
			return // it was closed
		}
		l.work.Go(func() {
			var out *net.TCPConn
			err := l.Hosts[middle].Do(func() (err error) {
				out, err = net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(star.Addr(far), port)))
				return err
			})
			if err != nil {
				in.Close()
				return
			}
			for _, c := range []*net.TCPConn{in, out} {
				carrier.Tune(c, l.tune) // best effort, as a proxy does
			}
			carrier.Join(ctx, in, out, carrier.Options{Lossy: &l.lossy})
		})
	}
}

func (l *longPath) close() error {
	l.relay.Close()
	l.stop()
	l.work.Wait()
	return l.DistantHosts.Close()
}

// ranks returns the two ends, with the given first technique.
func (l *longPath) ranks(congestion string, first overlay.Technique, direct chan struct{}) (ends [2]rank, done func(), err error) {
	var sockets [2]*socket
	done = func() {
		for _, s := range sockets {
			if s != nil {
				s.Close()
			}
		}
	}
	for i := range ends {
		s := &socket{
			space: l.Hosts[i], congestion: congestion, peer: netip.AddrPortFrom(star.Addr(1-i), port),
			relay: netip.AddrPortFrom(star.Addr(middle), relayPort), first: first, direct: direct,
		}
		if err := s.listen(netip.AddrPortFrom(star.Addr(i), port)); err != nil {
			done()
			return ends, nil, err
		}
		sockets[i] = s
		ends[i] = rank{self: link.NewIdentity(benchKey, uint32(i), 1), connector: s}
	}
	return ends, done, nil
}

// raw is so many TCP connections over the path, without a link.
func (l *longPath) raw(ctx context.Context, congestion string, connections int) (r result, err error) {
	ends, done, err := l.ranks(congestion, overlay.Direct, nil)
	if err != nil {
		return result{}, err
	}
	defer done()
	var all []*runner.Traffic
	defer func() {
		for _, t := range all {
			err = errors.Join(err, t.End())
		}
	}()
	for range connections {
		a, err := ends[0].connector.(*socket).Dial(ctx, overlay.ProcessName{}, overlay.AllWays)
		if err != nil {
			return result{}, err
		}
		b, err := ends[1].connector.(*socket).Accept(ctx)
		if err != nil {
			a.Conn.Close()
			return result{}, err
		}
		all = append(all, runner.Pump(a.Conn, b.Conn, block))
	}
	r, err = arriving(ctx, func() (sum uint64) {
		for _, t := range all {
			sum += t.Got()
		}
		return sum
	}, sleep.For(ctx, warming))
	r.carriers = connections
	return r, err
}

// linkOf measures a link of several carriers that stays with its first technique.
func (l *longPath) linkOf(ctx context.Context, congestion string, first overlay.Technique, carriers int) (result, error) {
	ends, done, err := l.ranks(congestion, first, nil)
	if err != nil {
		return result{}, err
	}
	defer done()
	return flow(ctx, ends[0], ends[1], carriers)
}

// How long a link of the move is on the relay, and how long it is observed from then on.
const (
	onRelay   = 5 * time.Second
	afterMove = 15 * time.Second
)

// move measures a link that finds a direct path while it sends over the relay. It returns its final
// speed, and the round trips that the move has cost; see settled.
func (l *longPath) move(ctx context.Context, congestion string, rtt time.Duration) (full result, rtts float64, err error) {
	direct := make(chan struct{})
	ends, done, err := l.ranks(congestion, overlay.Relay, direct)
	if err != nil {
		return full, 0, err
	}
	defer done()
	err = linked(ctx, ends[0], ends[1], 1, func(ctx context.Context, a, b *link.Link) error {
		t := runner.Pump(a.Conn, b.Conn, block)
		err := sleep.For(ctx, onRelay)
		close(direct)
		var seen []arrived
		var moved time.Time
		for start, over := time.Now(), false; err == nil && !over; {
			path, _ := a.Current()
			if now := time.Now(); moved.IsZero() && path.Technique == overlay.Direct {
				moved = now
			}
			seen = append(seen, arrived{time.Now(), t.Got()})
			switch {
			case moved.IsZero() && time.Since(start) > joining:
				err = fmt.Errorf("waited %v for the link to take the direct path", joining)
			case !moved.IsZero() && time.Since(moved) > afterMove:
				over = true
			default:
				err = sleep.For(ctx, step)
			}
		}
		full.carriers = describe(a).carriers
		var after time.Duration
		full.rate, after = settled(seen, moved)
		rtts = after.Seconds() / rtt.Seconds()
		return errors.Join(err, t.End())
	})
	return full, rtts, err
}

// runLossy measures the cells of the scenario "lossy".
func runLossy(ctx context.Context, o Options) error {
	rates := []int64{100e6, 1000e6}
	if o.Rate > 0 {
		rates = []int64{o.Rate}
	}
	measured, system, err := congestions()
	if err != nil {
		return err
	}
	for _, rate := range rates {
		for _, congestion := range measured {
			if o.Control != "" && o.Control != congestion {
				continue
			}
			if err := o.lossy(ctx, rate, congestion, system); err != nil {
				return fmt.Errorf("%d Mb/s, %s: %w", rate/1e6, congestion, err)
			}
		}
	}
	return nil
}

// lossy measures all cells of one rate and control in turn, compared with TCP.
func (o Options) lossy(ctx context.Context, rate int64, congestion, system string) (err error) {
	l, err := newLongPath(ctx, o, rate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	l.tune = carrier.Tuning{Congestion: []string{congestion}}
	var moves []float64
	cells := []cell{
		{name: "raw", run: func() (result, error) { return l.raw(ctx, congestion, 1) }},
		{name: "raw_eight", run: func() (result, error) { return l.raw(ctx, congestion, 8) }},
		{name: "direct", target: targetDirect, run: func() (result, error) { return l.linkOf(ctx, congestion, overlay.Direct, 1) }},
		{name: "relay", target: targetRelay, run: func() (result, error) { return l.linkOf(ctx, congestion, overlay.Relay, 1) }},
		{name: "eight", target: targetEight, run: func() (result, error) { return l.linkOf(ctx, congestion, overlay.Direct, 8) }},
		{name: "own", run: func() (result, error) { return l.linkOf(ctx, congestion, overlay.Direct, own) }},
		{name: "moved", run: func() (result, error) {
			r, rtts, err := l.move(ctx, congestion, o.RTT)
			moves = append(moves, rtts)
			return r, err
		}},
	}
	if o.Figure != "" {
		cells = slices.DeleteFunc(cells, func(c cell) bool { return c.name != o.Figure && c.name != cells[0].name })
	}
	if len(cells) < 2 && o.Figure != cells[0].name {
		return fmt.Errorf("there is no figure %q", o.Figure)
	}
	for round := range o.Repeat {
		for i := range cells {
			fmt.Fprintf(o.Err, "\rlossy %d Mb/s %s: round %d of %d, %s\x1b[K", rate/1e6, congestion, round+1, o.Repeat, cells[i].name)
			r, err := cells[i].run()
			if err != nil {
				return fmt.Errorf("%s: %w", cells[i].name, err)
			}
			cells[i].results = append(cells[i].results, r)
		}
	}
	fmt.Fprint(o.Err, "\r\x1b[K")
	return bench.Write(o.Out, o.JSON, lossyRows(cells, moves, map[string]any{
		"congestion": congestion, "system_congestion": system, "rtt_ms": float64(o.RTT.Microseconds()) / 1000,
		"loss": o.Loss, "rate_mbit": float64(rate) / 1e6,
	})...)
}
