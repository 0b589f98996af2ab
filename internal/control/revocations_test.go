package control_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A list that reaches one daemon is forwarded to its peers, ends the sessions of the revoked on
// both sides, and prevents new ones; other sessions stay.
func TestRevocationEndsSessions(t *testing.T) {
	dir := t.TempDir()
	authority, err := ca.Create(dir, "tg", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	credentials := func(text string) *control.Credentials {
		id, err := control.ParseIdentity(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := authority.Credentials(id)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	broker := credentials("broker b1")
	file := filepath.Join(dir, "kept.pem")
	if err := broker.Revocations().Keep(file); err != nil {
		t.Fatal(err)
	}
	end := control.NewEndpoint(broker, slog.New(slog.DiscardHandler), nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve, halt := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { end.Serve(serve, ln, nil, nil) })
	defer end.Close()
	defer serving.Wait()
	defer halt()

	dial := func(c *control.Credentials) (*control.Session, error) {
		e := control.NewEndpoint(c, slog.New(slog.DiscardHandler), nil)
		t.Cleanup(e.Close)
		return e.Dial(ctx, control.DialConfig{Addr: ln.Addr().String(), Role: control.RoleBroker})
	}
	bad, good := credentials("frontal sitea"), credentials("frontal siteb")
	badSession, err := dial(bad)
	if err != nil {
		t.Fatal(err)
	}
	goodSession, err := dial(good)
	if err != nil {
		t.Fatal(err)
	}
	_, told := good.Revocations().Now()
	_, toldBad := bad.Revocations().Now()
	_, der, err := authority.Revoke(dir, []control.Identity{{Role: control.RoleFrontal, Site: "sitea"}}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if newer, err := broker.Revocations().Take(der); !newer || err != nil {
		t.Fatalf("newer %v, %v", newer, err)
	}
	for what, ch := range map[string]<-chan struct{}{"the revoked one's session": badSession.Done(), "the other's news": told, "the revoked one's news": toldBad} {
		select {
		case <-ch:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
	if _, err := dial(bad); !errors.Is(err, overlay.ErrForbidden) {
		t.Errorf("the revoked one again: %v", err)
	}
	select {
	case <-goodSession.Done():
		t.Error("the other's session ended, too")
	default:
	}

	// The revoked holder is told, once.
	ended, stop := context.WithCancel(ctx)
	var heard []error
	bad.FollowOwn(ended, func(revoked error) { heard = append(heard, revoked); stop() })
	good.FollowOwn(ended, func(revoked error) { t.Errorf("one that is not revoked hears %v", revoked) })
	if len(heard) != 1 || !errors.Is(heard[0], control.ErrRevoked) {
		t.Errorf("the revoked one hears %v", heard)
	}

	// The list is on disk, and a list that cannot be read is an error.
	anew := credentials("broker b1")
	if err := anew.Revocations().Keep(file); err != nil {
		t.Fatal(err)
	}
	if _, err := anew.Verify(bad.Certificate().Certificate); !errors.Is(err, control.ErrRevoked) {
		t.Errorf("after a restart: %v", err)
	}
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := credentials("broker b1").Revocations().Keep(file); err == nil {
		t.Error("nonsense passes for a list")
	}
}

// Credentials follow their files.
func TestCredentialsFollowTheirFiles(t *testing.T) {
	authority, _, err := ca.New("tg", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	id := control.Identity{Role: control.RoleProxy, Name: "p1"}
	files, err := authority.Write(dir, id, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	c, err := control.LoadCredentials(files.Cert, files.Key, files.CA)
	if err != nil {
		t.Fatal(err)
	}
	stamp := time.Now() // always the same: several may be written within one tick of the file system's clock
	touch := func() {
		for _, name := range []string{files.Cert, files.Key} {
			if err := os.Chtimes(name, stamp, stamp); err != nil {
				t.Fatal(err)
			}
		}
	}
	touch()
	old := c.Leaf().SerialNumber
	if taken, err := c.Refresh(); taken || err != nil {
		t.Errorf("nothing changed: %v, %v", taken, err)
	}
	if _, err := authority.Write(dir, id, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	touch()
	if taken, err := c.Refresh(); !taken || err != nil || c.Leaf().SerialNumber.Cmp(old) == 0 {
		t.Errorf("a new certificate: %v, %v", taken, err)
	}
	other, _, err := authority.Issue(control.Identity{Role: control.RoleProxy, Name: "p2"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(other), "nonsense"} {
		if err := os.WriteFile(files.Cert, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		touch()
		if taken, err := c.Refresh(); taken || err == nil {
			t.Errorf("an unfit certificate: %v, %v", taken, err)
		}
		if _, err := c.Refresh(); err != nil {
			t.Errorf("the same fault is told twice: %v", err)
		}
	}
	if c.Identity() != id || c.Leaf() == nil {
		t.Error("the old one is gone")
	}
}
