package proxy

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/wire"
)

// An observe frame in place of a ticket is answered with its source address; no link resources are
// held for it.
func TestObserve(t *testing.T) {
	r := start(t, Settings{})
	c := r.dial(wire.Append(nil, &wire.Observe{}))
	for range 2 {
		f, err := wire.Read(c)
		o, ok := f.(*wire.Observed)
		if err != nil || !ok || o.From.String() != c.LocalAddr().String() {
			t.Fatalf("%+v, %v; the question came from %v", f, err, c.LocalAddr())
		}
		c.Write(wire.Append(nil, &wire.Observe{}))
	}
	st := r.until("two answers", func(st Status) bool { return st.Observer.Answered >= 2 }) // counted once they are sent
	if st.Links != 0 || st.Handshakes != 0 || len(st.Refused) != 0 {
		t.Errorf("status %+v", st)
	}
	other := r.dial(wire.Append(nil, &wire.Proof{}))
	if f, err := wire.Read(other); err != nil || f.Type() != wire.TypeRefuse {
		t.Errorf("something else: %+v, %v", f, err)
	}
}

// Only the broker can make the proxy call back.
func TestCallBack(t *testing.T) {
	grid, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBroker{offers: make(chan *controlpb.OfferRequest, 100), peers: make(chan *control.Session)}
	b.serveAt(t, grid, ln)
	startDaemon(t, grid, control.Identity{Role: control.RoleProxy, Name: "p1"}, ln.Addr().String())
	session := testkit.Receive(t, "the session", b.peers)
	offer := testkit.Receive(t, "the offer", b.offers)

	called, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer called.Close()
	wg.Go(func() {
		c, err := called.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(30 * time.Second))
		if b, _ := io.ReadAll(c); string(b) != "0123456789abcdef" {
			t.Errorf("sent %q", b)
		}
	})
	broker := controlpb.NewReflectorClient(session.Conn())
	req := &controlpb.CallBackRequest{To: called.Addr().String(), Nonce: []byte("0123456789abcdef")}
	resp, err := broker.CallBack(t.Context(), req)
	if err != nil || resp.Outcome != controlpb.CallBackResponse_CONNECTED {
		called.Close()
		t.Errorf("%v, %v", resp, err)
	}
	req.To = "169.254.169.254:80"
	if _, err = broker.CallBack(t.Context(), req); err == nil || !strings.Contains(control.FromStatus(err).Error(), "it is link-local") {
		t.Errorf("a link-local address: %v", err)
	}

	// The STUN server is at the offered address; its TCP port answers frames.
	c, err := net.Dial("tcp", offer.Stun)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	c.Write(wire.Append(nil, &wire.Observe{}))
	if f, err := wire.Read(c); err != nil || f.Type() != wire.TypeObserved {
		t.Errorf("%+v, %v", f, err)
	}
}

// Without a free port the proxy continues to relay; without a configured one it has no server.
func TestSTUNOff(t *testing.T) {
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	log := new(logBuffer)
	s := New(Settings{Name: "p1"}, slog.New(slog.NewTextHandler(log, nil)))
	var wg sync.WaitGroup
	if sockets := serveSTUN(t.Context(), &wg, netip.MustParseAddrPort(taken.LocalAddr().String()), s); sockets != nil || !strings.Contains(log.String(), "no STUN server") {
		t.Errorf("%v\n%s", sockets, log)
	}
	if sockets := serveSTUN(t.Context(), &wg, netip.AddrPort{}, s); sockets != nil {
		t.Errorf("off, but %v", sockets)
	}
}
