package frontal

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// brokerJoined prepares a new session with the broker: it joins the site, registers all processes
// that run here and publishes their names. An error closes the session, which is then retried.
func (f *Frontal) brokerJoined(ctx context.Context, to *uplink.Uplink, s *control.Session) error {
	call, cancel := context.WithTimeout(ctx, uplink.CallTimeout)
	defer cancel()
	resp, err := controlpb.NewSitesClient(s.Conn()).Join(call, f.joinRequest())
	if err != nil {
		return fmt.Errorf("the broker refused site %s: %w", f.site, control.FromStatus(err))
	}
	f.permit.CheckKept(resp)
	// From here on, Register passes new processes to the broker itself; earlier ones are in the
	// registry that registerAll reads. So none is missed.
	if outage := f.up.Opened(to, s, resp.Broker, resp.Epoch); !outage.IsZero() {
		f.memory.Rejoined(outage, time.Now())
	}
	f.hosts.Changed() // to the broker, which may have restarted
	context.AfterFunc(ctx, func() {
		f.up.Lost(s)
		f.hosts.Changed() // the other brokers are told of the sessions with the hosts
	})
	n, err := f.registerAll(ctx, s)
	if err != nil {
		f.up.Lost(s)
		return fmt.Errorf("registering the processes of %s: %w", f.site, err)
	}
	if err := f.publishAll(ctx, s); err != nil {
		f.up.Lost(s)
		return fmt.Errorf("publishing the names of %s: %w", f.site, err)
	}
	f.log.Info("joined the broker", "broker", resp.Broker, "address", to.Address, "epoch", resp.Epoch, "processes", n)
	return nil
}

// registerAll registers every process of the site at the broker.
func (f *Frontal) registerAll(ctx context.Context, s *control.Session) (n int, err error) {
	points := f.registry.Points()
	for rest := points; len(rest) > 0; rest = rest[min(uplink.Chunk, len(rest)):] {
		batch := rest[:min(uplink.Chunk, len(rest))]
		faults, err := f.up.RegisterAt(ctx, s, batch, f.noteGranted)
		if err != nil {
			return 0, err
		}
		for i, fault := range faults {
			if fault != nil {
				f.log.Warn("the broker refuses a process that was registered before", "job", batch[i].Process.Job, "rank", batch[i].Process.Rank, "node", batch[i].Node.String(), "error", fault)
				f.forget(batch[i])
			}
		}
	}
	// A process may have left while its registration was pending, and its withdrawal may have
	// overtaken the registration.
	var left []overlay.AccessPoint
	for _, p := range points {
		if _, ok := f.registry.Point(p.Process); !ok {
			left = append(left, p)
		}
	}
	return len(points), f.up.WithdrawAt(ctx, s, uplink.Withdrawals(left))
}

func (f *Frontal) forget(p overlay.AccessPoint) {
	f.registry.Withdraw(p.Node.Name, p.Process, p.Generation)
}

// noteGranted records what the broker read in the grant of a process.
func (f *Frontal) noteGranted(p overlay.AccessPoint, granted overlay.Principal) {
	if p.Grant != "" {
		f.registry.Grant(p.Process, p.Generation, granted)
	}
}
