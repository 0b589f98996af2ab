//go:build system

package punch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The gateways in groups that behave alike in hole punching.
var (
	public   = []string{"open", "syn-drop", "syn-reset", "nat-fullcone", "nat-1to1"} // datagrams from any host get in, once there is a mapping
	filtered = []string{
		"stateful", "stateful-reject", "stateful-strict", "stateful-strict-new", "stateful-noloose",
		"port-range", "nat", "nat-answers", "nat-random",
	}
	symmetric = []string{"nat-symmetric"}
	silenced  = []string{"no-udp", "egress-443", "http-proxy"}
)

// punchable reports whether two gateways allow hole punching.
func punchable(a, b string) bool {
	if slices.Contains(silenced, a) || slices.Contains(silenced, b) {
		return false
	}
	// A symmetric NAT's port is not the one that the STUN servers saw, so its peer must accept a
	// datagram from any port.
	if slices.Contains(symmetric, a) {
		return slices.Contains(public, b)
	}
	return !slices.Contains(symmetric, b) || slices.Contains(public, a)
}

// testLab is a lab with two sites of each preset, "PRESET-a" and "PRESET-b", and
// two STUN servers.
type testLab struct {
	*lab.Lab
	stun []netip.AddrPort
}

func labUp(t testing.TB, delay time.Duration, presets ...string) *testLab {
	t.Helper()
	if refused != nil {
		t.Fatal(refused)
	}
	spec := lab.Spec{Sites: []lab.Site{{Name: "world", Preset: lab.Public, Nodes: lab.Nodes(2)}}}
	spec.WAN.Default.Delay = delay
	for _, p := range presets {
		for _, side := range []string{"-a", "-b"} {
			spec.Sites = append(spec.Sites, lab.Site{Name: p + side, Preset: p, Nodes: lab.Nodes(1)})
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	up, err := lab.Up(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := up.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &testLab{Lab: up}
	for _, name := range []string{"world/n1", "world/n2"} {
		h := up.Host(name)
		pc, err := h.ListenPacket("udp", netip.AddrPortFrom(h.Addr(), 3478).String())
		if err != nil {
			t.Fatal(err)
		}
		l.stun = append(l.stun, stunOn(t, pc))
	}
	return l
}

// attempt is New on the node of a site.
func (l *testLab) attempt(site string, cfg Config) (*Attempt, error) {
	h := l.Host(site + "/n1")
	pc, err := h.ListenPacket("udp", netip.AddrPortFrom(h.Addr(), 0).String())
	if err != nil {
		return nil, err
	}
	cfg.Socket, cfg.STUN = pc.(*net.UDPConn), l.stun
	a, err := New(cfg)
	if err != nil {
		pc.Close()
	}
	return a, err
}

// punch connects two sites as a broker would: each end's description takes delay to the other, and
// a becomes the controlling end. The Attempts are closed.
func (l *testLab) punch(ctx context.Context, a, b string, cfg Config, delay time.Duration) (ca, cb *Conn, err error) {
	var ends [2]*Attempt
	var descriptions [2][]byte
	var errs [2]error
	var both sync.WaitGroup
	for i, site := range []string{a, b} {
		cfg.Controlling = i == 0
		if ends[i], errs[i] = l.attempt(site, cfg); errs[i] != nil {
			break
		}
		defer ends[i].Close()
		both.Go(func() { descriptions[i], errs[i] = ends[i].Describe(ctx) })
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, nil, err
	}
	carried := time.NewTimer(delay) // both descriptions travel at the same time
	defer carried.Stop()
	select {
	case <-carried.C:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	ca, cb, errs[0], errs[1] = connectBoth(ctx, ends[0], ends[1], descriptions[1], descriptions[0])
	if err := errors.Join(errs[:]...); err != nil {
		for _, c := range []*Conn{ca, cb} {
			if c != nil {
				c.Abort()
			}
		}
		return nil, nil, err
	}
	return ca, cb, nil
}

// wanted returns the expected result of one pair of the matrix.
func wanted(ok bool) string {
	if ok {
		return "connected"
	}
	return "not connected"
}

// parallel is how many pairs of the matrix run at once.
const parallel = 16

// Every ordered pair of gateways, 10 ms apart, the first one controlling: exactly those connect
// that can, and data passes both ways.
func TestMatrix(t *testing.T) {
	presets := slices.Concat(public, filtered, symmetric, silenced)
	const oneWay = 10 * time.Millisecond
	l := labUp(t, oneWay, presets...)
	slots := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for _, a := range presets {
		for _, b := range presets {
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				err, want := l.pair(a, b, oneWay), punchable(a, b)
				if (err == nil) != want {
					t.Errorf("%s with %s: want %s, got %v", a, b, wanted(want), err)
				}
				if err != nil && !want && !errors.Is(err, overlay.ErrTimeout) && !errors.Is(err, overlay.ErrUnreachable) {
					t.Errorf("%s with %s fails without a class: %v", a, b, err)
				}
			})
		}
	}
	all.Wait()
	for _, c := range l.Traffic() {
		// Sites -a communicate with sites -b and both with the STUN servers.
		if c.Packets > 0 && (strings.HasSuffix(c.From, "-a") && strings.HasSuffix(c.To, "-a") ||
			strings.HasSuffix(c.From, "-b") && strings.HasSuffix(c.To, "-b")) {
			t.Errorf("%d packets went from %s to %s, which have nothing to do with each other", c.Packets, c.From, c.To)
		}
	}
}

// pair connects site a-a with site b-b and moves data.
func (l *testLab) pair(a, b string, oneWay time.Duration) error {
	cfg := Config{
		// Where a gateway answers by itself, order matters; see Config.LowTTL.
		LowTTL:        a == "nat-answers" || b == "nat-answers",
		Timeout:       1500 * time.Millisecond, // pairs that connect need a tenth of it
		GatherTimeout: time.Second,
	}
	if punchable(a, b) { // a loaded machine is no reason to fail
		cfg.Timeout, cfg.GatherTimeout = patience, patience
	}
	ca, cb, err := l.punch(context.Background(), a+"-a", b+"-b", cfg, oneWay)
	if err != nil {
		return err
	}
	defer cb.Abort()
	defer ca.Abort()
	if !ca.GSO() || !cb.GSO() {
		return errors.New("connected without GSO")
	}
	return exchange(ca, cb, 100_000)
}

// A sniffer sees all IPv4 packets that a host sends.
type sniffer struct{ fd int }

func (l *testLab) sniff(t *testing.T, host string) sniffer {
	t.Helper()
	s := sniffer{}
	err := l.Host(host).Do(func() (err error) {
		s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.ETH_P_ALL<<8) // in network byte order
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s.fd) })
	return s
}

