package punch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// silent returns the address of a loopback socket that is not read.
func silent(t *testing.T) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	return addrPort(pc.LocalAddr())
}

// check fails the test unless err has the class and all the words.
func check(t *testing.T, err, class error, words ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("the error is no %q: %v", class, err)
	}
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func TestDescribeFails(t *testing.T) {
	v6 := netip.MustParseAddrPort("[2001:db8::1]:3478")
	for _, c := range []struct {
		name  string
		cfg   Config
		class error
		words []string
	}{
		{"no answer", Config{STUN: []netip.AddrPort{silent(t)}, GatherTimeout: 50 * time.Millisecond},
			overlay.ErrTimeout, []string{"gathering: no STUN server of [127.0.0.1:", "answered within 50ms", "does the firewall let UDP out"}},
		{"no server of the right version", Config{STUN: []netip.AddrPort{v6}}, overlay.ErrUnreachable, []string{"gathering", "IP version"}},
		{"no way from loopback", Config{STUN: []netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:9")}},
			overlay.ErrUnreachable, []string{"gathering: this host cannot send"}},
		{"wildcard without a server", Config{Local: netip.MustParseAddrPort("0.0.0.0:0")}, errors.ErrUnsupported, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := newAttempt(t, c.cfg).Describe(context.Background())
			if errors.Is(c.class, errors.ErrUnsupported) {
				c.class, c.words = err, []string{"gathering: the socket has a wildcard address"}
			}
			check(t, err, c.class, c.words...)
		})
	}
	t.Run("loopback by mistake", func(t *testing.T) {
		a, err := New(Config{Local: netip.MustParseAddrPort("127.0.0.1:0")})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		_, err = a.Describe(context.Background())
		check(t, err, overlay.ErrForbidden, "127.0.0.1 is loopback")
	})
}

// One server that answers is enough; the test does not wait for the other.
func TestDescribeWithOneDeadServer(t *testing.T) {
	stun := []netip.AddrPort{silent(t), loopbackSTUN(t, "udp4", "127.0.0.1:0")}
	a := newAttempt(t, Config{STUN: stun, GatherTimeout: time.Hour})
	if d, err := ParseDescription(describe(t, a)); err != nil || len(d.Candidates) != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestNewFails(t *testing.T) {
	taken := silent(t)
	_, err := New(Config{Local: taken})
	if err == nil || !strings.Contains(err.Error(), "binding a UDP socket") {
		t.Errorf("New on a taken port: %v", err)
	}
}

func TestOutOfOrder(t *testing.T) {
	a := newAttempt(t, Config{})
	if _, err := a.Connect(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("Connect before Describe: %v", err)
	}
	describe(t, a)
	if _, err := a.Describe(context.Background()); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("Describe again: %v", err)
	}
	a.Close()
	if _, err := a.Connect(context.Background(), nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Connect after Close: %v", err)
	}
}

// A peer that never answers, in each role.
func TestSilentPeer(t *testing.T) {
	for _, controlling := range []bool{false, true} {
		a := newAttempt(t, Config{Controlling: controlling, Timeout: 100 * time.Millisecond})
		describe(t, a)
		d := sample()
		d.Controlling, d.Candidates = !controlling, []Candidate{{Host, silent(t)}}
		_, err := a.Connect(context.Background(), d.Append(nil))
		check(t, err, overlay.ErrTimeout, "checks: no pair of addresses answered in", "own: host 127.0.0.1:", "peer's: "+d.Candidates[0].String())
		check(t, err, context.DeadlineExceeded)
	}
}

func TestPeerRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Description)
		class  error
		words  []string
	}{
		{"equal roles", func(d *Description) { d.Controlling = true }, overlay.ErrRefused, []string{"both ends have Controlling true"}},
		{"forbidden addresses", func(d *Description) {
			d.Candidates = []Candidate{{Host, netip.MustParseAddrPort("169.254.169.254:80")}}
		}, overlay.ErrForbidden, []string{"none of the peer's 1 candidates", "link-local"}},
	} {
		a := newAttempt(t, Config{Controlling: true})
		describe(t, a)
		d := sample()
		d.Controlling = false
		c.change(&d)
		_, err := a.Connect(context.Background(), d.Append(nil))
		t.Run(c.name, func(t *testing.T) { check(t, err, c.class, c.words...) })
	}
	a := newAttempt(t, Config{})
	describe(t, a)
	_, err := a.Connect(context.Background(), []byte("rubbish"))
	check(t, err, ErrMalformed, "punch: malformed description")
}

