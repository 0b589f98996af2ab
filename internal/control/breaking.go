package control

import (
	"net"
	"time"
)

// breaking is a connection whose Close ends reads and writes at once, and leaves the
// rest to the session.
//
// yamux closes its connection after it has told the readers of all streams that the
// session is over, and before it lets them go; in between they spin (yamux 0.1.2,
// Stream.Read), each on a processor if there is one. Closing takes its time: a TLS
// connection says good-bye, and a link sees that it gets there. A helper that gives up
// hundreds of sessions had no time for the others meanwhile.
type breaking struct{ net.Conn }

// Close implements net.Conn.
func (c breaking) Close() error { return c.SetDeadline(time.Unix(1, 0)) }