// destinations returns where packets went, and how many.
func (s sniffer) destinations(t *testing.T) map[netip.Addr]int {
	t.Helper()
	to := make(map[netip.Addr]int)
	buf := make([]byte, 64<<10)
	for {
		n, from, err := unix.Recvfrom(s.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			return to
		}
		if err != nil {
			t.Fatal(err)
		}
		if ll := from.(*unix.SockaddrLinklayer); ll.Pkttype == unix.PACKET_OUTGOING && n >= 20 && buf[0]>>4 == 4 {
			to[netip.AddrFrom4([4]byte(buf[16:20]))]++
		}
	}
}

// As seen at the sending hosts, packets go only to the STUN servers and the peer's public address;
// not to the private address that it named, either, which may belong to another host here.
func TestNoThirdParty(t *testing.T) {
	l := labUp(t, time.Millisecond, "nat", "nat-symmetric", "open")
	for _, p := range [][2]string{{"nat", "nat"}, {"nat-symmetric", "open"}, {"nat", "nat-symmetric"}} {
		a, b := p[0]+"-a", p[1]+"-b"
		sniffers := map[string]sniffer{a: l.sniff(t, a+"/n1"), b: l.sniff(t, b+"/n1")}
		cfg := Config{LowTTL: true, Timeout: patience}
		if !punchable(p[0], p[1]) {
			cfg.Timeout = 300 * time.Millisecond
		}
		ca, cb, err := l.punch(context.Background(), a, b, cfg, 0)
		if err == nil {
			err = exchange(ca, cb, 1000)
			ca.Abort()
			cb.Abort()
		}
		if (err == nil) != punchable(p[0], p[1]) {
			t.Errorf("%v: %v", p, err)
		}
		peer := map[string]netip.Addr{a: l.inWorld(b), b: l.inWorld(a)}
		for site, s := range sniffers {
			to := s.destinations(t)
			if to[l.stun[0].Addr()] == 0 || to[l.stun[1].Addr()] == 0 || to[peer[site]] == 0 {
				t.Errorf("%s of %v sent to %v: STUN servers %v and peer %v should be among these", site, p, to, l.stun, peer[site])
			}
			delete(to, l.stun[0].Addr())
			delete(to, l.stun[1].Addr())
			delete(to, peer[site])
			if len(to) > 0 {
				t.Errorf("%s of %v sent to third parties: %v", site, p, to)
			}
		}
	}
}

