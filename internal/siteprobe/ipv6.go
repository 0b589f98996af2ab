package siteprobe

import (
	"context"
	"net"
	"sync"
)

// lookIPv6 asks up to two vantage points over IPv6 from where they are asked.
func (m *measurement) lookIPv6(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, point := range m.six[:min(2, len(m.six))] {
		wg.Go(func() {
			v := View{To: point.tcp}
			ctx, cancel := context.WithTimeout(ctx, viewTime)
			defer cancel()
			d := net.Dialer{KeepAlive: -1}
			d.SetMultipathTCP(false)
			var c net.Conn
			err := m.opts.Do(func() (err error) {
				c, err = d.DialContext(ctx, "tcp6", v.To.String())
				return err
			})
			if err == nil {
				defer c.Close()
				v.Local = addrOf(c.LocalAddr())
				v.Seen, err = observe(ctx, c)
			}
			if err != nil {
				v.Err = why(err)
			}
			m.add(func(o *Observations) { o.IPv6 = append(o.IPv6, v) })
		})
	}
}
