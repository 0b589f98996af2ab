package frontal

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds of an enrolment that this frontal passes on.
const (
	enrolTime  = 30 * time.Second
	enrolBytes = 1 << 20 // in both directions together
)

// passEnrolment passes a connection on which a node asks for a certificate on to a broker, for nodes
// that have no way there. Both have TLS between them, end to end: what passes is opaque here, and the
// broker decides.
func (f *Frontal) passEnrolment(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, enrolTime)
	defer cancel()
	err := f.joinToBroker(ctx, conn)
	if err != nil {
		f.log.Warn("enrolment not passed on", "from", conn.RemoteAddr().String(), "error", err)
		f.auditRefusal(conn.RemoteAddr().String(), "enrolment", err)
		return
	}
	f.log.Info("enrolment passed on", "from", conn.RemoteAddr().String())
}

func (f *Frontal) joinToBroker(ctx context.Context, conn net.Conn) error {
	inside, ok := conn.(carrier.Stream)
	if !ok {
		return fmt.Errorf("%w: its ends cannot be passed on", overlay.ErrRefused)
	}
	addr := f.config().Broker[0]
	if to := f.up.Current(); to != nil {
		addr = cmp.Or(f.up.Addr(to), addr)
	}
	outside, err := carrier.DialSmall(ctx, addr, f.httpProxy)
	if err != nil {
		return fmt.Errorf("broker at %s: %w", addr, err)
	}
	defer outside.Close()
	_, err = carrier.Join(ctx, inside, outside, carrier.Options{Limit: enrolBytes})
	return err
}
