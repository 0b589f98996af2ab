package control_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// claiming answers Status on sessions that act for their peer.
type claiming struct {
	controlpb.UnimplementedAdminServer
	e *control.Endpoint
}

func (c *claiming) Status(ctx context.Context, _ *controlpb.StatusRequest) (*controlpb.StatusResponse, error) {
	if err := c.e.Claim(control.SessionOf(ctx)); err != nil {
		return nil, control.Status(err)
	}
	return &controlpb.StatusResponse{}, nil
}

// serveClaims returns a server of such a kind, and its address.
func serveClaims(t *testing.T, g *grid) (*control.Endpoint, string) {
	a := &claiming{}
	a.e = endpoint(t, g.creds(broker), a)
	return a.e, serve(t, a.e, nil, nil)
}

// askStatus calls Status on a session.
func askStatus(ctx context.Context, s *control.Session) error {
	_, err := controlpb.NewAdminClient(s.Conn()).Status(ctx, &controlpb.StatusRequest{})
	return control.FromStatus(err)
}

// lines is where a logger writes.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// logging returns an endpoint of a host, and what it logs.
func logging(t *testing.T, g *grid, id control.Identity) (*control.Endpoint, lines) {
	log := make(lines, 1000)
	e := control.NewEndpoint(g.creds(id), slog.New(slog.NewTextHandler(log, nil)), func(grpc.ServiceRegistrar) {})
	t.Cleanup(e.Close)
	return e, log
}

// find returns the next line with a text.
func (l lines) find(t *testing.T, text string) string {
	t.Helper()
	for {
		if line := testkit.Receive(t, text, l); strings.Contains(line, text) {
			return line
		}
	}
}

// Two hosts with one certificate: the first keeps its session, the second is refused and waits for
// minutes, both are told both addresses, and so is whoever asks with that certificate. When the first is
// gone the second may have its place.
func TestOneIdentityOnTwoHosts(t *testing.T) {
	for _, id := range []control.Identity{frontal, {Role: control.RoleProxy, Name: "p1"}} {
		t.Run(id.String(), func(t *testing.T) {
			g := newGrid(t)
			server, addr := serveClaims(t, g)
			to := control.DialConfig{Addr: addr, Role: control.RoleBroker}
			first, log := logging(t, g, id)
			held, err := first.Dial(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			if err := askStatus(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			if text := server.Contested(id); text != "" {
				t.Errorf("of one host it says %q", text)
			}

			second, otherLog := logging(t, g, id)
			ctx, cancel := context.WithCancel(t.Context())
			var keeping sync.WaitGroup
			defer keeping.Wait()
			defer cancel()
			down, other := make(chan error, 1), make(chan string, 1)
			again := to
			again.Down = func(err error) { down <- err }
			keeping.Go(func() {
				second.Keep(ctx, again, func(ctx context.Context, s *control.Session) error {
					other <- s.LocalAddr().String()
					return askStatus(ctx, s)
				})
			})
			at, refused := held.LocalAddr().String(), testkit.Receive(t, "the second host's address", other)
			texts := map[string]string{
				"the refusal":           testkit.Receive(t, "the refusal", down).Error(),
				"the first host's log":  log.find(t, "two hosts present"),
				"the second host's log": otherLog.find(t, "two hosts present"),
				"the server":            server.Contested(id),
				"the first host":        first.OwnContested(),
				"the second host":       second.OwnContested(),
			}
			for who, text := range texts {
				for _, want := range []string{id.String(), at + " keeps its session", refused + " is refused", "a certificate of its own"} {
					if !strings.Contains(text, want) {
						t.Errorf("%s: %q; want %q", who, text, want)
					}
				}
			}
			if line := otherLog.find(t, "no control session"); !strings.Contains(line, "retry_in=2m0s") {
				t.Errorf("the second host logs %q", line)
			}
			if err := askStatus(t.Context(), held); err != nil {
				t.Errorf("the first host's session: %v", err)
			}

			asking, _ := logging(t, g, id)
			visit := to
			visit.Visit = true
			s, err := asking.Dial(t.Context(), visit)
			if err != nil {
				t.Fatal(err)
			}
			m, err := controlpb.NewTrustClient(s.Conn()).Holders(t.Context(), &controlpb.HoldersMessage{})
			if err != nil || m.Keeps != at || m.Other != refused {
				t.Errorf("who asks is told %v, %v", m, err)
			}

			held.Close()
			third, _ := logging(t, g, id)
			for {
				s, err := third.Dial(t.Context(), to)
				if err != nil {
					t.Fatal(err)
				}
				if err = askStatus(t.Context(), s); err == nil {
					break
				} else if !errors.Is(err, overlay.ErrForbidden) || t.Context().Err() != nil {
					t.Fatal(err)
				}
				s.Close() // the server has not seen the end of the first session yet
			}
		})
	}
}

// A daemon that connects again, because it takes its session for dead, has its place at once.
func TestOneProcessAgain(t *testing.T) {
	g := newGrid(t)
	server, addr := serveClaims(t, g)
	e, _ := logging(t, g, frontal)
	to := control.DialConfig{Addr: addr, Role: control.RoleBroker}
	var before *control.Session
	for range 3 {
		s, err := e.Dial(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		if err := askStatus(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if before != nil {
			testkit.Receive(t, "the end of the session before", before.Done())
		}
		before = s
	}
	if text := server.Contested(frontal); text != "" {
		t.Errorf("of one process it says %q", text)
	}
}

// A call that comes late, on a session that has ended, ends no later one.
func TestLateClaim(t *testing.T) {
	g := newGrid(t)
	a := &claiming{}
	a.e = endpoint(t, g.creds(broker), a)
	accepted := make(chan *control.Session, 2)
	addr := serve(t, a.e, nil, func(_ context.Context, s *control.Session) { accepted <- s })
	e, _ := logging(t, g, frontal)
	dial := func() *control.Session {
		s, err := e.Dial(t.Context(), control.DialConfig{Addr: addr, Role: control.RoleBroker})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	dial().Close()
	ended := testkit.Receive(t, "the first session", accepted)
	testkit.Receive(t, "its end", ended.Done())
	s := dial()
	if err := askStatus(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := a.e.Claim(ended); !errors.Is(err, overlay.ErrUnreachable) {
		t.Errorf("a session that has ended claims: %v", err)
	}
	if err := askStatus(t.Context(), s); err != nil {
		t.Errorf("the later session: %v", err)
	}
}

// Others cannot be told lies about who acts for them: only the daemon that accepted a session decides.
func TestHoldersOfOthers(t *testing.T) {
	g := newGrid(t)
	_, addr := serveClaims(t, g)
	e, _ := logging(t, g, frontal)
	s, err := e.Dial(t.Context(), control.DialConfig{Addr: addr, Role: control.RoleBroker})
	if err != nil {
		t.Fatal(err)
	}
	for keeps, want := range map[string]string{"192.0.2.1:1": "does not decide who acts for broker main", "nowhere": "not an ip:port"} {
		_, err := controlpb.NewTrustClient(s.Conn()).Holders(t.Context(), &controlpb.HoldersMessage{Keeps: keeps, Other: "192.0.2.2:1"})
		if err = control.FromStatus(err); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", keeps, err, want)
		}
	}
}
