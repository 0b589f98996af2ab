//go:build system

package security

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A user is revoked, and then a proxy and a frontal: the sessions and links of each end, no others
// do, and each gets the reason when it reconnects.
func TestRevokedUserProxyFrontal(t *testing.T) {
	w := newWorld(t, labtest.SiteHidden+labtest.SiteClosed+labtest.SiteShut, grid.Config{Proxies: []string{"public/p1", "public/p2"}})
	user := control.Identity{Role: control.RoleUser, Name: "mallory"}
	files, err := w.Issue(user, time.Now().Add(time.Hour), "climate")
	if err != nil {
		t.Fatal(err)
	}
	key := labtest.NewKey(t, "hers")
	now := time.Now()
	hers, err := grant.FromText(grantOf(t, grant.Claims{Job: key.ID(), Project: "climate", Issued: now, Expires: now.Add(30 * time.Minute)}, files.Cert, files.Key))
	if err != nil {
		t.Fatal(err)
	}
	j := &labtest.Pair{A: w.JoinFor(key, "closed/n1", 0, 3, hers), B: w.JoinFor(key, "shut/n1", 1, 3, hers)}
	w.Connect(j)
	doomed := w.StartFlow(j)
	other := w.StartFlow(w.LinkPair("closed/n2", "shut/n1"))
	w.AwaitFlows("before", []*labtest.Flow{doomed, other})

	start := time.Now()
	if err := w.Revoke(w.Ctx, user); err != nil {
		t.Fatal(err)
	}
	w.Until("the link of the revoked user to end", func() bool { return doomed.Err() != nil })
	t.Logf("the user's link ended after %v", time.Since(start))
	for _, m := range []*labtest.Member{j.A, j.B} {
		select {
		case err := <-m.Done:
			if err == nil || !strings.Contains(err.Error(), "user mallory: revoked") {
				t.Errorf("a process of the revoked user ended with %v", err)
			}
			m.Done <- nil // for leave
		case <-w.Ctx.Done():
			t.Fatal("a process of the revoked user goes on")
		}
	}
	// The broker caches verified grants for ten seconds; this grant is new to it.
	next := labtest.NewKey(t, "next")
	anew, err := grant.FromText(grantOf(t, grant.Claims{Job: next.ID(), Project: "climate", Issued: now, Expires: now.Add(30 * time.Minute)}, files.Cert, files.Key))
	if err != nil {
		t.Fatal(err)
	}
	again, err := probe.JoinFor(w.Ctx, w.Grid, "closed/n1", next, 0, anew)
	if err == nil {
		again.Leave()
	}
	if err == nil || !strings.Contains(err.Error(), "the certificate of user mallory was revoked at") {
		t.Errorf("the revoked user came back: %v", err)
	}
	w.AwaitFlows("after the user was revoked", []*labtest.Flow{other})

	carrying := other.Pair.Near.Path.Proxy
	start = time.Now()
	if err := w.Revoke(w.Ctx, control.Identity{Role: control.RoleProxy, Name: carrying}, control.Identity{Role: control.RoleFrontal, Site: "hidden"}); err != nil {
		t.Fatal(err)
	}
	w.Until("the broker to drop the revoked proxy and frontal", func() bool {
		for _, s := range w.Figure("broker", "sites").([]any) {
			if s := s.(map[string]any); s["site"] == "hidden" && s["connected"] == true {
				return false
			}
		}
		return len(w.Figure("broker", "proxies").([]any)) == 1
	})
	t.Logf("the sessions of proxy and frontal ended after %v", time.Since(start))
	// Each tries to reconnect.
	w.AwaitLog("proxy "+carrying, "the certificate of proxy "+carrying+" was revoked at")
	w.AwaitLog("frontal hidden", "the certificate of frontal hidden was revoked at")
	// What the proxy carried uses the other one from now on.
	w.AwaitLog("proxy "+carrying, "this proxy is revoked; its links end")
	w.AwaitFlows("after the proxy was revoked", []*labtest.Flow{other})
	t.Logf("what it carried goes on after %v", time.Since(start))
}
