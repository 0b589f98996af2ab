package probe

import (
	"context"
	"net"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

// measureIPv6 measures what the firewall does to IPv6, if that leads to reflectors untranslated.
func (m *measurement) measureIPv6(ctx context.Context) {
	if !m.o.ipv6().value {
		return
	}
	six := &measurement{opts: m.opts, points: m.six, waits: m.waits, ipv6: true, o: Observations{IPv6: m.o.IPv6}}
	six.opts.HTTPProxy = carrier.HTTPProxy{}
	if m.o.ipv6Only().value { // the ports that the admin names are of the only version that there is
		six.o.Ports = m.opts.Ports
	} else {
		six.opts.Ports = overlay.Ports{}
	}
	defer six.close()
	six.look(ctx)
	six.beCalled(ctx)
	six.cross(ctx)
	m.o.OverIPv6 = &six.o
}

// lookIPv6 asks up to two reflectors over IPv6 for this host's address.
func (m *measurement) lookIPv6(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, point := range m.six[:min(2, len(m.six))] {
		wg.Go(func() {
			v := View{To: point.tcp}
			d := net.Dialer{KeepAlive: -1}
			d.SetMultipathTCP(false)
			c, err := v.ask(ctx, m.waits, func(ctx context.Context) (c net.Conn, err error) {
				err = m.opts.Do(func() (err error) {
					c, err = d.DialContext(ctx, "tcp6", v.To.String())
					return err
				})
				return c, err
			}, m.opts.TLS)
			if c != nil {
				carrier.Reset(c)
			}
			if err != nil {
				v.Err = shortError(err)
			}
			m.add(func(o *Observations) { o.IPv6 = append(o.IPv6, v) })
		})
	}
}
