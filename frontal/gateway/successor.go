package gateway

import (
	"bytes"
	"fmt"
	"net"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/wire"
)

// GreetReturned is greet for a connection whose intro a successor has read.
func (g *Gateway) GreetReturned(r daemon.Returned) {
	frame, err := wire.Read(bytes.NewReader(r.First))
	intro, ok := frame.(*wire.Intro)
	if err == nil && !ok {
		err = fmt.Errorf("%w: a successor passed on a %v in place of an intro", wire.ErrType, frame.Type())
	}
	if err == nil {
		handle := handler(g.fromOutside)
		if a, ok := r.Conn.LocalAddr().(*net.TCPAddr); ok && g.DataAddr.IsValid() && a.AddrPort().Port() == g.DataAddr.Port() {
			handle = g.fromNode
		}
		err = handle(g.ctx, r.Conn, intro)
	}
	if err != nil {
		g.refuseAndLog(r.Conn, err)
	}
}
