//go:build system

package attack

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// commandOf returns an isthmus command of another user, who asks the helper of a node.
func (w *world) commandOf(uid uint32, node string, words ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.Ctx, labtest.Program(w.T, ""), words...)
	cmd.Env = append(os.Environ(), "ISTHMUS_HELPER="+w.Socket(node))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// killing leaves a process in a session of its own and kills all others of its account, the job's agent and guard
// among them.
const killing = `setsid sleep 86399 & left=$!
echo "ran as $(id -u), left $left, end"
read word
for f in /proc/[0-9]*; do
	pid=${f#/proc/}
	if [ "$pid" != $$ ] && [ "$pid" != $left ] && [ "$(stat -c %u $f 2>/dev/null)" = "$(id -u)" ]; then kill -9 $pid; fi
done
kill -9 $$`

// From within a job at one site nobody becomes a user of that site for the nodes that admit those, and a job that kills what
// guards it leaves nothing.
func TestJobsOfStrangers(t *testing.T) {
	if !labtest.IsRoot(t) {
		t.Skip("there is one account only")
	}
	const stranger = 4242
	jobs := map[string]any{"jobs": 4, "processes": 1}
	cfg := labtest.LaunchConfig(jobs)
	trail := t.TempDir()
	cfg.Settings["helper closed/n2"] = map[string]any{
		"offer": map[string]any{"jobs": 4, "processes": 1, "allow": []any{map[string]any{"site": "closed"}}},
		"audit": map[string]any{"folder": trail},
	}
	cfg.Settings["starter"] = map[string]any{"map": []any{map[string]any{"identity": "games@*/*", "account": "games"}}}
	cfg.Profile = labtest.NoTraversalProfile
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, cfg)
	w.AwaitHosts(4)

	t.Run("booking from within", func(t *testing.T) {
		w := w.sub(t)
		book := []string{"run", "--hosts", "n2@closed:1", "echo", "booked"}
		if stdout, stderr, status := labtest.Run(t, w.commandOf(stranger, "closed/n1", book...)); status != 0 || !strings.Contains(stdout, "booked") {
			t.Fatalf("a user of the site: status %d\n%s\n%s", status, stdout, stderr)
		}
		within := fmt.Sprintf("ISTHMUS_HELPER=%s %s %s; echo ended with $?", w.Socket("closed/n1"), labtest.Program(t, ""), strings.Join(book, " "))
		stdout, stderr, _ := labtest.Run(t, w.commandOf(stranger, "open/n1", "run", "--hosts", "n1@closed:1", "sh", "-c", within))
		if !strings.Contains(stdout, "ended with") || strings.Contains(stdout, "ended with 0") || strings.Contains(stdout, "booked\n") {
			t.Errorf("from within a job of another site's user:\n%s\n%s", stdout, stderr)
		}
		labtest.AwaitAudit(t, w.Ctx, trail, "the refusal of who submitted the job", func(r *audit.Record) bool {
			return r.Event == audit.Refusal && r.Rule == "offer" && strings.Contains(r.User+" "+r.Reason, fmt.Sprintf("%d@open/n1", stranger))
		})
	})

	t.Run("killing the guard", func(t *testing.T) {
		w := w.sub(t)
		const games = 5
		cmd := w.commandOf(games, "open/n1", "run", "--hosts", "n1@closed:1", "sh", "-c", killing)
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		job := w.Begin(cmd, ", end", 1)
		m := regexp.MustCompile(`ran as (\d+), left (\d+), end`).FindStringSubmatch(job.Output())
		if m == nil || m[1] != fmt.Sprint(games) {
			t.Fatalf("the job says %q", job.Output())
		}
		fmt.Fprintln(input, "go")
		if status := job.ExitStatus(w.World); status == 0 {
			t.Errorf("the job ended well:\n%s", job.Output())
		}
		w.Until("what the job left to be ended", func() bool { _, err := os.Stat("/proc/" + m[2]); return err != nil })
		if stdout, stderr, status := labtest.Run(t, w.commandOf(games, "open/n1", "run", "--hosts", "n1@closed:1", "echo", "next")); status != 0 || !strings.Contains(stdout, "next") {
			t.Errorf("the next job: status %d\n%s\n%s", status, stdout, stderr)
		}
	})
	w.AwaitNoJobs()
}
