package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
)

// A SYN is sent crossTries times, each given up after crossWait or, on a longer path, when it would have been answered, so that a lost one does not look
// like a filter.
const (
	crossTries = 3
	crossWait  = 150 * time.Millisecond
	crossLooks = 2
)

// cross tests, where datagrams cannot, whether a SYN of this host opens the way for one from its
// destination. reflector/quiet.go describes the exchange.
func (m *measurement) cross(ctx context.Context) {
	nat := m.o.nat(false)
	outside, from := m.o.outside(m.points[0]), m.points[len(m.points)-1].tcp
	in := slices.ContainsFunc(m.o.Calls, func(c Call) bool { return c.Target == Fresh && !c.UDP && (c.Err != "" || c.Arrived) })
	if m.o.udp().value || !outside.IsValid() || nat.translates || in {
		return
	}
	c, err := m.crossed(ctx, outside, from)
	if err != nil {
		c.Err = shortError(err)
	}
	m.o.Cross = &c
}

// crossed tests again if nothing arrived: the cause may be a loss, or a busy host, whereas nothing
// makes a packet arrive that a filter does not let in.
func (m *measurement) crossed(ctx context.Context, outside netip.Addr, from netip.AddrPort) (c Cross, err error) {
	for range crossLooks {
		if c, err = m.crossOnce(ctx, outside, from); c.Connected || err != nil {
			break
		}
	}
	return c, err
}

func (m *measurement) crossOnce(ctx context.Context, outside netip.Addr, from netip.AddrPort) (c Cross, err error) {
	p, err := m.openOutside(false)
	if err != nil {
		return c, err
	}
	nonce, arrived := p.expect()
	ask := &controlpb.CallBackRequest{To: netip.AddrPortFrom(outside, p.number).String(), Nonce: nonce, From: from.String(), Quiet: true}
	resp, err := m.ask(ctx, ask)
	if err != nil {
		return c, err
	}
	if resp.GetPort() == 0 || resp.GetPort() > 65535 {
		return c, fmt.Errorf("%v keeps no port for that (%s)", from.Addr(), resp.GetText())
	}
	c.From = netip.AddrPortFrom(from.Addr(), uint16(resp.GetPort()))
	for range 2 { // their success shows that SYNs to the port leave the site
		conn, err := m.dial(ctx, 0, c.From, max(viewTime, m.waits.estimate().Answer(1)))
		if err != nil {
			return c, fmt.Errorf("%v is not reached (%s)", c.From, shortError(err))
		}
		defer carrier.Reset(conn)
	}
	for range crossTries {
		conn, err := m.dial(ctx, p.number, c.From, max(crossWait, m.waits.estimate().SRTT+crossWait/2))
		if conn != nil {
			carrier.Reset(conn)
			err = errors.New("accepted")
		}
		if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
			return c, fmt.Errorf("%v is not silent (%s)", c.From, shortError(err))
		}
	}
	ask.Quiet, ask.FromPort = false, resp.GetPort()
	if resp, err = m.ask(ctx, ask); err != nil {
		return c, err
	}
	if resp.GetOutcome() == controlpb.CallBackResponse_UNKNOWN {
		return c, errors.New(resp.GetText())
	}
	// A strict tracker lets the SYN in, but not the listener's answer out.
	err = m.opts.Do(func() (err error) { c.Connected, err = halfOpen(m.ipv6, p.number, c.From.Port()); return err })
	late := time.NewTimer(max(arriveTime, m.waits.estimate().RTO(1)))
	defer late.Stop()
	select {
	case <-arrived:
		return Cross{From: c.From, Connected: true}, nil
	case <-late.C:
	}
	return c, err
}

// ask sends a call-back request to a reflector.
func (m *measurement) ask(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, m.waits.call())
	defer cancel()
	resp, err := m.opts.Grid.CallBack(ctx, req)
	return resp, control.FromStatus(err)
}

// dial connects from a port of this host, 0 for any.
func (m *measurement) dial(ctx context.Context, number uint16, to netip.AddrPort, patience time.Duration) (c net.Conn, err error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{Port: int(number)}, Control: share, KeepAlive: -1, Timeout: patience}
	d.SetMultipathTCP(false)
	err = m.opts.Do(func() (err error) {
		c, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}
