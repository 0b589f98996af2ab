//go:build system

package connhelper

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/internal/nat/reflector"
	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
	"github.com/isthmus-grid/isthmus/internal/nat/stunserver"
	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// reflectorFrontal is a frontal whose broker is a reflector on loopback.
type reflectorFrontal struct {
	*fakeFrontal
	tcp, stun string
	hold      chan struct{} // Reflectors waits until it is closed
	point     *reflector.Point
}

func (f reflectorFrontal) Reflectors(ctx context.Context, _ *controlpb.ReflectorsRequest) (*controlpb.ReflectorsResponse, error) {
	select {
	case <-f.hold:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &controlpb.ReflectorsResponse{Tcp: []string{f.tcp}, Stun: []string{f.stun}}, nil
}

func (f reflectorFrontal) CallBack(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	target, err := reflector.ParseTarget(req, true)
	if err != nil {
		return nil, control.Status(err)
	}
	return f.point.CallBack(ctx, target), nil
}

// A helper measures for its frontal, one measurement at a time.
func TestMeasure(t *testing.T) {
	f := reflectorFrontal{fakeFrontal: newFakeFrontal(t, overlay.SiteProfile{}), hold: make(chan struct{}), point: new(reflector.Point)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	observer := reflector.NewObserver("broker main", nil, 0, nil)
	main, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { observer.Serve(ctx, main) })
	second, err := reflector.Listen(ctx, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	*f.point = reflector.Point{Observer: observer, Sockets: second}
	wg.Go(func() { second.Serve(ctx, new(stunserver.Server), observer) })
	f.tcp, f.stun = main.Addr().String(), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), second.Port()).String()

	creds, err := f.ca.Credentials(control.Identity{Role: control.RoleFrontal, Site: "sitea"})
	if err != nil {
		t.Fatal(err)
	}
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), func(r grpc.ServiceRegistrar) {
		controlpb.RegisterDirectoryServer(r, f)
		controlpb.RegisterNodesServer(r, f)
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sessions := make(chan *control.Session, 1)
	f.addr = ln.Addr().String()
	wg.Go(func() {
		defer e.Close()
		e.Serve(ctx, ln, nil, func(_ context.Context, s *control.Session) { sessions <- s })
	})
	f.helper("a1")
	var session *control.Session
	select {
	case session = <-sessions:
	case <-ctx.Done():
		t.Fatal("the helper does not come")
	}
	target := controlpb.NewTargetClient(session.Conn())

	type outcome struct {
		m   *controlpb.Measurement
		err error
	}
	both := make(chan outcome, 2)
	for range 2 {
		wg.Go(func() {
			m, err := target.Measure(ctx, &controlpb.MeasureRequest{})
			both <- outcome{m, err}
		})
	}
	if second := <-both; !errors.Is(control.FromStatus(second.err), overlay.ErrOverloaded) { // the first is held
		t.Errorf("two at once: %v, %v", second.m, second.err)
	}
	close(f.hold)
	first := <-both
	if first.err != nil {
		t.Fatal(control.FromStatus(first.err))
	}
	m, err := probe.FromPB(first.m)
	if err != nil || m.Node != "a1" || time.Since(m.Time).Abs() > time.Hour {
		t.Errorf("%+v, %v", m, err)
	}
	for _, want := range []probe.Finding{
		{Field: probe.Inbound, Value: "open"}, {Field: probe.NATMapping, Value: "none"},
		{Field: probe.Egress, Value: "any"}, {Field: probe.UDP, Value: "true"},
		{Field: probe.UDPRate, Value: "none"}, {Field: probe.MTU, Value: "none"},
		{Field: probe.Privileged, Value: strconv.FormatBool(traverse.Available() == nil)},
		{Field: probe.HighPortsOnly, Value: strconv.FormatBool(simopen.MayBind443() != nil)},
	} {
		wantFinding(t, m, want.Field, want.Value)
	}
	idle, err := target.Measure(ctx, &controlpb.MeasureRequest{IdleS: []uint32{1}})
	if err != nil {
		t.Fatal(control.FromStatus(err))
	}
	if m, err = probe.FromPB(idle); err != nil || len(m.Findings) != 2 {
		t.Errorf("idle: %+v, %v", m, err)
	}
	wantFinding(t, m, probe.IdleTCP, "1+")
	wantFinding(t, m, probe.IdleUDP, "1+")
	if _, err = target.Measure(ctx, &controlpb.MeasureRequest{IdleS: []uint32{5, 1}}); !errors.Is(control.FromStatus(err), wire.ErrMalformed) {
		t.Errorf("idle times that fall: %v", err)
	}
	_, err = target.Measure(ctx, &controlpb.MeasureRequest{LastPort: 1 << 16})
	if err = control.FromStatus(err); err == nil || err.Error() != "helper sitea/a1: measuring the site: malformed frame: ports 0-65536" {
		t.Errorf("impossible ports: %v", err)
	}
}

// wantFinding checks the value of one field.
func wantFinding(t *testing.T, m probe.Measured, field, value string) {
	t.Helper()
	for _, f := range m.Findings {
		if f.Field == field && f.Value == value {
			return
		}
	}
	t.Errorf("no finding %s=%s in %+v", field, value, m.Findings)
}
