package emulator

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/internal/sleep"
)

// roundTrips returns the times of n small exchanges, sorted, in milliseconds.
func (r rig) roundTrips(ctx context.Context, n int) ([]float64, error) {
	a, err := r.udp(0)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := r.udp(1)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	echoed := make(chan struct{})
	defer func() { <-echoed }()
	defer b.Close()
	go func() { // ends when b is closed
		defer close(echoed)
		buf := make([]byte, 64)
		for {
			k, from, err := b.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			b.WriteToUDPAddrPort(buf[:k], from)
		}
	}()
	defer expire(ctx, a)()
	to := b.LocalAddr().(*net.UDPAddr).AddrPort()
	times := make([]float64, 0, n)
	msg, buf := make([]byte, 8), make([]byte, 64)
	for i := range n + 1 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		binary.BigEndian.PutUint64(msg, uint64(i))
		start := time.Now()
		if _, err := a.WriteToUDPAddrPort(msg, to); err != nil {
			return nil, err
		}
		k, err := a.Read(buf)
		if err != nil {
			return nil, fmt.Errorf("round trip %d: %w", i, err)
		}
		if k != 8 || binary.BigEndian.Uint64(buf) != uint64(i) {
			return nil, fmt.Errorf("round trip %d: another datagram was received", i)
		}
		if i > 0 { // the first one waits for address resolution
			times = append(times, time.Since(start).Seconds()*1e3)
		}
	}
	slices.Sort(times)
	return times, nil
}

// goodput returns the Mbit/s of n TCP streams from a to b, counted at the receivers between warm
// and warm+span.
func (r rig) goodput(ctx context.Context, n int, warm, span time.Duration) (float64, error) {
	from, to, err := r.tcp(n)
	if err != nil {
		return 0, err
	}
	var flows []*runner.Traffic
	defer func() {
		for _, t := range flows {
			t.End()
		}
	}()
	for i := range from {
		flows = append(flows, runner.Pump(from[i], to[i], 1<<20))
	}
	got := func() (bytes uint64) {
		for _, t := range flows {
			bytes += t.Got()
		}
		return bytes
	}
	if err := sleep.For(ctx, warm); err != nil {
		return 0, err
	}
	start, before := time.Now(), got()
	if err := sleep.For(ctx, span); err != nil {
		return 0, err
	}
	bytes, took := got()-before, time.Since(start)
	if bytes == 0 {
		return 0, fmt.Errorf("%d TCP streams carried nothing in %v", n, took)
	}
	return runner.Mbit(bytes, took), nil
}

// deliver sends n datagrams from a to b at an even pace and returns the one-way
// times, sorted, in milliseconds, of those that arrived.
func (r rig) deliver(ctx context.Context, n int, pace time.Duration) ([]float64, error) {
	a, err := r.udp(0)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := r.udp(1)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	defer expire(ctx, b)()
	ctx, cancel := context.WithCancel(ctx)
	epoch := time.Now()
	sent := make(chan error, 1)
	go func() { sent <- sendPaced(ctx, a, b.LocalAddr().(*net.UDPAddr), epoch, n, pace) }() // ends after n datagrams, or cancel
	var times []float64
	buf := make([]byte, 64)
	for {
		k, err := b.Read(buf)
		if err != nil {
			cancel()
			return nil, errors.Join(err, <-sent)
		}
		if k != 8 {
			cancel()
			return nil, errors.Join(fmt.Errorf("a datagram of %d bytes, sent were 8", k), <-sent)
		}
		stamp := binary.BigEndian.Uint64(buf)
		if stamp == endStamp {
			break
		}
		times = append(times, (time.Since(epoch)-time.Duration(stamp)).Seconds()*1e3)
	}
	slices.Sort(times)
	err = <-sent
	cancel()
	return times, err
}

// expire makes reads from c fail when ctx ends. The caller calls the returned function when it is
// done reading.
func expire(ctx context.Context, c *net.UDPConn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Now()) })
}

const (
	endStamp   = ^uint64(0) // marks the end of the datagrams
	endRepeats = 20         // of the end mark, since some are lost
)

func sendPaced(ctx context.Context, a *net.UDPConn, to *net.UDPAddr, epoch time.Time, n int, pace time.Duration) error {
	msg := make([]byte, 8)
	for i := range n + endRepeats {
		stamp := endStamp
		if i < n {
			if err := sleep.For(ctx, time.Until(epoch.Add(time.Duration(i)*pace))); err != nil {
				return err
			}
			stamp = uint64(time.Since(epoch))
		} else if err := sleep.For(ctx, pace); err != nil {
			return err
		}
		binary.BigEndian.PutUint64(msg, stamp)
		if _, err := a.WriteTo(msg, to); err != nil {
			return err
		}
	}
	return nil
}
