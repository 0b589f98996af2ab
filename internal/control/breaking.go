package control

import (
	"net"
	"time"
)

// breaking is a connection whose Close only ends reads and writes, at once, and leaves the rest to
// the session.
//
// yamux closes its connection after it has told the readers of all streams that the session is
// over, and before it releases them; in between they spin (yamux 0.1.2, Stream.Read), each on a
// processor if there is one. Closing takes time: a TLS connection sends close_notify, and a link
// waits until it is delivered. A helper that gave up hundreds of sessions had no time for the
// others meanwhile.
type breaking struct{ net.Conn }

// Close implements net.Conn.
func (c breaking) Close() error { return c.SetDeadline(time.Unix(1, 0)) }
