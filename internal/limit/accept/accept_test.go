package accept

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

func TestEachGoesOnAfterShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		near, far := net.Pipe()
		defer far.Close()
		gone := errors.New("the listener is gone")
		short := []error{syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ECONNABORTED}
		calls, served := 0, 0
		err := Each(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), &net.TCPAddr{Port: 7}, func() (net.Conn, error) {
			calls++
			switch {
			case calls <= len(short):
				return nil, &net.OpError{Op: "accept", Err: short[calls-1]}
			case calls == len(short)+1:
				return near, nil
			}
			return nil, gone
		}, func(c net.Conn) { served++; c.Close() })
		if !errors.Is(err, gone) || served != 1 || calls != len(short)+2 {
			t.Errorf("%v after %d calls, %d served", err, calls, served)
		}
		if n := strings.Count(log.String(), "cannot accept connections for now"); n != 1 {
			t.Errorf("%d log lines about one shortage:\n%s", n, log.String())
		}
	})
}

func TestEachEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := Each(ctx, slog.New(slog.DiscardHandler), &net.TCPAddr{}, func() (net.Conn, error) {
		cancel()
		return nil, net.ErrClosed
	}, func(net.Conn) {})
	if err != nil {
		t.Error(err)
	}
}

func TestSourceOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:80":              "192.0.2.7",
		"[::ffff:192.0.2.7]:80":     "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::9]:80": "2001:db8:1:2::/64",
		"[fe80::1%1]:80":            "fe80::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := SourceOf(a).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if got := SourceOf(&net.UnixAddr{}); got != (Source{}) {
		t.Errorf("a Unix address is the source %v", got)
	}
}

// addressed is a connection with a given remote address.
type addressed struct {
	net.Conn
	from net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.from }

func TestSecondSourceGetsIn(t *testing.T) {
	var told []string
	h := NewHalfOpen(Bounds{Total: 4}, func(from net.Addr, err error) { told = append(told, from.String()) })
	conn := func(ip byte, port int) (c, far net.Conn) {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		return addressed{near, &net.TCPAddr{IP: net.IPv4(192, 0, 2, ip), Port: port}}, far
	}
	first, far := conn(1, 1)
	oldest, err := h.Enter(first)
	if err != nil {
		t.Fatal(err)
	}
	for port := 2; port <= 5; port++ {
		c, _ := conn(1, port)
		if _, err := h.Enter(c); (err == nil) != (port <= 4) {
			t.Errorf("connection %d: %v", port, err)
		}
	}
	c, _ := conn(2, 1)
	place, err := h.Enter(c)
	if err != nil {
		t.Fatalf("a second source: %v", err)
	}
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the oldest of the first source is not closed: %v", err)
	}
	if oldest.Leave() || !place.Leave() {
		t.Error("who was closed does not learn of it, or who was not is told so")
	}
	if want := "192.0.2.1:5 192.0.2.1:1"; strings.Join(told, " ") != want {
		t.Errorf("refused %v, want %s", told, want)
	}
	if s := h.Stats(); s.Used != 3 || s.Refused != 1 || s.Evicted != 1 {
		t.Errorf("%+v", s)
	}
}
