package carrier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

func TestResolve(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:443": "[192.0.2.1:443]", "[2001:db8::1]:7": "[[2001:db8::1]:7]", "192.0.2.1:https": "[192.0.2.1:443]",
	} {
		if got, err := names.resolve(t.Context(), addr); err != nil || fmt.Sprint(got.first) != want {
			t.Errorf("%s: %v, %v", addr, got, err)
		}
	}
	for _, addr := range []string{"192.0.2.1", "nothing.invalid:1", "[::1:5"} {
		if got, err := names.resolve(t.Context(), addr); err == nil {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if _, err := DialTCP(t.Context(), "nothing.invalid:1", HTTPProxy{}); !errors.Is(err, overlay.ErrUnreachable) {
		t.Errorf("a name without an address: %v", err)
	}
}

// nameServer answers questions about one name.
type nameServer struct {
	addrs  []netip.Addr
	err    error
	silent bool
	asked  int
}

func (s *nameServer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	s.asked++
	if s.silent {
		<-ctx.Done()
		return nil, &net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true}
	}
	return slices.Clone(s.addrs), s.err
}

func addrsOf(texts ...string) (all []netip.Addr) {
	for _, s := range texts {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// dialName dials a name by the cache; the error is as Dial has it.
func dialName(ctx context.Context, c *nameCache, answers map[string]error) (string, error) {
	const addr = "broker.example:443"
	start := time.Now()
	to, err := c.resolve(ctx, addr)
	if err != nil {
		return "", dialError(addr, time.Since(start), err)
	}
	conn, err := dialAddresses(ctx, to, func(ctx context.Context, to []netip.AddrPort) (fakeConn, error) {
		err := answers[to[0].Addr().String()]
		if errors.Is(err, errSilent) {
			<-ctx.Done()
			return fakeConn{}, ctx.Err()
		}
		return fakeConn{make(chan struct{}), to[0].String()}, err
	})
	if err != nil {
		return "", dialError(addr, time.Since(start), err)
	}
	return conn.name, nil
}

// Once looked up, a name needs no name server: whatever becomes of that, its last good addresses are
// dialled at once, and those that it has now as soon as they are known.
func TestNamesAreRemembered(t *testing.T) {
	const old, moved = "192.0.2.1", "2001:db8::2"
	notFound := &net.DNSError{Err: "no such host", Name: "broker.example", IsNotFound: true}
	for _, tc := range []struct {
		name    string
		later   nameServer
		answers map[string]error
		to      string
		within  time.Duration
		says    []string // of the error
	}{
		{"the name server answers", nameServer{addrs: addrsOf(old)}, nil, "192.0.2.1:443", 0, nil},
		{"the name server is silent", nameServer{silent: true}, nil, "192.0.2.1:443", 0, nil},
		{"the name server fails", nameServer{err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}}, nil, "192.0.2.1:443", 0, nil},
		{"there is no route to it", nameServer{err: syscall.ENETUNREACH}, nil, "192.0.2.1:443", 0, nil},
		{"the name is gone", nameServer{err: notFound}, nil, "192.0.2.1:443", 0, nil},
		{"the name has no address any more", nameServer{}, nil, "192.0.2.1:443", 0, nil},
		{"moved, the old host refuses", nameServer{addrs: addrsOf(moved)}, map[string]error{old: syscall.ECONNREFUSED}, "[2001:db8::2]:443", 0, nil},
		{"moved, the old host is silent", nameServer{addrs: addrsOf(moved)}, map[string]error{old: errSilent}, "[2001:db8::2]:443", attemptDelay, nil},
		{"an address was added", nameServer{addrs: addrsOf(old, moved)}, map[string]error{old: errSilent}, "[2001:db8::2]:443", attemptDelay, nil},
		{"refused", nameServer{addrs: addrsOf(old)}, map[string]error{old: syscall.ECONNREFUSED}, "", 0, []string{"refused"}},
		{"refused without a name server", nameServer{silent: true}, map[string]error{old: syscall.ECONNREFUSED}, "", newsWait,
			[]string{"refused", "broker.example", "192.0.2.1:443", "last known"}},
		{"refused, the name is gone", nameServer{err: notFound}, map[string]error{old: syscall.ECONNREFUSED}, "", newsWait,
			[]string{"refused", `lookup broker.example: no such host`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := nameServer{addrs: addrsOf(old)}
				c := &nameCache{lookup: func(ctx context.Context, host string) ([]netip.Addr, error) { return server.lookup(ctx, host) }}
				if to, err := dialName(t.Context(), c, nil); err != nil || to != "192.0.2.1:443" {
					t.Fatalf("%v, %v", to, err)
				}
				time.Sleep(time.Hour)
				server = tc.later
				start := time.Now()
				to, err := dialName(t.Context(), c, tc.answers)
				if took := time.Since(start); to != tc.to || took > tc.within || (err == nil) != (tc.to != "") {
					t.Errorf("connected to %q after %v, %v; want %q within %v", to, took, err, tc.to, tc.within)
				}
				for _, part := range tc.says {
					if err != nil && !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not say %q", err, part)
					}
				}
				time.Sleep(nameBound) // the lookup ends
			})
		})
	}
}

// Without remembered addresses the error says which name could not be looked up, and why.
func TestNameErrors(t *testing.T) {
	for _, tc := range []struct {
		server nameServer
		class  error
		says   string
	}{
		{nameServer{silent: true}, overlay.ErrTimeout, `no answer about the name "broker.example" within 30s`},
		{nameServer{err: &net.DNSError{Err: "server misbehaving", Name: "broker.example", IsTemporary: true}}, overlay.ErrUnreachable, `the name "broker.example" cannot be looked up: server misbehaving`},
		{nameServer{err: syscall.ENETUNREACH}, overlay.ErrUnreachable, `the name "broker.example" cannot be looked up: network is unreachable`},
		{nameServer{}, overlay.ErrUnreachable, `the name "broker.example" has no address`},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &nameCache{lookup: tc.server.lookup}
			if _, err := dialName(t.Context(), c, nil); !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %v: %s", err, tc.class, tc.says)
			}
			if len(c.cached) > 0 {
				t.Error("a name without addresses is remembered")
			}
		})
	}
}

// Dials share a lookup; a while after it the next one begins; the number of names is bounded.
func TestNameLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := nameServer{addrs: addrsOf("::ffff:192.0.2.1")}
		c := &nameCache{lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			time.Sleep(time.Second)
			return server.lookup(ctx, host)
		}}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.resolve(gone, "broker.example:443"); !errors.Is(err, context.Canceled) {
			t.Errorf("a dial that was given up: %v", err)
		}
		for i := range 3 {
			a, err := c.resolve(t.Context(), "broker.example:443")
			if err != nil || !slices.Equal(a.first, ports("192.0.2.1:443")) || server.asked != 1 {
				t.Errorf("%d: %v, %v, asked %d times", i, a.first, err, server.asked)
			}
		}
		time.Sleep(nameFresh)
		for range 3 {
			if a, err := c.resolve(t.Context(), "broker.example:443"); err != nil || a.newer == nil {
				t.Errorf("later: %+v, %v", a, err)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if server.asked != 2 {
			t.Errorf("asked %d times, want 2", server.asked)
		}
		for i := range 2 * maxNames {
			c.resolve(t.Context(), fmt.Sprintf("host%d.example:1", i))
		}
		if len(c.cached) != maxNames || c.cached[fmt.Sprintf("host%d.example", 2*maxNames-1)] == nil {
			t.Errorf("%d names are remembered", len(c.cached))
		}
	})
}
