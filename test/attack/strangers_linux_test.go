//go:build system

package attack

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
	"github.com/isthmus-grid/isthmus/wire"
)

// The identities that the tests below use, and some that they should not use.
var (
	asProxy   = control.Identity{Role: control.RoleProxy, Name: "px"}
	asHelper  = control.Identity{Role: control.RoleHelper, Site: "closed", Name: "nx"}
	asFrontal = control.Identity{Role: control.RoleFrontal, Site: "closed"}
	asBroker  = control.Identity{Role: control.RoleBroker, Name: "bx"}
	asAdmin   = control.Identity{Role: control.RoleAdmin, Name: "ax"}
)

// Every daemon refuses to start with a certificate that is not for it, has expired, or is of
// another grid, and reports that in one line.
func TestDaemonsCheckTheirOwnCertificate(t *testing.T) {
	labtest.NeedLab(t)
	dir := t.TempDir()
	authority, stranger := newCA(t), newCA(t)
	over := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, d := range []struct {
		name     string
		settings string
		own      control.Identity
		other    control.Identity
		role     string // the error for a certificate of another role
	}{
		{"broker", "listen: 127.0.0.1:0", asBroker, asHelper, "it is the certificate of helper closed/nx, and these are the settings of a broker"},
		{"frontal", "site: closed\nbroker: 127.0.0.1:1\nlisten: 127.0.0.1:0", asFrontal, asHelper, "it is the certificate of helper closed/nx, and these are the settings of a frontal"},
		{"proxy", "listen: [127.0.0.1:0]\nbroker: 127.0.0.1:1", asProxy, asFrontal, "it is the certificate of frontal closed, and these are the settings of a proxy"},
		{"helper", "frontal: 127.0.0.1:1\nsocket: " + dir + "/h.sock", asHelper, asFrontal, "it is the certificate of frontal closed, and these are the settings of a helper"},
	} {
		for _, tc := range []struct {
			name string
			by   *ca.CA
			id   control.Identity
			end  time.Time
			want string
		}{
			{"wrong role", authority, d.other, time.Now().Add(time.Hour), d.role},
			{"expired", authority, d.own, over, "own certificate: the certificate of " + d.own.String() + " expired at 2020-02-03T04:05:06Z; issue a new one"},
			{"foreign", stranger, d.own, time.Now().Add(time.Hour), "own certificate: the certificate of " + d.own.String() + " was not issued by this grid's CA"},
		} {
			t.Run(d.name+" "+tc.name, func(t *testing.T) {
				files, err := tc.by.Write(t.TempDir(), tc.id, tc.end)
				if err != nil {
					t.Fatal(err)
				}
				root := filepath.Join(dir, "root.pem")
				if err := os.WriteFile(root, authority.CertPEM(), 0o600); err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(t.TempDir(), "settings.yaml")
				text := fmt.Sprintf("%s\ntls: {cert: %s, key: %s, ca: %s}\n", d.settings, files.Cert, files.Key, root)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				_, stderr, status := labtest.Run(t, exec.Command(labtest.Program(t, "-"+d.name), "--config", file))
				last := stderr[strings.LastIndexByte(strings.TrimSuffix(stderr, "\n"), '\n')+1:]
				if status != 1 || !strings.HasPrefix(last, "isthmus-"+d.name+": ") || !strings.HasSuffix(last, tc.want+"\n") && !strings.Contains(last, tc.want) {
					t.Errorf("status %d:\n%swant %s", status, stderr, tc.want)
				}
			})
		}
	}
}

func newCA(t *testing.T) *ca.CA {
	t.Helper()
	a, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A client whose certificate gives it no access to a daemon gets a reason, and the daemon logs it.
func TestDaemonsRefuseStrangers(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, grid.Config{})
	f := w.StartFlow(w.LinkPair("closed/n1", "shut/n1"))
	stranger := newCA(t)
	over := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	hour := time.Now().Add(time.Hour)
	broker := netip.AddrPortFrom(w.Daemon("broker").Host.Addr(), 443)
	frontal := netip.AddrPortFrom(w.Daemon("frontal closed").Host.Addr(), 7440)
	type show = func() (ca.Files, error)
	foreign := func(id control.Identity) show {
		return func() (ca.Files, error) { return stranger.Write(t.TempDir(), id, hour) }
	}
	issued := func(id control.Identity, end time.Time) show { // its files last until the next of that identity
		return func() (ca.Files, error) { return w.Issue(id, end) }
	}
	otherSite := control.Identity{Role: control.RoleHelper, Site: "shut", Name: "nx"}
	for _, tc := range []struct {
		name   string
		daemon string
		at     netip.AddrPort
		show   show
		want   string
	}{
		{"helper at the broker", "broker", broker, issued(asHelper, hour), "helper closed/nx"},
		{"broker at the broker", "broker", broker, issued(asBroker, hour), "broker bx"},
		{"expired at the broker", "broker", broker, issued(asProxy, over), "the certificate of proxy px expired at 2020-02-03T04:05:06Z; issue a new one"},
		{"foreign at the broker", "broker", broker, foreign(asFrontal), "the certificate of frontal closed was not issued by this grid's CA"},
		{"proxy at a frontal", "frontal closed", frontal, issued(asProxy, hour), "proxy px has no business with frontal closed, which serves the helpers of its site"},
		{"other site's helper at a frontal", "frontal closed", frontal, issued(otherSite, hour), "helper shut/nx belongs to another site than frontal closed"},
		{"expired at a frontal", "frontal closed", frontal, issued(asHelper, over), "the certificate of helper closed/nx expired at 2020-02-03T04:05:06Z; issue a new one"},
		{"foreign at a frontal", "frontal closed", frontal, foreign(asHelper), "the certificate of helper closed/nx was not issued by this grid's CA"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := w.sub(t)
			files, err := tc.show()
			if err != nil {
				t.Fatal(err)
			}
			refuse := w.refusedByTLS(tc.daemon, tc.at, files, nil)
			if !strings.Contains(refuse.Text, tc.want) || refuse.Code != wire.CodeForbidden {
				t.Errorf("told %+v, want %q", refuse, tc.want)
			}
			w.AwaitLog(tc.daemon, "control session refused", refuse.Text)
		})
	}
	w.AwaitFlows("after all strangers were refused", []*labtest.Flow{f})
	w.LinkPair("closed/n1", "shut/n1")
}

