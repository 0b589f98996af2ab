package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/lab/wan/star"
)

// patience bounds every wait for the network under test.
const patience = 30 * time.Second

// A rig is two hosts with a forwarding namespace between them and, if shaped,
// an emulator in that.
type rig struct {
	star *star.Star
	emu  *wan.Emulator // nil without an emulator
	stop context.CancelFunc
	done chan error
}

// newRig makes a rig whose both directions do s; with a nil s no emulator runs.
func newRig(s *wan.Shape) (*rig, error) {
	st, err := star.New(2)
	if err != nil {
		return nil, err
	}
	r := &rig{star: st}
	if s == nil {
		return r, nil
	}
	err = st.Centre.Do(func() (err error) {
		r.emu, err = wan.New([]wan.Path{
			{From: "a", To: "b", In: star.Port(0), Out: star.Port(1), Shape: *s},
			{From: "b", To: "a", In: star.Port(1), Out: star.Port(0), Shape: *s},
		}, wan.Options{Seed: 1})
		return err
	})
	if err != nil {
		st.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop, r.done = cancel, make(chan error, 1)
	go func() { r.done <- r.emu.Serve(ctx) }()
	return r, nil
}

// close ends the rig. An emulator that failed, or that could not keep up, is
// an error: its figures would be wrong.
func (r *rig) close() error {
	var err error
	if r.emu != nil {
		r.stop()
		err = <-r.done
		if n := r.emu.Overruns(); n > 0 {
			err = errors.Join(err, fmt.Errorf("the emulator missed %d packets: this machine is too busy for figures", n))
		}
	}
	r.star.Close()
	return err
}

// counter returns the emulator's counter of the direction from a to b.
func (r *rig) counter() wan.Counter { return r.emu.Counters()[0] }

// settled returns the counter once it holds n packets, which the emulator reads
// only after their sender wrote them, or after a second without.
func (r *rig) settled(n uint64) wan.Counter {
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		if c := r.counter(); c.Packets+c.Lost >= n || time.Now().After(end) {
			return c
		}
	}
}

// udp returns a socket of host i.
func (r *rig) udp(i int) (c *net.UDPConn, err error) {
	err = r.star.Hosts[i].Do(func() error {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(star.Addr(i), 0)))
		return err
	})
	if err != nil {
		return nil, err
	}
	c.SetReadBuffer(4 << 20)
	return c, c.SetDeadline(time.Now().Add(patience))
}

// tcp returns both ends of n connections from host 0 to host 1.
func (r *rig) tcp(n int) (from, to []*net.TCPConn, err error) {
	var ln *net.TCPListener
	err = r.star.Hosts[1].Do(func() error {
		ln, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(star.Addr(1), 0)))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	defer func() {
		if err != nil {
			closeAll(from, to)
		}
	}()
	for range n {
		err = r.star.Hosts[0].Do(func() error {
			d := net.Dialer{Timeout: patience}
			c, err := d.Dial("tcp4", ln.Addr().String())
			if err == nil {
				from = append(from, c.(*net.TCPConn))
			}
			return err
		})
		if err != nil {
			return from, to, err
		}
		ln.SetDeadline(time.Now().Add(patience))
		c, err := ln.AcceptTCP()
		if err != nil {
			return from, to, err
		}
		to = append(to, c)
	}
	return from, to, nil
}

func closeAll(conns ...[]*net.TCPConn) {
	for _, cs := range conns {
		for _, c := range cs {
			c.Close()
		}
	}
}
