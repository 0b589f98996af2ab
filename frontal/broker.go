package frontal

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// chunk is how many processes are registered or withdrawn in one call: some
// hundred kilobytes, far below the 4 MiB that gRPC takes.
const chunk = 1000

// brokerJoined makes a new session with the broker fit for use: the site is
// joined, everything that runs here registered and its names published. An error closes the
// session, to be tried again.
func (f *Frontal) brokerJoined(ctx context.Context, to *uplink.Uplink, s *control.Session) error {
	call, cancel := context.WithTimeout(ctx, uplink.CallTimeout)
	defer cancel()
	resp, err := controlpb.NewSitesClient(s.Conn()).Join(call, f.joinRequest())
	if err != nil {
		return fmt.Errorf("the broker does not let site %s join: %w", f.site, control.FromStatus(err))
	}
	f.policyKept(resp)
	// From here on a process that registers is told to the broker by itself;
	// those before are in the registry that registerAll reads. None is missed.
	f.up.Opened(to, s, resp.Broker, resp.Epoch)
	f.hostsChanged() // to the broker, which may have started anew
	context.AfterFunc(ctx, func() { f.up.Lost(s) })
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

// registerAll tells the broker of every process of the site.
func (f *Frontal) registerAll(ctx context.Context, s *control.Session) (n int, err error) {
	f.mu.Lock()
	points := f.registry.points()
	f.mu.Unlock()
	for rest := points; len(rest) > 0; rest = rest[min(chunk, len(rest)):] {
		batch := rest[:min(chunk, len(rest))]
		faults, err := f.registerAt(ctx, s, batch)
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
	// A process may have left while its registration was under way, and its
	// withdrawal may have come first.
	var left []overlay.AccessPoint
	f.mu.Lock()
	for _, p := range points {
		if reg := f.registry.processes[p.Process]; reg == nil {
			left = append(left, p)
		}
	}
	f.mu.Unlock()
	return len(points), f.withdrawAt(ctx, s, withdrawals(left))
}

func (f *Frontal) forget(p overlay.AccessPoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registry.withdraw(p.Node.Name, p.Process, p.Generation)
}

// registerAt registers points at the broker and returns one error for each,
// nil where it was taken.
func (f *Frontal) registerAt(ctx context.Context, s *control.Session, points []overlay.AccessPoint) ([]error, error) {
	call, cancel := context.WithTimeout(ctx, uplink.CallTimeout)
	defer cancel()
	req := &controlpb.RegisterRequest{}
	for _, p := range points {
		req.Points = append(req.Points, control.RegistrationToPB(p))
	}
	resp, err := controlpb.NewDirectoryClient(s.Conn()).Register(call, req)
	if err != nil {
		return nil, f.up.CallError(s, err)
	}
	faults := make([]error, len(points))
	switch len(resp.Faults) {
	case 0:
		if err := f.noteGranted(points, resp.Principals); err != nil {
			return nil, err
		}
	case len(points):
		for i, fault := range resp.Faults {
			faults[i] = control.FaultErr(fault)
		}
	default: // some were refused; asking for each alone tells which
		for i := range points {
			one, err := f.registerAt(ctx, s, points[i:i+1])
			if err != nil {
				return nil, err
			}
			faults[i] = one[0]
		}
	}
	return faults, nil
}

// serves returns on whose behalf a process of the site works.
func (f *Frontal) serves(name overlay.ProcessName) overlay.Principal {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.registry.principal(name)
}

// noteGranted remembers what the broker read in the grants of processes.
func (f *Frontal) noteGranted(points []overlay.AccessPoint, principals []*controlpb.Principal) error {
	if len(principals) == 0 {
		return nil
	}
	if len(principals) != len(points) {
		return fmt.Errorf("%s: the broker's answer: %w: %d principals of %d processes", f.who, wire.ErrMalformed, len(principals), len(points))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, m := range principals {
		p, err := control.PrincipalFromPB(m)
		if err != nil {
			return fmt.Errorf("%s: the broker's answer: %w: %w", f.who, wire.ErrMalformed, err)
		}
		if reg := f.registry.processes[points[i].Process]; reg != nil && reg.point.Generation == points[i].Generation && points[i].Grant != "" {
			reg.granted = p
		}
	}
	return nil
}

// registerEverywhere registers points at every broker that has a session, and
// returns one error for each: one broker's refusal is enough, and then the others
// are told that there is no such process.
func (f *Frontal) registerEverywhere(ctx context.Context, points []overlay.AccessPoint) ([]error, error) {
	var mu sync.Mutex
	faults := make([]error, len(points))
	err := f.up.OnEach(func(s *control.Session) error {
		some, err := f.registerAt(ctx, s, points)
		mu.Lock()
		defer mu.Unlock()
		for i, fault := range some {
			if fault != nil {
				faults[i] = fault
			}
		}
		return err
	})
	var refused []overlay.AccessPoint
	for i, fault := range faults {
		if fault != nil {
			refused = append(refused, points[i])
		}
	}
	if err != nil || len(refused) == 0 || len(f.up.All) == 1 {
		return faults, err
	}
	return faults, f.withdrawAtBroker(ctx, withdrawals(refused))
}

// withdrawAtBroker withdraws processes at every broker that has a session. Elsewhere
// it need not: the next session registers what is left.
func (f *Frontal) withdrawAtBroker(ctx context.Context, gone []*controlpb.Withdrawal) error {
	return f.up.OnEach(func(s *control.Session) error { return f.withdrawAt(ctx, s, gone) })
}

// withdrawals are those of points of which nobody says how they ended.
func withdrawals(points []overlay.AccessPoint) (gone []*controlpb.Withdrawal) {
	for _, p := range points {
		gone = append(gone, &controlpb.Withdrawal{Process: control.ProcessToPB(p.Process), Generation: uint64(p.Generation)})
	}
	return gone
}

func (f *Frontal) withdrawAt(ctx context.Context, s *control.Session, gone []*controlpb.Withdrawal) error {
	for rest := gone; len(rest) > 0; rest = rest[min(chunk, len(rest)):] {
		req := &controlpb.WithdrawRequest{Processes: rest[:min(chunk, len(rest))]}
		call, cancel := context.WithTimeout(ctx, uplink.CallTimeout)
		_, err := controlpb.NewDirectoryClient(s.Conn()).Withdraw(call, req)
		cancel()
		if err != nil {
			return f.up.CallError(s, err)
		}
	}
	return nil
}

// askBroker is the resolver's way to the broker. A session that dies under
// the question, or is silent where another broker can be asked, costs one more
// try: the broker may have been restarted.
func (f *Frontal) askBroker(ctx context.Context, req *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, uplink.CallTimeout)
	defer cancel()
	for try := 0; ; try++ {
		s, err := f.up.Get(ctx)
		if err != nil {
			return nil, err
		}
		call, cancel := ctx, context.CancelFunc(func() {})
		if try == 0 && f.up.Several() {
			call, cancel = context.WithTimeout(ctx, f.bounds.another)
		}
		resp, err := controlpb.NewDirectoryClient(s.Conn()).Resolve(call, req)
		// Not by call.Err(): the broker counts the same time, and its end of the
		// stream may come before this side's clock is up.
		silent := errors.Is(control.FromStatus(err), overlay.ErrTimeout) && ctx.Err() == nil
		cancel()
		if err == nil {
			return resp, nil
		}
		if silent && f.up.Doubt(s) {
			f.log.Warn("a broker does not answer; another is asked", "silent", f.up.Addr(s), "after", f.bounds.another.String())
			continue
		}
		if err = f.up.CallError(s, err); try > 0 || f.up.Current() == s || !uplink.IsAway(err) {
			return nil, err
		}
	}
}
