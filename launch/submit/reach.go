package submit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	helloTime = 4 * time.Second  // for a helper to answer at all
	listTime  = 20 * time.Second // for its list of hosts, which it gets from its frontal
)

// NoHelper is the error of a helper that does not answer on its socket.
type NoHelper struct {
	Socket string
	Err    error // of the dial, or ErrSilent or ErrClosing
}

func (e *NoHelper) Error() string { return fmt.Sprintf("helper at %s: %v", e.Socket, e.Err) }

// Unwrap returns the reason.
func (e *NoHelper) Unwrap() error { return e.Err }

// Reasons of NoHelper.
var (
	ErrSilent  = errors.New("it accepts connections and does not answer")
	ErrClosing = errors.New("it closes connections without an answer")
)

// NoList is the error of a helper that answers and has no list of hosts.
type NoList struct{ Err error }

func (e *NoList) Error() string { return fmt.Sprintf("list of hosts: %v", e.Err) }

// Unwrap returns the reason.
func (e *NoList) Unwrap() error { return e.Err }

// Stale is the error of a job that finds too few hosts while the list of hosts is not current.
type Stale struct {
	Why string // the list is not current
	Err error
}

func (e *Stale) Error() string {
	return fmt.Sprintf("%v; the list of hosts may lack some: %s", e.Err, e.Why)
}

// Unwrap returns what the job lacks.
func (e *Stale) Unwrap() error { return e.Err }

// staleIf returns err, with what the list of hosts lacked if that may be the reason.
func staleIf(why string, err error) error {
	_, few := errors.AsType[*TooFew](err)
	_, short := errors.AsType[*allocate.Shortage](err)
	if why == "" || !few && !short {
		return err
	}
	return &Stale{why, err}
}

// reach waits until the helper answers on its socket.
func reach(ctx context.Context, conn *grpc.ClientConn, helper string) error {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	if conn.GetState() == connectivity.Ready {
		return nil
	}
	first, err := (&net.Dialer{}).DialContext(ctx, "unix", helper+nodeservice.DoorSuffix) // for its error, of which gRPC keeps only the text
	if err != nil {
		return &NoHelper{helper, err}
	}
	first.Close()
	conn.Connect()
	for {
		switch state := conn.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure:
			return &NoHelper{helper, ErrClosing}
		default:
			if !conn.WaitForStateChange(ctx, state) {
				return &NoHelper{helper, ErrSilent}
			}
		}
	}
}

// List returns the helper's list of hosts, the nearest first. Its errors are *NoHelper and *NoList.
func (g *Grid) List(ctx context.Context) (*nodepb.HostsResponse, error) {
	slow := time.AfterFunc(slowTime, func() {
		if g.Slow != nil {
			g.Slow(nil)
		}
	})
	defer slow.Stop()
	if g.reach != nil {
		if err := g.reach(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	list, err := nodepb.NewSubmittersClient(g.conn).Hosts(ctx, &nodepb.HostsRequest{})
	if err = control.FromStatus(err); errors.Is(err, overlay.ErrTimeout) && ctx.Err() != nil {
		err = fmt.Errorf("%w: the helper has none, as its frontal has not answered it within %v, or that the broker", overlay.ErrTimeout, listTime)
	}
	if err != nil {
		return nil, &NoList{err}
	}
	return list, nil
}