// inWorld returns the public address of the node of a site.
func (l *testLab) inWorld(site string) netip.Addr {
	if strings.HasPrefix(site, "nat") {
		return l.Host(site + "/gw").WANAddr()
	}
	return l.Host(site + "/n1").Addr()
}

// A gateway that lets in unsolicited datagrams for itself records them, and then gives its own side
// another port. With LowTTL that does not happen, however unequal the starts (within HoldOff);
// without, it does when the other end is first.
func TestLowTTL(t *testing.T) {
	l := labUp(t, 0, "nat", "nat-answers", "stateful-strict")
	for _, p := range [][2]string{
		{"nat", "nat-answers"}, {"stateful-strict", "nat-answers"}, {"nat-answers", "nat-answers"}, {"nat-answers", "nat"},
	} {
		a, b := p[0]+"-a", p[1]+"-b"
		cfg := Config{LowTTL: true, HoldOff: 300 * time.Millisecond, Timeout: patience, Controlling: true}
		ends := l.pairOf(t, a, b, cfg)
		late := func() { // b starts in the middle of a's hold-off
			<-time.After(cfg.HoldOff / 6)
		}
		ca, cb, errA, errB := ends.connect(late)
		if err := errors.Join(errA, errB); err != nil {
			t.Errorf("%v with LowTTL: %v", p, err)
			continue
		}
		if err := exchange(ca, cb, 10_000); err != nil {
			t.Errorf("%v with LowTTL: %v", p, err)
		}
		closeBoth(t, ca, cb)
	}

	ends := l.pairOf(t, "nat-a", "nat-answers-b", Config{Timeout: time.Second, Controlling: true})
	before := l.packets("nat-a", "nat-answers-b")
	arrived := func() {
		for end := time.Now().Add(patience); l.packets("nat-a", "nat-answers-b") == before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no packet has gone")
			}
		}
	}
	if _, _, errA, errB := ends.connect(arrived); errA == nil || errB == nil {
		t.Error("nat with nat-answers connect without LowTTL although the datagrams came in the wrong order: the lab's preset does not behave as it should")
	}
}

// packets returns how many packets have gone from one site to another.
func (l *testLab) packets(from, to string) uint64 {
	for _, c := range l.Traffic() {
		if c.From == from && c.To == to {
			return c.Packets
		}
	}
	return 0
}

// ends are two attempts that have each other's description.
type ends struct {
	attempts     [2]*Attempt
	descriptions [2][]byte
}

func (l *testLab) pairOf(t *testing.T, a, b string, cfg Config) (e ends) {
	t.Helper()
	for i, site := range []string{a, b} {
		cfg.Controlling = i == 0
		end, err := l.attempt(site, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end.Close() })
		e.attempts[i], e.descriptions[i] = end, describe(t, end)
	}
	return e
}

// connect connects the first end at once and the second after wait.
func (e ends) connect(wait func()) (ca, cb *Conn, errA, errB error) {
	var first sync.WaitGroup
	first.Go(func() { ca, errA = e.attempts[0].Connect(context.Background(), e.descriptions[1]) })
	wait()
	cb, errB = e.attempts[1].Connect(context.Background(), e.descriptions[0])
	first.Wait()
	return ca, cb, errA, errB
}
