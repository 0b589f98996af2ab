package enrol

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/store"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A grid is a CA and a broker that issues for it, at an address.
type grid struct {
	t      *testing.T
	dir    string
	ca     *ca.CA
	creds  *control.Credentials // the broker's
	server *Server
	store  *store.Bolt
	out    *Outside // the roots that the server trusts when it is started
	log    *records
	addr   string
	stop   func()
}

func newGrid(t *testing.T, name string) *grid {
	t.Helper()
	dir := t.TempDir()
	authority, err := ca.Create(dir, name, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := authority.WriteIssuer(dir, ca.OnlineRoles, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	creds, err := authority.Credentials(control.Identity{Role: control.RoleBroker, Name: "b1"})
	if err != nil {
		t.Fatal(err)
	}
	g := &grid{t: t, dir: dir, ca: authority, creds: creds, log: new(records)}
	g.start(true)
	t.Cleanup(func() { g.stop() })
	return g
}

// start runs the broker; enrols selects whether it has a server.
func (g *grid) start(enrols bool) {
	g.t.Helper()
	e := control.NewEndpoint(g.creds, slog.New(slog.DiscardHandler), nil)
	if enrols {
		var err error
		g.store, err = store.OpenBolt(filepath.Join(g.dir, "broker.db"))
		if err != nil {
			g.t.Fatal(err)
		}
		g.server, err = New(Settings{
			Cert: filepath.Join(g.dir, ca.IssuerCertFile), Key: filepath.Join(g.dir, ca.IssuerKeyFile),
			Store: g.store, Longest: 30 * time.Minute,
		}, g.creds, slog.New(slog.DiscardHandler))
		if err != nil {
			g.t.Fatal(err)
		}
		g.server.Noted = g.log.add
		if g.out != nil {
			g.server.SetOutside(*g.out)
		}
		e.SetTrust(control.Trust{Enrol: func(ctx context.Context, c *tls.Conn, asked func() bool) {
			g.server.Serve(ctx, c, asked, e.RefuseEnrol)
		}})
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { e.Serve(ctx, ln, nil, nil) })
	g.addr = ln.Addr().String()
	g.stop = sync.OnceFunc(func() {
		cancel()
		serving.Wait()
		e.Close()
		if enrols {
			g.store.Close()
		}
	})
}

// token returns a token for an hour and one use, modified by change.
func (g *grid) token(identity string, change func(*ca.Token)) string {
	g.t.Helper()
	t := ca.Token{Identity: identity, Expires: time.Now().Add(time.Hour).UnixMilli(), Valid: 600, Uses: 1}
	now := time.Now()
	if change != nil {
		change(&t)
	}
	if expires := t.ExpiresAt(); expires.Before(now) {
		now = expires.Add(-time.Minute)
	} else if t.Created != 0 {
		now = t.CreatedAt()
	}
	text, err := g.ca.Token(t, now)
	if err != nil {
		g.t.Fatal(err)
	}
	return text
}

func (g *grid) ask(token, node string) (*Enrolled, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return Ask(ctx, g.addr, token, node, nil)
}

func (g *grid) credentials(e *Enrolled) *control.Credentials {
	g.t.Helper()
	c, err := control.NewCredentials(ca.ChainPEM(e.Chain), e.Key, g.ca.CertPEM())
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v; want %q", what, err, want)
	}
}

func TestEnrol(t *testing.T) {
	g := newGrid(t, "tg")
	token := g.token("helper sitea/n1", nil)
	got, err := g.ask(token, "")
	if err != nil {
		t.Fatal(err)
	}
	if c := g.credentials(got); c.Identity().String() != "helper sitea/n1" || len(got.Chain) != 2 {
		t.Errorf("enrolled as %v with a chain of %d", c.Identity(), len(got.Chain))
	}
	if valid := time.Until(g.credentials(got).Leaf().NotAfter); valid > 11*time.Minute {
		t.Errorf("valid for %v, the token says 10 min", valid)
	}
	if mark := control.Enrolled(g.credentials(got).Leaf()); time.Since(mark) > time.Minute || mark.After(time.Now()) {
		t.Errorf("it goes back to %v", mark)
	}
	_, err = g.ask(token, "")
	refused(t, "used again", err, "used already")

	// The record of the use survives the broker.
	g.stop()
	g.start(true)
	_, err = g.ask(token, "")
	refused(t, "used again after a restart", err, "used already")
	if !errors.Is(err, overlay.ErrForbidden) {
		t.Errorf("not forbidden: %v", err)
	}

	user, err := g.ask(g.token("user alice", func(t *ca.Token) { t.Projects = []string{"p1", "p2"}; t.Valid = 1 << 30 }), "")
	if err != nil {
		t.Fatal(err)
	}
	leaf := g.credentials(user).Leaf()
	if projects, err := control.ProjectsOf(leaf); err != nil || strings.Join(projects, ",") != "p1,p2" {
		t.Errorf("projects %q, %v", projects, err)
	}
	if valid := time.Until(leaf.NotAfter); valid > 31*time.Minute {
		t.Errorf("valid for %v; this broker issues for 30 min", valid)
	}
}

func TestTokenForAnyNode(t *testing.T) {
	g := newGrid(t, "tg")
	token := g.token("helper sitea/*", func(t *ca.Token) { t.Uses = 2 })
	for _, node := range []string{"n1", "n2"} {
		got, err := g.ask(token, node)
		if err != nil {
			t.Fatal(err)
		}
		if id := got.ID.String(); id != "helper sitea/"+node {
			t.Errorf("enrolled as %s", id)
		}
	}
	_, err := g.ask(token, "n3")
	refused(t, "the third", err, "used 2 times already")
	_, err = g.ask(token, "")
	refused(t, "no name", err, "name this node")
	_, err = g.ask(g.token("helper sitea/n1", nil), "n2")
	refused(t, "another name", err, "the token is for helper sitea/n1, not for n2")
}

func TestRefusals(t *testing.T) {
	g, other := newGrid(t, "tg"), newGrid(t, "elsewhere")
	long := func(t *ca.Token) { t.Expires = time.Now().Add(-time.Hour).UnixMilli() }
	_, err := g.ask(g.token("proxy p1", long), "")
	refused(t, "expired, as the client sees it", err, "the token expired at")
	_, _, err = g.server.Enrol(t.Context(), g.token("proxy p1", long), nil)
	refused(t, "expired, as the broker sees it", err, "the token expired at")
	_, err = g.ask(g.token("admin eve", nil), "")
	refused(t, "an admin", err, "may issue certificates for [frontal proxy helper user] only")
	_, err = g.ask(other.token("proxy p1", nil), "")
	refused(t, "another grid's token", err, "not belong to the grid whose CA has the fingerprint")
	request, _, err := ca.Request(control.Identity{Role: control.RoleProxy, Name: "p2"})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = g.server.Enrol(t.Context(), other.token("proxy p2", nil), request)
	refused(t, "another grid's token, as the broker sees it", err, "signed by another CA")
	_, _, err = g.server.Enrol(t.Context(), g.token("proxy p1", nil), request)
	refused(t, "somebody else", err, "the token is for proxy p1, not for proxy p2")
	forged := g.token("proxy p2", nil)
	dot := strings.LastIndexByte(forged, '.')
	second := g.token("proxy p2", nil)
	_, _, err = g.server.Enrol(t.Context(), forged[:dot]+second[strings.LastIndexByte(second, '.'):], request)
	refused(t, "forged", err, "forged or damaged")
	damaged := bytes.Clone(request)
	damaged[len(damaged)-1] ^= 1
	_, _, err = g.server.Enrol(t.Context(), g.token("proxy p2", nil), damaged)
	refused(t, "a request without its key", err, "request for a certificate")
	g.server.now = func() time.Time { return time.Now().Add(-2 * time.Hour) }
	_, _, err = g.server.Enrol(t.Context(), g.token("proxy p2", nil), request)
	refused(t, "a clock that is behind", err, "the clocks of this host and the CA differ by at least ")
	g.server.now = time.Now
	if _, _, err := g.server.Enrol(t.Context(), g.token("proxy p2", nil), request); err != nil {
		t.Errorf("a good one after all those: %v", err)
	}

	g.stop()
	g.start(false)
	_, err = g.ask(g.token("proxy p1", nil), "")
	refused(t, "a broker without a server", err, "it does not issue certificates")
}

func (g *grid) revoke(at time.Time, ids ...string) {
	g.t.Helper()
	var all []control.Identity
	for _, text := range ids {
		id, err := control.ParseIdentity(text)
		if err != nil {
			g.t.Fatal(err)
		}
		all = append(all, id)
	}
	_, der, err := g.ca.Revoke(g.dir, all, nil, at)
	if err != nil {
		g.t.Fatal(err)
	}
	if newer, err := g.creds.Revocations().Take(der); err != nil || !newer {
		g.t.Fatalf("newer %v, %v", newer, err)
	}
}

func TestRenew(t *testing.T) {
	g := newGrid(t, "tg")
	ago := func(d time.Duration) func(*ca.Token) {
		return func(t *ca.Token) { t.Created = time.Now().Add(-d).UnixMilli() }
	}
	got, err := g.ask(g.token("helper sitea/n1", ago(3*time.Minute)), "")
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Install(t.TempDir(), got.ID, got.Chain, got.Key, got.Root)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := control.LoadCredentials(files.Cert, files.Key, files.CA)
	if err != nil {
		t.Fatal(err)
	}
	old := creds.Leaf()
	chain, err := Renew(t.Context(), g.addr, creds, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := creds.Replace(ca.ChainPEM(chain)); err != nil {
		t.Fatal(err)
	}
	fresh := creds.Leaf()
	if fresh.SerialNumber.Cmp(old.SerialNumber) == 0 || !control.Enrolled(fresh).Equal(control.Enrolled(old)) {
		t.Errorf("serial %x after %x, enrolled %v after %v", fresh.SerialNumber, old.SerialNumber, control.Enrolled(fresh), control.Enrolled(old))
	}
	if again, err := control.LoadCredentials(files.Cert, files.Key, files.CA); err != nil || again.Leaf().SerialNumber.Cmp(fresh.SerialNumber) != 0 {
		t.Errorf("the file: %v", err)
	}

	// A revoked holder cannot renew, not even with a renewed certificate, and can enrol again only
	// with a token issued afterwards.
	early := g.token("helper sitea/n1", ago(2*time.Minute))
	g.revoke(time.Now().Add(-time.Minute), "helper sitea/n1")
	_, err = Renew(t.Context(), g.addr, creds, nil)
	refused(t, "renewing what is revoked", err, "was revoked at")
	_, err = g.ask(early, "")
	refused(t, "a token from before", err, "after this token was made")
	back, err := g.ask(g.token("helper sitea/n1", nil), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.creds.Verify(back.Chain); err != nil {
		t.Errorf("enrolled again: %v", err)
	}
}

func TestDue(t *testing.T) {
	g := newGrid(t, "tg")
	certPEM, keyPEM, err := g.ca.Issue(control.Identity{Role: control.RoleProxy, Name: "p1"}, time.Now().Add(30*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	c, err := control.NewCredentials(certPEM, keyPEM, g.ca.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	left := time.Until(renewalTime(c.Leaf()))
	if left < 19*time.Minute || left > 21*time.Minute {
		t.Errorf("30 min are due after %v", left)
	}
	if got := pause(c.Leaf(), c.Leaf().NotAfter); got != soonest {
		t.Errorf("at the end: %v", got)
	}
	if got := pause(c.Leaf(), c.Leaf().NotAfter.Add(-240*time.Hour)); got != latest {
		t.Errorf("long before the end: %v", got)
	}
}

var discard = slog.New(slog.DiscardHandler)
