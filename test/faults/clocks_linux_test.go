//go:build system

package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/link/sealed"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// skewed is a rank at a node whose clock is ahead by the given time, as far as its certificate is
// concerned: a test cannot set a clock of this machine, and its ranks are in this process.
func (w *world) skewed(key jobkey.Key, node string, rank, size uint32, ahead time.Duration) *labtest.Member {
	w.T.Helper()
	r, err := probe.JoinFor(w.Ctx, w.Grid, node, key, rank, nil)
	if err != nil {
		w.T.Fatal(err)
	}
	r.Identity.Credentials = sync.OnceValues(func() (sealed.Credentials, error) {
		return key.CertificatesBy(func() time.Time { return time.Now().Add(ahead) }, rank, r.Identity.Generation)
	})
	return w.Serve(r, size)
}

// Ranks at sites whose clocks differ by ten minutes get an encrypted link, whichever of them dials;
// if they differ by days they do not, and both ends get the reason.
func TestClocksDiffer(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteClosed+labtest.SiteOpen, grid.Config{})
	for _, ahead := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		for _, nodes := range [][2]string{{"closed/n1", "open/n1"}, {"open/n1", "closed/n1"}} {
			key := labtest.NewKey(t, "clocks")
			j := &labtest.Pair{A: w.skewed(key, nodes[0], 0, 2, ahead), B: w.Join(key, nodes[1], 1, 2)}
			w.Connect(j)
			if j.Near.Path.Cipher == "" {
				t.Errorf("%v from %s: %v is not encrypted", ahead, nodes[0], j.Near.Path)
			}
			w.Exchange(j)
			j.End(t)
		}
	}
	key := labtest.NewKey(t, "clocks")
	a, b := w.skewed(key, "closed/n1", 0, 2, 72*time.Hour), w.Join(key, "open/n1", 1, 2)
	for m, peer := range map[*labtest.Member]uint32{a: 1, b: 0} {
		if err := m.Mesh.Connect(w.Ctx, peer); err == nil || !strings.Contains(err.Error(), "by NTP") {
			t.Errorf("rank %d, with clocks three days apart: %v", 1-peer, err)
		}
	}
}

// aheadKey is how many seconds the clock of the program that withClock builds is ahead.
const aheadKey = "ISTHMUS_TEST_CLOCK_AHEAD"

func ahead(d time.Duration) []string { return []string{fmt.Sprintf("%s=%d", aheadKey, d/time.Second)} }

// withClock builds the program isthmus with a different clock: the toolchain's package time with
// one line more. Only the wall clock differs; the time between two readings is the machine's.
var withClock = sync.OnceValues(func() (program string, err error) {
	dir, err := labtest.Folder()
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(dir, "clock-"); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(src, "time.go"))
	if err != nil {
		return "", err
	}
	const read = "sec, nsec, mono := runtimeNow()\n"
	if n := strings.Count(string(text), read); n != 1 {
		return "", fmt.Errorf("time.go of %s reads the clock %d times by %q, want once", runtime.Version(), n, read)
	}
	files := map[string]string{
		"time.go": strings.Replace(string(text), read, read+"\tsec += ahead\n", 1),
		"ahead.go": `package time

import "syscall"

var ahead = func() (n int64) {
	text, _ := syscall.Getenv("` + aheadKey + `")
	for _, c := range []byte(text) {
		if c != '-' {
			n = 10*n + int64(c-'0')
		}
	}
	if text != "" && text[0] == '-' {
		return -n
	}
	return n
}()
`,
	}
	overlay := map[string]map[string]string{"Replace": {}}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return "", err
		}
		overlay["Replace"][filepath.Join(src, name)] = file
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o644); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "isthmus")
	args := []string{"build", "-buildvcs=false", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program}
	if labtest.RaceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, labtest.Module+"/cmd/isthmus")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building with another clock: %w\n%s", err, out)
	}
	return program, nil
})