// pair returns two ends on loopback and their descriptions.
func pair(t *testing.T, timeout time.Duration) (a, b *Attempt, da, db []byte) {
	t.Helper()
	a = newAttempt(t, Config{Controlling: true, Timeout: timeout})
	b = newAttempt(t, Config{Timeout: timeout})
	return a, b, describe(t, a), describe(t, b)
}

// forge changes a description on the way from one end to the other.
func forge(t *testing.T, b []byte, change func(*Description)) []byte {
	t.Helper()
	d, err := ParseDescription(b)
	if err != nil {
		t.Fatal(err)
	}
	change(&d)
	return d.Append(nil)
}

func otherFingerprint(d *Description) { d.Fingerprint[0] ^= 1 }

// The dialling end detects at once that the other is not the peer.
func TestWrongFingerprintOfListener(t *testing.T) {
	a, b, da, db := pair(t, patience)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	listener := make(chan error, 1)
	go func() {
		c, err := b.Connect(ctx, da)
		if c != nil {
			c.Abort()
		}
		listener <- err
	}()
	ca, err := a.Connect(context.Background(), forge(t, db, otherFingerprint))
	if ca != nil {
		t.Fatal("connected all the same")
	}
	check(t, err, overlay.ErrForbidden, "QUIC with 127.0.0.1:", "certificate is not the one of its description")
	cancel()
	check(t, <-listener, context.Canceled) // no connection arrived
}

// The listening end refuses, and the dialling end learns it from its first Read.
func TestWrongFingerprintOfDialler(t *testing.T) {
	a, b, da, db := pair(t, patience)
	ca, cb, errA, errB := connectBoth(context.Background(), a, b, db, forge(t, da, otherFingerprint))
	if cb != nil {
		t.Fatal("the listening end connected all the same")
	}
	check(t, errB, overlay.ErrForbidden, "QUIC with 127.0.0.1:", "certificate is not the one of its description")
	if errA != nil {
		return // the refusal was faster
	}
	ca.SetDeadline(time.Now().Add(patience))
	if n, err := ca.Read(make([]byte, 1)); err == nil || n > 0 || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the refused end read %d bytes, %v", n, err)
	}
	ca.Abort()
}

// Without the ICE password no end gets as far as QUIC.
func TestWrongPassword(t *testing.T) {
	a, b, da, db := pair(t, 200*time.Millisecond)
	wrong := func(d *Description) { d.Password = strings.Repeat("x", 32) }
	_, _, errA, errB := connectBoth(context.Background(), a, b, forge(t, db, wrong), forge(t, da, wrong))
	check(t, errA, overlay.ErrTimeout, "checks")
	check(t, errB, overlay.ErrTimeout, "checks")
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := newAttempt(t, Config{STUN: []netip.AddrPort{silent(t)}})
	_, err := a.Describe(ctx)
	check(t, err, context.Canceled, "gathering")

	for _, controlling := range []bool{false, true} {
		for _, lowTTL := range []bool{false, lowTTLSupported} {
			a := newAttempt(t, Config{Controlling: controlling, LowTTL: lowTTL, Timeout: time.Hour, HoldOff: time.Hour})
			describe(t, a)
			d := sample()
			d.Controlling, d.Candidates = !controlling, []Candidate{{Host, silent(t)}}
			_, err := a.Connect(ctx, d.Append(nil))
			check(t, err, context.Canceled)
			if errors.Is(err, overlay.ErrTimeout) {
				t.Errorf("a cancelled Connect is no time-out: %v", err)
			}
		}
	}
}

// Close ends what is running, from another goroutine.
func TestCloseWhileBusy(t *testing.T) {
	a := newAttempt(t, Config{STUN: []netip.AddrPort{silent(t)}, GatherTimeout: time.Hour})
	time.AfterFunc(10*time.Millisecond, func() { a.Close() })
	if _, err := a.Describe(context.Background()); err == nil {
		t.Error("Describe of a closed attempt worked")
	}
	for _, controlling := range []bool{false, true} {
		a := newAttempt(t, Config{Controlling: controlling, Timeout: time.Hour})
		describe(t, a)
		d := sample()
		d.Controlling, d.Candidates = !controlling, []Candidate{{Host, silent(t)}}
		time.AfterFunc(10*time.Millisecond, func() { a.Close() })
		if _, err := a.Connect(context.Background(), d.Append(nil)); err == nil {
			t.Error("Connect of a closed attempt worked")
		}
	}
}
