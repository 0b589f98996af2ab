//go:build system

package launch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// replicaJob is a running job of two ranks with two replicas each. The program sends no messages: it is
// about what the launcher does.
type replicaJob struct {
	*labtest.Background
	t       *testing.T
	w       *world
	dir     string   // has a file with the id of each process, RANK.REPLICA
	results string   // where the files go that are fetched
	input   *os.File // of rank 0
}

// startReplicas starts the job, and returns when all processes run.
func startReplicas(t *testing.T, w *world, where ...string) *replicaJob {
	t.Helper()
	j := &replicaJob{t: t, w: w, dir: enterable(t), results: filepath.Join(t.TempDir(), "results")}
	if err := os.Chmod(j.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	t.Cleanup(func() { ours.Close() })
	program := fmt.Sprintf("cd %s && me=$ISTHMUS_RANK.$ISTHMUS_COPY; echo before of $ISTHMUS_RANK; echo $$ >new.$me; mv new.$me pid.$me; cd - >/dev/null\n"+
		"while [ ! -e %s/go ]; do sleep 0.1; done\n"+
		"while read word; do echo heard $word; done; echo $ISTHMUS_COPIES $ISTHMUS_REPLICA_TABLE; echo $me >result.$ISTHMUS_RANK; echo after of $ISTHMUS_RANK", j.dir, j.dir)
	words := append([]string{"run", "--replicas", "2", "--fetch", "result.*", "--fetch-to", j.results}, where...)
	cmd := w.Isthmus(append(words, "sh", "-c", program)...)
	cmd.Stdin, j.input = theirs, ours
	j.Background = w.Begin(cmd, "before of", 2)
	w.Until("all replicas to run", func() bool {
		all, _ := filepath.Glob(filepath.Join(j.dir, "pid.*"))
		return len(all) == 4
	}, j.Output)
	return j
}

// kill kills a process.
func (j *replicaJob) kill(who string) {
	j.t.Helper()
	text, err := os.ReadFile(filepath.Join(j.dir, "pid."+who))
	if err != nil {
		j.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		j.t.Fatal(err)
	}
}

// await waits for a line of the launcher.
func (j *replicaJob) await(line string) {
	j.t.Helper()
	j.w.Until(line, func() bool { return strings.Contains(j.Output(), line) }, j.Output)
}

// finishes lets the processes end, and checks that nothing of the deaths is seen: the output is that
// of ranks without replicas, and the files are those of the lowest replica that did not die.
func (j *replicaJob) finishes(dead []string) {
	j.t.Helper()
	j.input.WriteString("two\n")
	j.input.Close()
	if err := os.WriteFile(filepath.Join(j.dir, "go"), nil, 0o644); err != nil {
		j.t.Fatal(err)
	}
	if status := j.ExitStatus(j.w.World); status != 0 {
		j.t.Errorf("status %d:\n%s", status, j.Output())
	}
	var lines []string
	for line := range strings.Lines(j.Output()) {
		if strings.HasPrefix(line, "[") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	want := "[0] 2 parallel\n[0] after of 0\n[0] before of 0\n[0] heard one\n[0] heard two\n[1] 2 parallel\n[1] after of 1\n[1] before of 1\n"
	if got := strings.Join(lines, ""); got != want {
		j.t.Errorf("got\n%swant\n%s", got, want)
	}
	for rank := range 2 {
		from := fmt.Sprintf("%d.0", rank)
		if slices.Contains(dead, from) {
			from = fmt.Sprintf("%d.1", rank)
		}
		found := false
		files, _ := filepath.Glob(filepath.Join(j.results, "*", "*", fmt.Sprintf("result.%d", rank)))
		for _, name := range files {
			text, err := os.ReadFile(name)
			found = found || err == nil && string(text) == from+"\n"
		}
		if !found {
			j.t.Errorf("none of %q is of %s", files, from)
		}
	}
}

// checkLive checks that isthmus ps shows all processes but those that died.
func (j *replicaJob) checkLive(dead []string) {
	j.t.Helper()
	var job struct{ Live [][]int }
	out, err := j.w.Isthmus("ps", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &job)
	}
	var live []string
	for rank, replicas := range job.Live {
		for _, c := range replicas {
			live = append(live, fmt.Sprintf("%d.%d", rank, c))
		}
	}
	want := slices.DeleteFunc([]string{"0.0", "0.1", "1.0", "1.1"}, func(who string) bool { return slices.Contains(dead, who) })
	if err != nil || !slices.Equal(live, want) {
		j.t.Errorf("isthmus ps shows %q, want %q: %s, %v", live, want, out, err)
	}
}

// deathOf is how the launcher begins to report the death of a process.
func deathOf(who string) string {
	rank, replica, _ := strings.Cut(who, ".")
	return fmt.Sprintf("rank %s: replica %s has died: ", rank, replica)
}

// A job whose ranks have replicas at two sites ends well while each rank has one, whichever processes
// and hosts die, and not beyond.
func TestReplicasThatDie(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, threeSites())
	w.AwaitHosts(4)
	for _, dead := range []string{"1.0", "0.1", "0.0 1.1"} {
		t.Run(dead, func(t *testing.T) {
			dead := strings.Fields(dead)
			j := startReplicas(t, w, "-n", "2", "--strategy", "auto")
			j.input.WriteString("one\n")
			for _, who := range dead {
				j.kill(who)
				j.await(deathOf(who) + "signal: killed")
			}
			j.checkLive(dead)
			j.finishes(dead)
			w.AwaitNoJobs()
		})
	}
	t.Run("rank", func(t *testing.T) {
		j := startReplicas(t, w, "-n", "2", "--strategy", "auto")
		j.kill("1.0")
		j.await(deathOf("1.0"))
		j.kill("1.1")
		if status := j.ExitStatus(w.World); status != 128+int(syscall.SIGKILL) || !strings.Contains(j.Output(), "rank 1: replica 1: signal: killed") {
			t.Errorf("status %d when rank 1 is lost:\n%s", status, j.Output())
		}
		w.AwaitNoJobs()
	})
	t.Run("pinned", func(t *testing.T) {
		out := w.ends(0, "", w.Isthmus("run", "-n", "2", "--replicas", "2", "--pin-rank0", "sh", "-c", "echo rank $ISTHMUS_RANK"))
		lines := strings.SplitAfter(out, "\n")
		slices.Sort(lines)
		if got, want := strings.Join(lines, ""), "[1] rank 1\n[open/n1:0] rank 0\n"; got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
	t.Run("differ", func(t *testing.T) {
		out := w.ends(1, "rank 1: standard output: replicas 0 and 1 have written different bytes, from byte 8 on", w.Isthmus("run", "-n", "2", "--replicas", "2", "sh", "-c", "[ $ISTHMUS_RANK = 0 ] || echo replica $ISTHMUS_COPY"))
		if out != "[1] replica 0\n" {
			t.Errorf("it wrote\n%s", out)
		}
	})
	t.Run("diagnostics", func(t *testing.T) {
		_, stderr, status := labtest.Run(t, w.Isthmus("run", "-n", "1", "--replicas", "2", "sh", "-c", "echo replica $ISTHMUS_COPY >&2"))
		if status != 0 || strings.Count(stderr, "[0.0] replica 0\n") != 1 || strings.Count(stderr, "[0.1] replica 1\n") != 1 {
			t.Errorf("status %d, and it wrote\n%s", status, stderr)
		}
	})
	t.Run("host", func(t *testing.T) {
		j := startReplicas(t, w, "--hosts", "n1@closed:2,n2@open:2")
		j.input.WriteString("one\n")
		w.Daemon("helper closed/n1").Kill()
		dead := []string{"0.0", "1.0"}
		for _, who := range dead {
			j.await(deathOf(who) + "lost with closed/n1")
		}
		j.checkLive(dead)
		j.finishes(dead)
		if err := w.Daemon("helper closed/n1").Start(w.Ctx); err != nil {
			t.Fatal(err)
		}
		w.AwaitNoJobs()
	})
}

// A program whose ranks exchange messages verifies its results, and prints them once, whichever
// replica dies at whatever moment.
func TestReplicatedKernels(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, threeSites())
	w.AwaitHosts(4)
	examples := labtest.Program(t, "-lab")
	for i, kernel := range []string{"is", "cg", "mg", "ft", "ep"} {
		for _, victim := range []string{"", fmt.Sprintf("%d.%d", i%4, i%2)} {
			t.Run(kernel+"/"+victim, func(t *testing.T) {
				program := fmt.Sprintf("[ $ISTHMUS_RANK.$ISTHMUS_COPY != %q ] || (sleep 0.%d; kill -9 $$) & exec %s example %s --class S", victim, i, examples, kernel)
				out := w.ends(0, "", w.Isthmus("run", "-n", "4", "--replicas", "2", "--strategy", "auto", "sh", "-c", program))
				if n := strings.Count(out, "SUCCESSFUL"); n != 1 {
					t.Errorf("SUCCESSFUL is printed %d times:\n%s", n, out)
				}
			})
		}
	}
	w.AwaitNoJobs()
}

// Programs that go by where their ranks are, by the clock, and by who comes first, do so alike in all replicas of a rank, though the
// sets are placed otherwise: the first one is at two sites, and the second one has its ranks there in another order. The map shows all.
func TestReplicatedPrograms(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, threeSites())
	w.AwaitHosts(4)
	examples := labtest.Program(t, "-lab")
	hosts := "n1@open:2,n1@closed:2,n2@closed:2,n2@open:2"
	for _, program := range []struct{ args, want string }{
		{"tsqr --rows 2000 --cols 6 --repeat 2 --json", `"sites":2`},
		{"ray2mesh --rays 200 --pattern vanilla,hierarchical --json", `"sites":2`},
		{"traffic --for 1s", "all right"},
		{"pingpong --max 1024 --reps 3", "1024"},
	} {
		name, _, _ := strings.Cut(program.args, " ")
		t.Run(name, func(t *testing.T) {
			stdout, stderr, status := labtest.Run(t, w.Isthmus(append([]string{"run", "--replicas", "2", "--hosts", hosts, "--installed", "--show-map", examples, "example"}, strings.Fields(program.args)...)...))
			if status != 0 || !strings.Contains(stdout, program.want) || strings.Contains(stderr, "than another") {
				t.Errorf("status %d, want %s in\n%s\nand no difference in\n%s", status, program.want, stdout, stderr)
			}
			for _, want := range []string{"where the 4 ranks ran, in replicas", "ranks 0-1\n", "ranks 2-3\n", "ranks 0-1/1\n", "ranks 2-3/1\n"} {
				if !strings.Contains(stderr, want) {
					t.Errorf("no %q in\n%s", want, stderr)
				}
			}
		})
	}
	w.AwaitNoJobs()
}
