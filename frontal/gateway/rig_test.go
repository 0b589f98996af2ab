package gateway

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/directory"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A rig is the gateway of sitea with both its ports on the loopback, and the helper of node a1, where rank
// 0 runs.
type rig struct {
	*Gateway
	t      *testing.T
	helper net.Listener
	log    *log

	mapped map[string]string // where addresses of the wide world lead; set before they are dialled
}

// log is what was logged. Safe for concurrent use.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// settingsOf are those of a rig, which a test may change.
type settingsOf struct {
	Limits
	Bounds
	rule    netrule.Rule
	profile overlay.SiteProfile
}

func newRig(t *testing.T, change func(*settingsOf)) *rig {
	t.Helper()
	set := settingsOf{
		Limits:  Limits{Links: 100, Pending: 100, HalfOpen: 100},
		Bounds:  Bounds{Intro: patience, Carry: patience, Meet: patience, Refuse: patience},
		profile: overlay.SiteProfile{GatewayOnly: true},
	}
	if change != nil {
		change(&set)
	}
	r := &rig{t: t, helper: testkit.Listen(t), log: &log{}, mapped: map[string]string{}}
	logger := slog.New(slog.NewTextHandler(r.log, nil))
	limiter, err := ratelimit.New(quota.Rules{}, "", logger)
	if err != nil {
		t.Fatal(err)
	}
	life, cancel := context.WithCancel(context.Background())
	work := new(sync.WaitGroup)
	r.Gateway = New(Options{
		Site: "sitea", Who: "frontal sitea", Log: logger, Limits: set.Limits, Quota: limiter,
		Settings: func() Settings { return Settings{Rule: set.rule, Dial: patience} },
		Profile:  func() overlay.SiteProfile { return set.profile },
		Registry: directory.NewRegistry("sitea", time.Minute, 100, 100), Resolver: directory.NewResolver(life, work, "frontal sitea", "sitea", nil, 100, time.Minute),
		Life: life, Open: life, Work: work,
	})
	r.Gateway.Bounds = set.Bounds
	r.PassOn = func(*net.TCPConn, []byte) error { return overlay.ErrUnknownProcess } // there is no predecessor
	outward := r.Dial
	r.Dial = func(ctx context.Context, addr string) (*net.TCPConn, error) { return outward(ctx, r.mapped[addr]) }
	r.register(0, r.helper.Addr().(*net.TCPAddr).AddrPort())
	for at, serve := range map[*netip.AddrPort]func(*net.TCPListener) error{&r.DataAddr: r.ServeNodes, &r.PublicAddr: r.ServeOutside} {
		ln := testkit.Listen(t)
		*at = ln.Addr().(*net.TCPAddr).AddrPort()
		work.Go(func() {
			if err := serve(ln); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); work.Wait() })
	return r
}

// register has a rank at node a1, whose helper listens at an address, or nowhere.
func (r *rig) register(rank uint32, local netip.AddrPort) {
	r.t.Helper()
	if err := r.registry.Register(overlay.AccessPoint{Process: proc(rank), Generation: 1, Node: a1.Node(), Local: local}, time.Now()); err != nil {
		r.t.Fatal(err)
	}
}

var a1 = control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "a1"}

const farAway = "203.0.113.7:443"

func carryRequest(addrs ...string) *controlpb.CarryRequest {
	return &controlpb.CarryRequest{Addresses: addrs, Asker: control.ProcessToPB(proc(0)), Target: control.ProcessToPB(proc(9))}
}

// carryID has an address dialled and returns the intro that the node shows.
func (r *rig) carryID(addrs ...string) *wire.Intro {
	r.t.Helper()
	resp, err := r.Carry(r.t.Context(), a1, carryRequest(addrs...))
	if err != nil {
		r.t.Fatal(err)
	}
	return &wire.Intro{Kind: wire.IntroCarry, ID: wire.ID(resp.CarryId), Job: job}
}

// far has an address of the wide world lead to a listener, and be allowed.
func (r *rig) far(addr string, ln net.Listener) {
	r.mapped[addr] = ln.Addr().String()
	r.Allow(addr)
}

// accepted returns the next connection to a listener.
func (r *rig) accepted(ln net.Listener) net.Conn {
	r.t.Helper()
	ln.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	conn, err := ln.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}
