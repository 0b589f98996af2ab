//go:build system

package launch

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// tenant is a user who launches a job on closed/n1, which reports its identity and waits.
type tenant struct {
	uid   uint32
	want  string // the account that the job gets; "": an unused one
	job   *labtest.Background
	input io.WriteCloser
	ran   string // as what: a uid
	pid   string
	dir   string
}

// asUser runs a command as another user.
func (w *world) asUser(uid uint32, words ...string) *labtest.Background {
	cmd := w.Isthmus(words...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return &labtest.Background{Cmd: cmd}
}

const tenancy = `umask 022; echo secret >secret; umask 077; echo secret >/dev/shm/isthmus-test-$(id -u)
echo "ran as $(id -u), called $(id -un 2>/dev/null), pid $$, in $PWD, end"
read word; rm -f /dev/shm/isthmus-test-$(id -u)`

// steal tries to read a process's data, its folder, and the node's key. The arguments are the
// process, the folder, the uid and the files of keys.
const steal = `try() { what=$1; shift; if "$@" >/dev/null 2>&1; then echo "can $what"; else echo "cannot $what"; fi; }
pid=$1 dir=$2 uid=$3; shift 3
try environment cat /proc/$pid/environ
try job-key cat /proc/$pid/fd/19
try memory cat /proc/$pid/maps
try file cat $dir/secret
try shared-memory cat /dev/shm/isthmus-test-$uid
try signal kill -0 $pid
for f in "$@"; do try node-key cat "$f"; done
echo over`

// Each user's jobs run in a separate account: mapped users in theirs, others in an unused one. None
// can read another's files, environment, job key, memory or shared memory, nor the keys of the
// node.
func TestAccountsOfJobs(t *testing.T) {
	t.Parallel() // most of it is waiting
	if !labtest.IsRoot(t) {
		t.Skip("there is one account only")
	}
	cfg := labtest.LaunchConfig(map[string]any{"jobs": 9, "processes": 1})
	trail := t.TempDir()
	cfg.Settings["starter"] = map[string]any{
		"map": []any{
			map[string]any{"identity": "games@*/*", "account": "games"},
			map[string]any{"identity": "nobody@*/*", "account": "nobody"},
		},
	}
	cfg.Settings["starter closed/n1"] = map[string]any{"audit": map[string]any{"folder": trail}}
	cfg.Profile = labtest.NoTraversalProfile
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, cfg)
	w.AwaitHosts(4)
	tenants := []*tenant{{uid: 5, want: "games"}, {uid: labtest.Nobody, want: "nobody"}, {uid: 4242}, {uid: 4243}}
	told := regexp.MustCompile(`ran as (\d+), called (\w*), pid (\d+), in (\S+), end`)
	for _, u := range tenants {
		u.job = w.asUser(u.uid, "run", "--hosts", "n1@closed:1", "sh", "-c", tenancy)
		input, err := u.job.Cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		u.input = input
		u.job = w.Begin(u.job.Cmd, ", end", 1)
		m := told.FindStringSubmatch(u.job.Output())
		if m == nil || u.want != "" && m[2] != u.want {
			t.Fatalf("the job of %d says %q", u.uid, u.job.Output())
		}
		u.ran, u.pid, u.dir = m[1], m[3], m[4]
		for _, other := range tenants {
			if other != u && other.ran == u.ran || u.ran == "0" || u.want == "" && !strings.HasPrefix(u.ran, "190") {
				t.Errorf("the jobs of %d and %d run as %s", u.uid, other.uid, u.ran)
			}
		}
	}
	keys, err := filepath.Glob(filepath.Join(filepath.Dir(w.Store("closed/n1")), "*key*"))
	if err != nil || len(keys) == 0 {
		t.Fatalf("the node has no keys: %v", err)
	}
	for _, thief := range tenants {
		for _, victim := range tenants {
			words := append([]string{"run", "--hosts", "n1@closed:1", "sh", "-c", steal, "sh", victim.pid, victim.dir, victim.ran}, keys...)
			stdout, stderr, status := labtest.Run(t, w.asUser(thief.uid, words...).Cmd)
			own, got := strings.Count(stdout, "] can "), strings.Count(stdout, "] cannot ")
			switch {
			case status != 0 || !strings.Contains(stdout, "] over"):
				t.Errorf("%d: status %d\n%s\n%s", thief.uid, status, stdout, stderr)
			case thief == victim && (own < 5 || strings.Contains(stdout, "can node-key")):
				t.Errorf("a job of %d is to reach what is its own, and nothing else:\n%s", thief.uid, stdout)
			case thief != victim && (own != 0 || got != 6+len(keys)):
				t.Errorf("a job of %d reaches what is %d's:\n%s", thief.uid, victim.uid, stdout)
			}
		}
	}
	t.Run("starter killed", func(t *testing.T) { w.starterKilled(tenants) })
	for _, u := range tenants {
		u.input.Close()
		if status := u.job.ExitStatus(w.World); status != 0 {
			t.Errorf("the job of %d ends with %d:\n%s", u.uid, status, u.job.Output())
		}
	}
	w.AwaitNoJobs()
	w.nothingOf("closed/n1")
	log := textsIn(t, trail)
	for _, want := range []string{`"user":"games@open/n1"`, fmt.Sprintf("as uid %s, pid", tenants[2].ran)} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log of the starter does not say %s:\n%s", want, log)
		}
	}
}

// starterKilled kills the starter while jobs run: they continue, and the next starter gives their
// accounts to no other user.
func (w *world) starterKilled(tenants []*tenant) {
	w.T.Helper()
	w.Starter("closed/n1").Kill()
	if err := w.Starter("closed/n1").Start(w.Ctx); err != nil {
		w.T.Fatal(err)
	}
	stdout, stderr, status := labtest.Run(w.T, w.asUser(4244, "run", "--hosts", "n1@closed:1", "sh", "-c", "echo uid $(id -u)").Cmd)
	for _, u := range tenants {
		if status != 0 || strings.Contains(stdout, "uid "+u.ran+"\n") {
			w.T.Errorf("after the starter was killed a job runs as %d's account, status %d:\n%s\n%s", u.uid, status, stdout, stderr)
		}
		if _, err := os.Stat("/proc/" + u.pid); err != nil {
			w.T.Errorf("the job of %d ended with the starter", u.uid)
		}
	}
}

// textsIn returns the contents of the files in a folder.
func textsIn(t *testing.T, folder string) (all string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	return all
}
