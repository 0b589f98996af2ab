//go:build system

package enrol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/oidc/oidctest"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Keep renews the certificate in the file automatically, before it expires.
func TestKeep(t *testing.T) {
	g := newGrid(t, "tg")
	got, err := g.ask(g.token("helper sitea/n1", func(t *ca.Token) { t.Valid = 6 }), "")
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var keeping sync.WaitGroup
	asked := make(chan error, 10)
	keeping.Go(func() {
		Keep(ctx, creds, slog.New(slog.DiscardHandler), func(_ context.Context, chain [][]byte) ([][]byte, error) {
			chain, err := g.server.Renew(chain)
			asked <- err
			return chain, err
		})
	})
	select {
	case err := <-asked:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Fatal("it was not renewed")
	}
	cancel()
	keeping.Wait() // it has written by then, or been interrupted
	if creds.Leaf().SerialNumber.Cmp(old.SerialNumber) == 0 {
		t.Error("the old certificate is still in use")
	}
}

// While the provider is silent, users get an error within the time of one conversation, and others
// enrol as before.
func TestProviderIsSlow(t *testing.T) {
	i := oidctest.New(t)
	i.Add("k1", jose.ES256)
	end := make(chan struct{})
	reached := make(chan struct{}, 10)
	i.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		reached <- struct{}{}
		select {
		case <-end:
		case <-r.Context().Done():
		}
		return true
	}
	defer close(end)
	g := newGrid(t, "tg")
	g.believe(i, true)
	waiting := make(chan error, 1)
	token := tokenOf(i, "1", nil)
	go func() {
		_, err := g.askAsUser(token)
		waiting <- err
	}()
	select {
	case <-reached:
	case err := <-waiting:
		t.Fatalf("the provider was not asked: %v", err)
	}
	for n := range 3 {
		if _, err := g.ask(g.token(fmt.Sprintf("helper sitea/n%d", n), nil), ""); err != nil {
			t.Errorf("somebody else: %v", err)
		}
	}
	err := <-waiting // the context of askAsUser ends it at the latest
	refused(t, "a user", err, "the keys of "+i.URL+" cannot be had")
	if !errors.Is(err, overlay.ErrUnreachable) {
		t.Errorf("of another class: %v", err)
	}
	if r := g.log.last(); r.err == nil || r.by != i.URL {
		t.Errorf("recorded %+v", r)
	}
}
