package emulator

import (
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/lab/wan/star"
)

// patience is the timeout of every wait for the network under test.
const patience = 30 * time.Second

// A rig is two hosts and, if shaped, an emulator between them.
type rig struct{ *runner.DistantHosts }

// newRig makes a rig with shape s in both directions; without an emulator if s is nil.
func newRig(s *wan.Shape) (r rig, err error) {
	var paths []wan.Path
	if s != nil {
		paths = []wan.Path{runner.Between(0, 1, *s), runner.Between(1, 0, *s)}
	}
	r.DistantHosts, err = runner.NewDistantHosts(2, paths...)
	return r, err
}

// counter returns the emulator's counter of the direction from a to b.
func (r rig) counter() wan.Counter { return r.Emulator.Counters()[0] }

// settled returns the counter once it has n packets, or after a second: the emulator reads packets
// only after their sender has written them.
func (r rig) settled(n uint64) wan.Counter {
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		if c := r.counter(); c.Packets+c.Lost >= n || time.Now().After(end) {
			return c
		}
	}
}

// udp returns a socket of host i.
func (r rig) udp(i int) (c *net.UDPConn, err error) {
	err = r.Hosts[i].Do(func() error {
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
func (r rig) tcp(n int) (from, to []*net.TCPConn, err error) {
	var ln *net.TCPListener
	err = r.Hosts[1].Do(func() error {
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
		err = r.Hosts[0].Do(func() error {
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
