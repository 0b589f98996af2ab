package uplink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// AwaitChunk is the maximum duration of one waiting call to the broker. Longer waits make several
// calls.
const AwaitChunk = 30 * time.Second

// Resolve queries the current broker for the location of processes. If a session dies during the
// call, or is silent while another broker is available, it makes one more attempt: the broker may
// have restarted.
func (u *Set) Resolve(ctx context.Context, req *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
	wait := time.Duration(req.WaitMs) * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, CallTimeout+wait)
	defer cancel()
	for try := 0; ; try++ {
		s, err := u.Get(ctx)
		if err != nil {
			return nil, err
		}
		call, cancel := ctx, context.CancelFunc(func() {})
		if try == 0 && u.HasSpare() {
			call, cancel = context.WithTimeout(ctx, u.Another+wait)
		}
		resp, err := controlpb.NewDirectoryClient(s.Conn()).Resolve(call, req)
		// Not by call.Err(): the broker measures the same time, and may end the stream before this
		// side's clock expires.
		silent := errors.Is(control.FromStatus(err), overlay.ErrTimeout) && ctx.Err() == nil
		cancel()
		if err == nil {
			return resp, nil
		}
		if silent && u.Doubt(s) {
			u.log.Warn("a broker does not answer; trying another", "silent", u.Addr(s), "after", (u.Another + wait).String())
			continue
		}
		if err = u.CallError(s, err); try > 0 || u.Current() == s || !IsAway(err) {
			return nil, err
		}
	}
}

// once makes one call to the current broker.
func once[Q, A any](ctx context.Context, u *Set, req Q, call func(controlpb.DirectoryClient, context.Context, Q, ...grpc.CallOption) (A, error)) (answer A, err error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	s, err := u.Get(ctx)
	if err != nil {
		return answer, err
	}
	answer, err = call(controlpb.NewDirectoryClient(s.Conn()), ctx, req)
	return answer, u.CallError(s, err)
}

// Reflectors queries the current broker for its reflectors and its time.
func (u *Set) Reflectors(ctx context.Context, req *controlpb.ReflectorsRequest) (*controlpb.ReflectorsResponse, error) {
	return once(ctx, u, req, controlpb.DirectoryClient.Reflectors)
}

// CallBack asks the current broker for a call-back.
func (u *Set) CallBack(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	return once(ctx, u, req, controlpb.DirectoryClient.CallBack)
}

// Hosts queries the current broker for the hosts of the grid.
func (u *Set) Hosts(ctx context.Context) ([]offer.Host, error) {
	list, err := once(ctx, u, &controlpb.HostsRequest{}, controlpb.DirectoryClient.Hosts)
	if err != nil {
		return nil, err
	}
	hosts, err := offer.ListFromPB(list)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: the broker's list of hosts: %w", u.who, wire.ErrMalformed, err)
	}
	return hosts, nil
}
