package probe

import (
	"context"
	"net"
	"sync"
)

// lookIPv6 asks up to two vantage points over IPv6 for this host's address.
func (m *measurement) lookIPv6(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, point := range m.six[:min(2, len(m.six))] {
		wg.Go(func() {
			v := View{To: point.tcp}
			d := net.Dialer{KeepAlive: -1}
			d.SetMultipathTCP(false)
			c, err := v.ask(ctx, func(ctx context.Context) (c net.Conn, err error) {
				err = m.opts.Do(func() (err error) {
					c, err = d.DialContext(ctx, "tcp6", v.To.String())
					return err
				})
				return c, err
			}, m.opts.TLS)
			if c != nil {
				c.Close()
			}
			if err != nil {
				v.Err = shortError(err)
			}
			m.add(func(o *Observations) { o.IPv6 = append(o.IPv6, v) })
		})
	}
}
