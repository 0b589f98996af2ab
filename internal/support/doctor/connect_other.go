//go:build !linux

package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// limitsSegments is false: dialOptions.segment has no effect here.
const limitsSegments = false

// dialOptions modify connect; only Linux supports them.
type dialOptions struct {
	segment int
	ttl     int
	port    uint16
}

// connect makes one TCP connection and records the result. The sender of an ICMP error is known on
// Linux only.
func connect(ctx context.Context, to netip.AddrPort, o dialOptions) (*net.TCPConn, Connection) {
	start := time.Now()
	c := Connection{To: to}
	if o != (dialOptions{}) {
		c.Outcome, c.Err = NoPermit, fmt.Sprintf("connecting with %+v needs Linux", o)
		return nil, c
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to.String())
	c.Took = time.Since(start)
	if err != nil {
		c.Outcome, c.Err = outcomeOf(err, c.Took < time.Millisecond), err.Error()
		return nil, c
	}
	c.Outcome, c.From = Connected, addrPort(conn.LocalAddr())
	return conn.(*net.TCPConn), c
}

func pathMTU(*net.TCPConn) int { return 0 }

// arrives is unsupported here.
func arrives(context.Context, *net.TCPConn) (tried, passed bool) { return false, false }
