package carrier

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Tuning configures a data socket. Zero fields keep the system's choice.
type Tuning struct {
	// Buffer is the size in bytes requested for each of the socket's send and receive buffers.
	// Setting it ends the kernel's own adaptation.
	Buffer int

	// Congestion lists congestion control algorithms (tcp(7), TCP_CONGESTION); the first that the
	// kernel has is used. It is no error if it has none.
	Congestion []string

	// KeepAlive is the idle time of a connection before the first probe; up to three probes at a
	// third of that interval decide that the peer is gone.
	KeepAlive time.Duration

	// UserTimeout is how long sent data may stay unacknowledged, and a full receiver stay full,
	// before the connection is given up (RFC 5482). It must be longer than a peer may pause
	// reading.
	UserTimeout time.Duration
}

// Tune sets up a data socket: no delay of small segments, and t. It sets all options it can and
// returns what failed.
func Tune(c *net.TCPConn, t Tuning) error {
	errs := []error{c.SetNoDelay(true)}
	if t.Buffer > 0 {
		errs = append(errs, c.SetReadBuffer(t.Buffer), c.SetWriteBuffer(t.Buffer))
	}
	if t.KeepAlive > 0 {
		probe := max(t.KeepAlive/3, time.Second)
		errs = append(errs, c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: max(t.KeepAlive, time.Second), Interval: probe, Count: 3}))
	}
	errs = append(errs, tuneSystem(c, t))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tune the socket to %v: %w", c.RemoteAddr(), err)
	}
	return nil
}