// refusedByTLS shows a certificate at a daemon's control port, from the
// daemon's own host, writes what is given and returns the refusal it gets.
func (w *world) refusedByTLS(daemon string, at netip.AddrPort, show ca.Files, write []byte) *wire.Refuse {
	w.T.Helper()
	pair, err := tls.LoadX509KeyPair(show.Cert, show.Key)
	if err != nil {
		w.T.Fatal(err)
	}
	raw, err := w.Daemon(daemon).Host.Dial(w.Ctx, "tcp", at.String())
	if err != nil {
		w.T.Fatal(err)
	}
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(30 * time.Second))
	c := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, NextProtos: []string{"isthmus-control"}})
	if _, err := c.Write(write); err != nil {
		w.T.Fatal(err)
	}
	return w.refusal(c)
}

// refusal reads the required refusal, possibly after a hello.
func (w *world) refusal(c net.Conn) *wire.Refuse {
	w.T.Helper()
	for {
		frame, err := wire.Read(c)
		if err != nil {
			w.T.Fatalf("waiting for a refusal: %v", err)
		}
		if r, ok := frame.(*wire.Refuse); ok {
			return r
		}
		if _, hello := frame.(*wire.ControlHello); !hello {
			w.T.Fatalf("got a %v, want a refusal", frame.Type())
		}
	}
}

// A process of another job can neither impersonate one of this job at the helper nor, if it knew
// how to be dialled, at its peers.
func TestProcessesOfAnotherJob(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteOpen, grid.Config{})
	ours, theirs := labtest.NewKey(t, "ours"), labtest.NewKey(t, "theirs")

	pretender := local.NewClient(local.ClientConfig{
		Socket: w.Socket("closed/n1"), Process: overlay.ProcessName{Job: ours.ID(), Rank: 1}, Generation: 1, Auth: theirs.Auth(),
	})
	err := pretender.Serve(w.Ctx)
	want := fmt.Sprintf("helper closed/n1: not permitted: process %d of user %d does not hold the key of job %s", os.Getpid(), os.Geteuid(), ours.ID())
	if err == nil || err.Error() != want || !errors.Is(err, overlay.ErrForbidden) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	w.AwaitLog("helper closed/n1", "process refused", "does not hold the key of job "+string(ours.ID()))

	// An attacker that stole what is shown to helpers, but not the key of the links.
	asker := w.Join(ours, "closed/n1", 0, 2)
	thief, err := probe.Join(w.Ctx, w.Grid, "open/n1", ours, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(thief.Leave)
	accepted := make(chan error, 1)
	go func() {
		c, err := thief.Connector().Accept(w.Ctx)
		if err == nil {
			self := thief.Identity
			self.Key = theirs.Links()
			_, err = link.Establish(w.Ctx, c, self, nil, func(*wire.Hello) error { return nil })
		}
		accepted <- err
	}()
	const cause = "not permitted: its proof is wrong: it does not have the job's key, or an attacker replays or modifies messages"
	_, _, err = asker.Dial(w.Ctx, 1)
	labtest.WantError(t, err, overlay.ErrForbidden, ours.ID(), "link to rank 1 of job <job> (direct): "+cause)
	labtest.WantError(t, <-accepted, overlay.ErrForbidden, ours.ID(), "link to rank 0 of job <job> (direct): it says: "+cause)

	// The same rank of another job is another process: none waits for it here.
	lonely := w.Join(theirs, "closed/n1", 0, 2)
	ctx, cancel := context.WithTimeout(w.Ctx, 10*time.Second)
	defer cancel()
	_, _, err = lonely.Dial(ctx, 1)
	if !errors.Is(err, overlay.ErrUnknownProcess) || !regexp.MustCompile(`rank 1 of job `+string(theirs.ID())+`: .*waited .* for it to start`).MatchString(err.Error()) {
		t.Errorf("got %v", err)
	}
}
