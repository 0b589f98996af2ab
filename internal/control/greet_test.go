package control_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/wire"
)

func (g *grid) pair(id control.Identity) tls.Certificate {
	certPEM, keyPEM, err := g.ca.Issue(id, time.Now().Add(time.Hour))
	if err != nil {
		g.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		g.t.Fatal(err)
	}
	return pair
}

func greet(t *testing.T, addr string, own tls.Certificate) (control.Greeting, error) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return control.Greet(t.Context(), conn, own, "127.0.0.1", false)
}

// A greeting identifies the peer and opens no session.
func TestGreet(t *testing.T) {
	g := newGrid(t)
	joined := make(chan string, 1)
	server := endpoint(t, g.creds(broker), admin{})
	addr := serve(t, server, nil, func(_ context.Context, s *control.Session) { joined <- s.Peer().String() })
	got, err := greet(t, addr, g.pair(helper))
	if err != nil {
		t.Fatal(err)
	}
	hello, ok := got.First.(*wire.ControlHello)
	if !ok || !got.Shook || hello.Oldest != control.OldestVersion || hello.Software != control.Software {
		t.Errorf("got %+v with first frame %+v", got, got.First)
	}
	if id, err := control.IdentityOf(got.Chain[0]); err != nil || id != broker {
		t.Errorf("identity %v, %v", id, err)
	}
	// A session opened afterwards is the first that joins.
	s, err := endpoint(t, g.creds(frontal), admin{}).Dial(t.Context(), control.DialConfig{Addr: addr, Role: control.RoleBroker})
	if err != nil {
		t.Fatal(err)
	}
	if who := testkit.Receive(t, "who joins", joined); who != frontal.String() {
		t.Errorf("%s joined", who)
	}
	s.Close()
}

// A greeting with another grid's certificate receives the reason for the refusal.
func TestGreetIsRefusedInWords(t *testing.T) {
	g := newGrid(t)
	foreign, _, err := ca.New("other", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	addr := serve(t, endpoint(t, g.creds(broker), admin{}), nil, nil)
	got, err := greet(t, addr, (&grid{t, foreign}).pair(helper))
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := got.First.(*wire.Refuse); !ok || !strings.Contains(f.Text, "not issued by this grid's CA") {
		t.Errorf("first frame %+v", got.First)
	}
}

// A greeting ends with its context when the peer does not answer.
func TestGreetEnds(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := control.Greet(ctx, conn, newGrid(t).pair(helper), "", false); err == nil || got.Shook {
		t.Errorf("%+v, %v", got, err)
	}
}

// A visitor is marked as such, and no other session is.
func TestVisit(t *testing.T) {
	g := newGrid(t)
	visiting := make(chan bool, 2)
	addr := serve(t, endpoint(t, g.creds(broker), admin{}), nil, func(_ context.Context, s *control.Session) { visiting <- s.Visiting() })
	for _, visit := range []bool{true, false} {
		s, err := endpoint(t, g.creds(frontal), admin{}).Dial(t.Context(), control.DialConfig{Addr: addr, Role: control.RoleBroker, Visit: visit})
		if err != nil {
			t.Fatal(err)
		}
		if got := testkit.Receive(t, "the visit", visiting); got != visit {
			t.Errorf("visit %v is seen as %v", visit, got)
		}
		s.Close()
	}
}
