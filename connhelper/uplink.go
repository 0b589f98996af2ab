package connhelper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// frontal is one session with the site's frontal and what was received on it.
type frontal struct {
	session *control.Session
	profile overlay.SiteProfile
	data    string         // the frontal's data port inside the site
	local   netip.AddrPort // this node's data port
	public  netip.AddrPort
	public6 netip.AddrPort

	networks []netip.Prefix // that the gateway and this node are in
}

func (f *frontal) directory() controlpb.DirectoryClient {
	return controlpb.NewDirectoryClient(f.session.Conn())
}

// uplink is a node's way to its frontal: it holds the current session, lets dials wait for one, and
// makes the calls that come and go with processes.
type uplink struct {
	node  overlay.NodeID
	addr  string // of the frontal, for errors
	log   *slog.Logger
	calls chan struct{} // one token for each pending call of callBriefly

	mu      sync.Mutex // guards the fields below; never held while calling
	current *frontal
	changed chan struct{} // closed and replaced at every change
	lost    time.Time     // when the last session ended
	why     error         // why there is none; nil: the first attempt has not ended
}

func newUplink(node overlay.NodeID, addr string, log *slog.Logger) *uplink {
	return &uplink{
		node: node, addr: addr, log: log, calls: make(chan struct{}, maxBrief),
		changed: make(chan struct{}), lost: time.Now(),
	}
}

func (u *uplink) set(to *frontal) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.current = to
	close(u.changed)
	u.changed = make(chan struct{})
}

// clear removes from, unless another session has replaced it.
func (u *uplink) clear(from *frontal) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.current == from {
		u.current, u.lost = nil, time.Now()
	}
}

// down records why there is no session.
func (u *uplink) down(why error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.why = why
}

// noSession is the error while there is no session.
func (u *uplink) noSession() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	why := "is isthmus-frontal running?"
	if u.why != nil {
		why = strings.TrimPrefix(u.why.Error(), fmt.Sprintf("%v at %s: ", control.RoleFrontal, u.addr))
	}
	return fmt.Errorf("%w: helper %v has had no session with its frontal at %s since %s: %s",
		overlay.ErrNoSession, u.node, u.addr, u.lost.Format(time.TimeOnly), why)
}

func (u *uplink) currentFrontal() (*frontal, <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.current, u.changed
}

// frontal returns the current session, or waits for the next if there is none.
func (u *uplink) frontal(ctx context.Context) (*frontal, error) {
	for {
		f, changed := u.currentFrontal()
		if f != nil {
			return f, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, ctx.Err()
			}
			return nil, u.noSession()
		}
	}
}

// register registers one process with the frontal.
func (u *uplink) register(ctx context.Context, f *frontal, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	point := overlay.AccessPoint{Process: p.name, Generation: p.generation, Node: u.node, Local: f.local, Public: f.public, Public6: f.public6, Principal: p.principal, Grant: p.grant, Proof: p.proof}
	var r *controlpb.RegisterResponse
	err := u.callBriefly(ctx, func() (err error) {
		r, err = f.directory().Register(ctx, &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{control.RegistrationToPB(point)}})
		return control.FromStatus(err)
	})
	if err != nil {
		return err
	}
	if len(r.Faults) > 0 {
		return control.FaultErr(r.Faults[0])
	}
	p.registeredOn.Store(f)
	return nil
}

// frontalFor returns the current session after p is registered on it: a frontal does nothing for a
// process that it does not know, and right after a restart of either a dial may be faster than
// enter.
func (u *uplink) frontalFor(ctx context.Context, p *process) (*frontal, error) {
	f, err := u.frontal(ctx)
	if err != nil || p.registeredOn.Load() == f {
		return f, err
	}
	return f, u.register(ctx, f, p)
}

// withdraw notifies the frontal that a process is gone. If there is no session now, the
// registration ends with its lease.
func (u *uplink) withdraw(ctx context.Context, p *process) {
	f, _ := u.currentFrontal()
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	err := u.callBriefly(ctx, func() error {
		_, err := f.directory().Withdraw(ctx, &controlpb.WithdrawRequest{Processes: []*controlpb.Withdrawal{
			{Process: control.ProcessToPB(p.name), Generation: uint64(p.generation), Died: !p.left.Load()},
		}})
		return control.FromStatus(err)
	})
	if err != nil && ctx.Err() == nil {
		u.log.Warn("cannot withdraw", "process", p.name.String(), "error", err)
	}
}

// maxBrief bounds the calls to the frontal that come and go with processes. Together with those
// that max_open bounds they stay below what a frontal accepts of one node (limits.peer_calls): it
// ends the session of a node that far exceeds that, and hundreds of processes may end at a time.
const maxBrief = 128

// callBriefly makes a call to the frontal when the bound allows it.
func (u *uplink) callBriefly(ctx context.Context, call func() error) error {
	select {
	case u.calls <- struct{}{}:
		defer func() { <-u.calls }()
		return call()
	case <-ctx.Done():
		return fmt.Errorf("%w: %d calls to the frontal are not answered yet", overlay.ErrTimeout, maxBrief)
	}
}

// renewed gets a new certificate from the frontal, which asks the broker.
func (u *uplink) renewed(ctx context.Context, chain [][]byte) ([][]byte, error) {
	f, err := u.frontal(ctx)
	if err != nil {
		return nil, err
	}
	return f.session.Renew(ctx, chain)
}
