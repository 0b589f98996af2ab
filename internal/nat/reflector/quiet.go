package reflector

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A quiet port shows whether a filter tracks connections where there is no UDP to determine it
// with: the site sends a SYN to it, which is not answered, and then the port sends one back. To a
// filter that tracks connections the second belongs to the first; one that judges SYNs alone
// refuses it like any other.
//
//	site                        reflector
//	  |----- Quiet, by the broker --->|  listens
//	  |======= two connections ======>|  the queue is full: SYNs are dropped
//	  |------------- SYN ------------>|  dropped; the site gives up
//	  |----- Port, by the broker ---->|
//	  |<------------ SYN -------------|  arrives, or does not

// Bounds of quiet ports.
const (
	quietLife = 10 * time.Second
	maxQuiet  = 16
)

// quietPort is one quiet port. Its connections are never accepted.
type quietPort struct {
	to netip.AddrPort // the only address that it may call
	ln net.Listener
}

// keepQuiet listens on a quiet port until it has called, or quietLife is over, even if the daemon
// stops meanwhile: nothing waits for it.
func (o *Observer) keepQuiet(to netip.AddrPort) (uint16, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.quiet) >= maxQuiet {
		return 0, fmt.Errorf("%w: %d quiet ports are kept, the limit", overlay.ErrOverloaded, maxQuiet)
	}
	ln, err := listenQuiet()
	if err != nil {
		return 0, err
	}
	port := uint16(ln.Addr().(*net.TCPAddr).Port)
	o.quiet[port] = &quietPort{to, ln}
	time.AfterFunc(quietLife, func() { o.endQuiet(port, ln) })
	return port, nil
}

func (o *Observer) endQuiet(port uint16, ln net.Listener) {
	o.mu.Lock()
	if q := o.quiet[port]; q != nil && q.ln == ln {
		delete(o.quiet, port)
	}
	o.mu.Unlock()
	ln.Close()
}

// callQuiet calls from a quiet port and closes it.
func (o *Observer) callQuiet(ctx context.Context, t Target) *controlpb.CallBackResponse {
	o.mu.Lock()
	q := o.quiet[t.Port]
	o.mu.Unlock()
	if q == nil || q.to != t.To {
		return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_UNKNOWN, Text: fmt.Sprintf("no quiet port %d is kept for %v", t.Port, t.To)}
	}
	defer o.endQuiet(t.Port, q.ln)
	return dialTCP(ctx, t, net.Dialer{KeepAlive: -1, Control: sharePort, LocalAddr: &net.TCPAddr{Port: int(t.Port)}})
}
