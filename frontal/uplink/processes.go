package uplink

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Chunk is how many processes are registered at a broker, or names published, before what it refused
// is dealt with. It takes several calls.
const Chunk = 1000

// partBytes bounds the items of one call, so that it fits decode.MaxBytes with the rest.
const partBytes = 48 << 10

// fitting returns how many items of a list fit one call, at least one.
func fitting[M proto.Message](list []M) (n int) {
	for size := 0; n < len(list); n++ {
		if size += proto.Size(list[n]) + 4; size > partBytes { // and a tag with a length
			break
		}
	}
	return max(n, 1)
}

// Granted is called with the principal of a process, as the broker read it in the process's grant.
type Granted func(overlay.AccessPoint, overlay.Principal)

// RegisterAt registers points at one broker and returns one error for each, nil if it was accepted.
func (u *Set) RegisterAt(ctx context.Context, s *control.Session, points []overlay.AccessPoint, granted Granted) ([]error, error) {
	req := &controlpb.RegisterRequest{}
	for _, p := range points {
		req.Points = append(req.Points, control.RegistrationToPB(p))
	}
	var faults []error
	for rest := req.Points; len(rest) > 0; rest = rest[len(req.Points):] {
		req.Points = rest[:fitting(rest)]
		some, err := u.registerAt(ctx, s, points[len(faults):][:len(req.Points)], req, granted)
		if err != nil {
			return nil, err
		}
		faults = append(faults, some...)
	}
	return faults, nil
}

// registerAt is RegisterAt by one call.
func (u *Set) registerAt(ctx context.Context, s *control.Session, points []overlay.AccessPoint, req *controlpb.RegisterRequest, granted Granted) ([]error, error) {
	call, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	resp, err := controlpb.NewDirectoryClient(s.Conn()).Register(call, req)
	if err != nil {
		return nil, u.CallError(s, err)
	}
	faults := make([]error, len(points))
	switch len(resp.Faults) {
	case 0:
		if err := u.readGranted(points, resp.Principals, granted); err != nil {
			return nil, err
		}
	case len(points):
		for i, fault := range resp.Faults {
			faults[i] = control.FaultErr(fault)
		}
	default: // some were refused; separate calls show which
		for i := range points {
			one, err := u.RegisterAt(ctx, s, points[i:i+1], granted)
			if err != nil {
				return nil, err
			}
			faults[i] = one[0]
		}
	}
	return faults, nil
}

// readGranted passes on what the broker read in the grants of processes.
func (u *Set) readGranted(points []overlay.AccessPoint, principals []*controlpb.Principal, granted Granted) error {
	if len(principals) == 0 {
		return nil
	}
	if len(principals) != len(points) {
		return fmt.Errorf("%s: the broker's answer: %w: %d principals of %d processes", u.who, wire.ErrMalformed, len(principals), len(points))
	}
	for i, m := range principals {
		p, err := control.PrincipalFromPB(m)
		if err != nil {
			return fmt.Errorf("%s: the broker's answer: %w: %w", u.who, wire.ErrMalformed, err)
		}
		granted(points[i], p)
	}
	return nil
}

// Register registers points at every broker that has a session, and returns one error for each: one
// broker's refusal is enough, and then the process is withdrawn at the others.
func (u *Set) Register(ctx context.Context, points []overlay.AccessPoint, granted Granted) ([]error, error) {
	var mu sync.Mutex
	faults := make([]error, len(points))
	err := u.OnEach(func(s *control.Session) error {
		some, err := u.RegisterAt(ctx, s, points, granted)
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
	if err != nil || len(refused) == 0 || len(u.All) == 1 {
		return faults, err
	}
	return faults, u.Withdraw(ctx, Withdrawals(refused))
}

// Withdraw withdraws processes at every broker that has a session. For the others it is not
// necessary: the next session registers only the remaining ones.
func (u *Set) Withdraw(ctx context.Context, gone []*controlpb.Withdrawal) error {
	return u.OnEach(func(s *control.Session) error { return u.WithdrawAt(ctx, s, gone) })
}

// Withdrawals are those of points for which no cause is given.
func Withdrawals(points []overlay.AccessPoint) (gone []*controlpb.Withdrawal) {
	for _, p := range points {
		gone = append(gone, &controlpb.Withdrawal{Process: control.ProcessToPB(p.Process), Generation: uint64(p.Generation)})
	}
	return gone
}

// WithdrawAt withdraws processes at one broker.
func (u *Set) WithdrawAt(ctx context.Context, s *control.Session, gone []*controlpb.Withdrawal) error {
	for rest := gone; len(rest) > 0; rest = rest[fitting(rest):] {
		req := &controlpb.WithdrawRequest{Processes: rest[:fitting(rest)]}
		call, cancel := context.WithTimeout(ctx, CallTimeout)
		_, err := controlpb.NewDirectoryClient(s.Conn()).Withdraw(call, req)
		cancel()
		if err != nil {
			return u.CallError(s, err)
		}
	}
	return nil
}