// Each daemon in turn has a clock that is ten minutes ahead or behind: all join, and links are set
// up directly, by relay, and by techniques that need an instant that both ends agree on.
func TestDaemonsClocksDiffer(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	program, err := withClock()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, labtest.SiteClosed+labtest.SiteOpen+labtest.SiteShut+"  - {name: left, preset: stateful, nodes: 1}\n  - {name: right, preset: stateful, nodes: 1}\n", grid.Config{
		Binary: func(daemon string) []string { return []string{program, daemon} },
		Profile: func(site string, p overlay.SiteProfile) overlay.SiteProfile {
			if site != "left" && site != "right" {
				return labtest.FixedProfile(site, p)
			}
			p.Forbidden = []overlay.Technique{overlay.Relay, overlay.HolePunching, overlay.Traversing}
			return p
		},
	})
	for _, names := range [][]string{{"broker"}, {"proxy p1"}, {"frontal closed", "frontal left"}, {"helper closed/n1", "helper left/n1"}} {
		for _, d := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
			t.Run(fmt.Sprintf("%s %v", names[0], d), func(t *testing.T) {
				w := w.sub(t)
				set := func(env []string) {
					t.Helper()
					for _, name := range names {
						daemon := w.Daemon(name)
						if err := daemon.Stop(); err != nil {
							t.Fatal(err)
						}
						daemon.Env = env
						if err := daemon.Start(w.Ctx); err != nil {
							t.Fatal(err)
						}
					}
					if err := w.Settled(w.Ctx); err != nil {
						t.Fatal(err)
					}
				}
				set(ahead(d))
				defer set(nil)
				for _, way := range [][3]string{{"direct", "closed/n1", "open/n1"}, {"relay", "closed/n1", "shut/n1"}, {"simultaneous-open", "left/n1", "right/n1"}, {"simultaneous-open", "right/n1", "left/n1"}} {
					j := w.LinkPair(way[1], way[2])
					if got := labtest.PathOf(j.Near); got != way[0] {
						t.Errorf("%s to %s by %s, want %s", way[1], way[2], got, way[0])
					}
					j.End(t)
				}
			})
		}
	}
}

// A client that enrols and renews may have a clock that is ten minutes off, and so may the broker.
// If the clocks are off by days, each end gets an error that says so.
func TestEnrolClocksDiffer(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	program, err := withClock()
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []struct{ broker, proxy time.Duration }{
		{10 * time.Minute, 0}, {-10 * time.Minute, 0}, {0, 10 * time.Minute}, {0, -10 * time.Minute},
		{10 * time.Minute, -10 * time.Minute}, {-10 * time.Minute, 10 * time.Minute}, {-72 * time.Hour, 0}, {0, -72 * time.Hour},
	} {
		t.Run(fmt.Sprintf("broker %v proxy %v", off.broker, off.proxy), func(t *testing.T) {
			dir := t.TempDir()
			ca := func(d time.Duration, args ...string) (stdout, stderr string, status int) {
				cmd := exec.Command(program, append([]string{"ca"}, args...)...)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), ahead(d)...)
				return labtest.Run(t, cmd)
			}
			must := func(d time.Duration, args ...string) string {
				t.Helper()
				stdout, stderr, status := ca(d, args...)
				if status != 0 {
					t.Fatalf("ca %q: status %d: %s", args, status, stderr)
				}
				return strings.TrimSpace(stdout)
			}
			must(0, "init", "tg")
			must(0, "issue", "broker", "b1")
			must(0, "issuer")
			days := off.broker + off.proxy
			settings := "listen: 127.0.0.1:0\nstun_listen: \"\"\nallow_loopback: true\n" +
				"tls: {cert: broker-b1.pem, key: broker-b1.key, ca: ca.pem}\n" +
				"store: broker.db\nenrol: {cert: issuer.pem, key: issuer.key}\n"
			if err := os.WriteFile(filepath.Join(dir, "broker.yaml"), []byte(settings), 0o600); err != nil {
				t.Fatal(err)
			}
			daemon := exec.Command(program, "broker", "--config", filepath.Join(dir, "broker.yaml"))
			daemon.Env = append(os.Environ(), ahead(off.broker)...)
			if off.broker == days && days < -time.Hour {
				out, err := daemon.CombinedOutput()
				if err == nil || !strings.Contains(string(out), "by NTP") {
					t.Errorf("a broker whose certificate is of the future: %v: %s", err, out)
				}
				return
			}
			broker := labtest.StartDaemon(t, daemon)
			token := must(0, "token", "proxy", "p1")
			enrol := []string{"enroll", "--broker", broker, "--token", token, "--out", "p1"}
			if days < -time.Hour {
				if _, stderr, status := ca(off.proxy, enrol...); status == 0 || !strings.Contains(stderr, "by NTP") {
					t.Errorf("enrolled with a clock three days behind: status %d: %s", status, stderr)
				}
				return
			}
			must(off.proxy, enrol...)
			must(off.proxy, "renew", "--broker", broker, "--cert", "p1/proxy-p1.pem", "--tls-key", "p1/proxy-p1.key", "--ca", "p1/ca.pem")
		})
	}
}
