package frontal

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// newRigOfTwo is newRig with a second broker.
func newRigOfTwo(t *testing.T, b bounds) (r *rig, second *fakeBroker) {
	t.Helper()
	r = newRigWith(t, b, nil)
	r.stop()
	second = newFakeBroker(r)
	second.name = "spare"
	cfg := *r.f.config()
	cfg.Broker = append(cfg.Broker, second.addr)
	r.startFrontal(cfg)
	r.bothUp()
	return r, second
}

func (r *rig) bothUp() {
	r.t.Helper()
	r.until("both brokers have sessions", func() bool { return len(r.f.up.Sessions()) == 2 })
}

// TestTwoBrokers: both are told everything, one is asked, and the other when that
// one is gone; who comes back is told all and not asked.
func TestTwoBrokers(t *testing.T) {
	r, second := newRigOfTwo(t, standardBounds)
	first := r.broker
	h := r.helper("a1")
	h.register(1)
	if !first.has(1) || !second.has(1) {
		t.Error("a broker was not told of a process")
	}
	ask := func(rank uint32, calls1, calls2 int) {
		t.Helper()
		if _, err := h.ask(rank, false); err != nil {
			t.Fatal(err)
		}
		if first.calls() != calls1 || second.calls() != calls2 {
			t.Errorf("asked %d and %d times, want %d and %d", first.calls(), second.calls(), calls1, calls2)
		}
	}
	asked := func(want *fakeBroker) {
		t.Helper()
		r.until("the right broker is asked", func() bool { return r.f.up.Addr(r.f.up.Current()) == want.addr })
	}
	if r.f.up.Addr(r.f.up.Current()) == second.addr { // its session came first
		first, second = second, first
	}
	ask(9, 1, 0)

	first.stop()
	ask(8, 1, 1) // at once, whether or not the end of the session has been noticed
	asked(second)
	h.register(2)
	h.register(3)
	if _, err := h.dir.Withdraw(h.ctx(), &controlpb.WithdrawRequest{Processes: []*controlpb.Withdrawal{{Process: control.ProcessToPB(proc(1)), Generation: 1}}}); err != nil {
		t.Error(err)
	}
	first.locked(func() { clear(first.registered) })
	first.start()
	r.bothUp()
	r.until("the broker that is back has all", func() bool { return first.has(2) && first.has(3) })
	if first.has(1) || second.has(1) {
		t.Error("a broker has a process that was withdrawn")
	}
	ask(7, 1, 2) // no reason to change
	asked(second)
	if st := r.f.status(); len(st.Brokers) != 2 || !st.Broker.Asked || st.Broker.Address != second.addr {
		t.Errorf("status %+v, asked %+v", st.Brokers, st.Broker)
	}

	second.stop()
	ask(6, 2, 2)
	first.stop()
	if _, err := h.ask(5, false); !errors.Is(err, overlay.ErrUnreachable) {
		t.Errorf("without brokers: %v", err)
	}
}

// TestBrokersAreTold: each broker is told with the hosts which brokers have sessions, and again when
// one ends or begins.
func TestBrokersAreTold(t *testing.T) {
	r, second := newRigOfTwo(t, standardBounds)
	told := func(b *fakeBroker, want string) {
		t.Helper()
		r.until(b.name+" is told "+want, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.told) == 0 {
				return false
			}
			var got []string
			for _, s := range b.told[len(b.told)-1].Brokers {
				got = append(got, fmt.Sprint(s.Broker, " ", s.Open))
			}
			return strings.Join(got, ", ") == want
		})
	}
	told(r.broker, "main true, spare true")
	told(second, "main true, spare true")
	second.stop()
	told(r.broker, "main true, spare false")
	second.start()
	told(r.broker, "main true, spare true")
	r.broker.stop()
	told(second, "main false, spare true")
}

// TestSilentBroker: a question that is not answered is put to the other broker,
// which is asked from then on.
func TestSilentBroker(t *testing.T) {
	b := standardBounds
	b.another = 20 * time.Millisecond
	r, second := newRigOfTwo(t, b)
	first := r.broker
	if r.f.up.Addr(r.f.up.Current()) == second.addr {
		first, second = second, first
	}
	release := first.hold()
	defer release()
	h := r.helper("a1")
	if _, err := h.ask(8, false); err != nil {
		t.Fatal(err)
	}
	if first.calls() > 1 || second.calls() != 1 { // a busy machine may give the question up before it has left
		t.Errorf("the silent broker was asked %d times, the other %d", first.calls(), second.calls())
	}
	// Whether that one would answer another question within the bound is up to the machine.
	if asked := r.f.up.Addr(r.f.up.Current()); asked != second.addr {
		t.Errorf("the broker at %s is asked from then on, want the one at %s", asked, second.addr)
	}
}

// TestRefusedByOneBroker: what one broker refuses, none has.
func TestRefusedByOneBroker(t *testing.T) {
	r, second := newRigOfTwo(t, standardBounds)
	h := r.helper("a1")
	h.register(1)
	second.names.change(func() { second.names.taken = map[string]bool{"solver": true} })
	if err := h.publish(false, h.name(1, 1, "solver", "p")); !errors.Is(err, overlay.ErrNameTaken) {
		t.Errorf("publishing: %v", err)
	}
	if got := r.broker.names.port("solver"); got != "" {
		t.Errorf("the first broker still has the name, with port %q", got)
	}
	second.locked(func() {
		second.refuse = func(*controlpb.AccessPoint) *controlpb.Fault { return control.Fault(overlay.ErrOverloaded) }
	})
	resp, err := h.dir.Register(h.ctx(), &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{h.point(2, 1)}})
	if err != nil || len(resp.Faults) != 1 {
		t.Errorf("registering: %v, %v", resp, err)
	}
	r.broker.locked(func() {
		if len(r.broker.withdrawn) != 1 || r.broker.withdrawn[0] != 2 {
			t.Errorf("withdrawn at the first broker: %v, want process 2", r.broker.withdrawn)
		}
	})
}

// TestReload: live keys take effect, others do not, and what does not fit
// together with those changes nothing.
func TestReload(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	next := *r.f.config()
	next.Deny = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	next.Profile.Forbidden = []overlay.Technique{overlay.Relay}
	next.Limits.Processes, next.Grace = 1, time.Nanosecond
	apply, err := r.f.reload(next)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.f.config().Deny) > 0 {
		t.Error("looking at settings changes them")
	}
	apply()
	r.until("the broker is told the profile", func() bool {
		r.broker.mu.Lock()
		defer r.broker.mu.Unlock()
		n := len(r.broker.joins)
		return n > 1 && len(r.broker.joins[n-1].Profile.Forbidden) == 1
	})
	r.ends(h.s, "the helper is to enter again and learn it")
	if r.f.up.Current() == nil {
		t.Error("the session with the broker is gone")
	}
	if cfg := r.f.config(); cfg.Grace == next.Grace || len(cfg.Deny) != 1 {
		t.Errorf("grace %v, deny %v", cfg.Grace, cfg.Deny)
	}
	h = r.helper("a2")
	h.register(1)
	resp, err := h.dir.Register(h.ctx(), &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{h.point(2, 1)}})
	if err != nil || len(resp.Faults) != 1 {
		t.Errorf("over limits.processes: %v, %v", resp, err)
	}
	next.Profile.Inbound = Given(overlay.InboundNone) // with the public_listen of before
	if _, err := r.f.reload(next); err == nil {
		t.Error("a profile that does not go with public_listen is taken")
	}
}
