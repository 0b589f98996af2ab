//go:build system

package security

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A job works for a user of the grid, at two sites, and all daemons on the path know the user: the
// broker's status and the proxy that carries its link.
func TestGrants(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteClosed+labtest.SiteHidden, grid.Config{})
	bin, examples := labtest.Program(t, ""), labtest.Program(t, "-lab")
	user := control.Identity{Role: control.RoleUser, Name: "alice"}
	alice, err := w.Issue(user, time.Now().Add(time.Hour), "climate", "fusion")
	if err != nil {
		t.Fatal(err)
	}

	t.Run("good", func(t *testing.T) {
		key := labtest.KeyFile(t)
		out, complaint, status := labtest.Run(t, exec.Command(bin, "job", "grant", "--cert", alice.Cert, "--tls-key", alice.Key, "--project", "climate", "--valid", "30m", key))
		if status != 0 {
			t.Fatalf("isthmus job grant: %s", complaint)
		}
		var outputs [2]bytes.Buffer
		var ends [2]chan error
		for i, node := range []string{"closed/n1", "hidden/n1"} {
			argv := []string{"run", "--key", key, "--size", "2", "--ranks", fmt.Sprintf("%d-%d", i, i), "--helper", w.Socket(node)}
			env := os.Environ()
			if i == 0 {
				argv = append(argv, "--user-cert", alice.Cert, "--user-key", alice.Key, "--project", "climate", "--valid", "30m")
			} else {
				env = append(env, grant.Env+"="+strings.TrimSpace(out))
			}
			cmd := w.Lab.Host(node).Command(w.Ctx, bin, append(argv, "--", examples, "example", "rendezvous", "--serve", "granted")...)
			cmd.Stdout, cmd.Stderr, cmd.Env = &outputs[i], &outputs[i], env
			ends[i] = make(chan error, 1)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { ends[i] <- cmd.Wait() }() // ends with w.ctx at the latest
		}
		w.AwaitNames(1)
		want := `[{"site":"closed","user":"alice","project":"climate","processes":1},{"site":"hidden","user":"alice","project":"climate","processes":1}]`
		var seen []string
		w.Until("alice's job in the broker's status", func() bool {
			seen = w.jobsFor(t)
			return slices.Contains(seen, want)
		}, func() string { return fmt.Sprint(seen) })
		if client := w.StartSolo("closed/n1", "--join", "granted"); client.Wait() != nil {
			t.Errorf("the client: %s", client.Out.String())
		}
		for i := range ends {
			if err := <-ends[i]; err != nil {
				t.Errorf("rank %d: %v: %s", i, err, outputs[i].String())
			}
		}
		w.Until("the proxy's line of alice's link", func() bool {
			return strings.Contains(w.Daemon("proxy p1").Log(), `"user":"alice","project":"climate"`)
		}, w.Daemon("proxy p1").Log)
		w.Until("the gateway's line of alice's link", func() bool {
			return strings.Contains(w.Daemon("frontal hidden").Log(), `"user":"alice","project":"climate"`)
		}, w.Daemon("frontal hidden").Log)
	})

	foreign, _, err := ca.New("elsewhere", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := foreign.Write(t.TempDir(), user, time.Now().Add(time.Hour), "climate")
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := w.Issue(control.Identity{Role: control.RoleProxy, Name: "p9"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	key := labtest.NewKey(t, "solo")
	now := time.Now()
	good := grant.Claims{Job: key.ID(), Project: "climate", Issued: now, Expires: now.Add(30 * time.Minute)}
	change := func(f func(*grant.Claims)) grant.Claims { c := good; f(&c); return c }
	for _, tc := range []struct {
		what   string
		claims grant.Claims
		cert   ca.Files // whose chain is shown
		key    string   // file of the key that signs
		want   string
	}{
		{"forged", good, alice, daemon.Key, "the grant is not good: it is forged: the key of its certificate did not sign it"},
		{"expired", change(func(c *grant.Claims) { c.Issued, c.Expires = now.Add(-time.Hour), now.Add(-time.Minute) }), alice, alice.Key, "the grant of alice for climate expired at "},
		{"another job's", change(func(c *grant.Claims) { c.Job = labtest.NewKey(t, "other").ID() }), alice, alice.Key, "the grant is not good: it is for job other-"},
		{"another's project", change(func(c *grant.Claims) { c.Project = "secret" }), alice, alice.Key, "the certificate of user alice does not name project secret"},
		{"another grid's", good, elsewhere, elsewhere.Key, "the certificate of user alice was not issued by this grid's CA"},
		{"a daemon's", good, daemon, daemon.Key, "the certificate is that of proxy p9, not of a user"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			w := w.sub(t)
			cmd := w.Lab.Host("hidden/n1").Command(w.Ctx, examples, "example", "rendezvous", "--serve", "refused")
			cmd.Env = append(os.Environ(), mpilib.EnvHelper+"="+w.Socket("hidden/n1"), jobkey.EnvKey+"="+key.String(), grant.Env+"="+grantOf(t, tc.claims, tc.cert.Cert, tc.key))
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "not permitted") || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v: %s\nwant %q", err, out, tc.want)
			}
		})
	}
}

// grantOf is a grant with one certificate, signed by any key.
func grantOf(t *testing.T, c grant.Claims, cert, key string) string {
	t.Helper()
	chain, err := tls.LoadX509KeyPair(cert, strings.TrimSuffix(cert, filepath.Ext(cert))+".key")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := tls.LoadX509KeyPair(strings.TrimSuffix(key, filepath.Ext(key))+".pem", key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := grant.Issue(c, chain.Certificate, signer.PrivateKey.(crypto.Signer))
	if err != nil {
		t.Fatal(err)
	}
	return grant.Text(b)
}

// jobsFor returns the user of each job according to the broker's status.
func (w *world) jobsFor(t *testing.T) (all []string) {
	t.Helper()
	st, err := w.Status(w.Ctx, "broker")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(st["jobs"])
	if err != nil {
		t.Fatal(err)
	}
	var jobs []struct {
		For []struct {
			Site      overlay.SiteID `json:"site"`
			User      string         `json:"user"`
			Project   string         `json:"project,omitempty"`
			Processes int            `json:"processes"`
		} `json:"for"`
	}
	if err := json.Unmarshal(text, &jobs); err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		line, err := json.Marshal(j.For)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(line))
	}
	return all
}
