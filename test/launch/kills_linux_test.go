//go:build system

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// killsKey, in the environment, says how many kills of processes TestKills makes, and how many of daemons and sites, as
// "200,40", from a random seed, of all kernels; without it there are two kills of processes. killSeedKey is the seed.
const (
	killsKey    = "ISTHMUS_TEST_KILLS"
	killSeedKey = "ISTHMUS_TEST_SEED"
)

// Replicas 0 of the four ranks are at one closed site, and replicas 1 at the other.
var killSites = []string{"closed", "east"}

const killHosts = "n1@closed:2,n2@closed:2,n1@east:2,n2@east:2"

var killNodes = []string{"closed/n1", "closed/n2", "east/n1", "east/n2"}

// hostOf returns the node on which a process of killHosts runs.
func hostOf(rank, replica int) string {
	return fmt.Sprintf("%s/n%d", killSites[replica], 1+rank/2)
}

// kill is one that is due: of whom, and after how many reads and writes of which process.
type kill struct {
	victim        string // "0.1": a process; "helper closed/n1", "frontal east": a daemon; "site east"
	rank, replica int    // whose progress decides the moment
	after         int
	again         bool // the daemon is started again at once
}

func (k kill) String() string {
	text := fmt.Sprintf("%s after %d calls of %d.%d", k.victim, k.after, k.rank, k.replica)
	if k.again {
		text += ", started again"
	}
	return text
}

// processKills draws kills of one to most processes, of different ranks.
func processKills(rng *rand.Rand, calls, most int) (all []kill) {
	for _, rank := range rng.Perm(4)[:1+rng.IntN(min(4, most))] {
		replica := rng.IntN(2)
		all = append(all, kill{victim: fmt.Sprintf("%d.%d", rank, replica), rank: rank, replica: replica, after: rng.IntN(calls)})
	}
	return all
}

// daemonKill draws one of a helper, a frontal and a site in turn. A frontal is started again at once: without it no links
// are made at its site, and a process that still needs one fails after a minute.
func daemonKill(rng *rand.Rand, calls, turn int) kill {
	rank, replica := rng.IntN(4), rng.IntN(2)
	victim := []string{"helper " + hostOf(rank, replica), "frontal " + killSites[replica], "site " + killSites[replica]}[turn%3]
	again := rng.IntN(2) == 0 || turn%3 == 1
	return kill{victim, rank, replica, rng.IntN(calls), again}
}

// killRun is one job of an example under which processes or daemons are killed.
type killRun struct {
	w      *world
	t      *testing.T
	kernel string // the example
	dir    string // has a file with the id of each process, RANK.REPLICA
}

// words are those of isthmus run.
func (r *killRun) words(replicas int) []string {
	program := fmt.Sprintf("here=$PWD; cd %s && me=$ISTHMUS_RANK.${ISTHMUS_COPY:-0}; echo $$ >new.$me; mv new.$me pid.$me; cd $here; exec %s example %s %s",
		r.dir, labtest.Program(r.t, "-lab"), r.kernel, r.arguments())
	hosts := killHosts
	if replicas == 1 {
		hosts = strings.ReplaceAll(hosts, ":2", ":1")
	}
	return []string{"run", "--hosts", hosts, "--replicas", fmt.Sprint(replicas), "--hang", "1s", "sh", "-c", program}
}

// differing are examples of which two runs differ in what they print.
var differing = map[string]struct{ arguments, success string }{
	"ray2mesh": {"--rays 300 --pattern vanilla", "yes"},
	"choices":  {"--rounds 30", "SUCCESSFUL"},
}

// arguments are those of the example.
func (r *killRun) arguments() string {
	if d, ok := differing[r.kernel]; ok {
		return d.arguments
	}
	return "--class S"
}

// success is what the example prints once if its results are right.
func (r *killRun) success() string {
	if d, ok := differing[r.kernel]; ok {
		return d.success
	}
	return "SUCCESSFUL"
}

// calls returns how many reads and writes a process has made by now; it is not ok once it has ended.
func calls(pid int) (n int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ": "); name == "syscr" || name == "syscw" {
			m, _ := strconv.Atoi(value)
			n += m
		}
	}
	return n, true
}

// pid returns a process's number once it has begun, or 0 when the job is over.
func (r *killRun) pid(ctx context.Context, rank, replica int) int {
	for ctx.Err() == nil {
		text, err := os.ReadFile(filepath.Join(r.dir, fmt.Sprintf("pid.%d.%d", rank, replica)))
		if err == nil {
			pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
			return pid
		}
		pause()
	}
	return 0
}

// reach waits until a process has made that many calls, and returns how many it has made; fewer
// if it ended before.
func (r *killRun) reach(ctx context.Context, rank, replica, after int) (pid, last int) {
	pid = r.pid(ctx, rank, replica)
	for pid != 0 && ctx.Err() == nil {
		n, ok := calls(pid)
		if !ok {
			break
		}
		if last = n; last >= after {
			break
		}
		pause()
	}
	return pid, last
}

// pause lets others run before something is looked at again that nothing announces.
func pause() { time.Sleep(time.Millisecond) }

// begun waits until the job has been committed at every node, and its submitter knows: a daemon that is lost before that
// ends the job, which then has not begun. It returns false when the job is over.
func (r *killRun) begun(ctx context.Context) bool {
	for ctx.Err() == nil {
		if !slices.ContainsFunc(killNodes, func(node string) bool { return !r.w.committed(node) }) {
			return r.w.Isthmus("ps").Run() == nil // by then the answers have left, too
		}
		pause()
	}
	return false
}

// strike carries out a kill, and reports whether it met what it was to meet.
func (r *killRun) strike(ctx context.Context, k kill) bool {
	kind, name, daemon := strings.Cut(k.victim, " ")
	if daemon && !r.begun(ctx) {
		return false
	}
	pid, n := r.reach(ctx, k.rank, k.replica, k.after)
	if pid == 0 || n < k.after {
		return false
	}
	switch kind {
	case "helper", "frontal":
		r.w.Daemon(k.victim).Kill()
		if k.again {
			if err := r.w.Daemon(k.victim).Start(r.w.Ctx); err != nil {
				r.t.Error(err)
			}
		}
	case "site":
		r.killSite(name)
	default:
		return syscall.Kill(pid, syscall.SIGKILL) == nil
	}
	return true
}

// killSite kills all daemons and processes of a site.
func (r *killRun) killSite(site string) {
	r.w.Daemon("frontal " + site).Kill()
	r.w.killHosts(site+"/n1", site+"/n2")
}

// killHosts kills all processes of hosts but for the starters of accounts, which the lab starts once. They are known by
// their numbers: their program is that of all daemons.
func (w *world) killHosts(nodes ...string) {
	for _, node := range nodes {
		w.Daemon("helper " + node).Kill()
	}
	for _, node := range nodes {
		starter := 0
		if d := w.Starter(node); d != nil {
			starter = d.PID()
		}
		w.signalAll(node, syscall.SIGKILL, starter)
	}
}

// processesAt returns the processes in a host's namespace.
func (w *world) processesAt(host string) (pids []int) {
	var own string
	if err := w.Lab.Host(host).Do(func() (err error) {
		own, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		w.T.Error(err)
	}
	all, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, name := range all {
		if ns, err := os.Readlink(name); err == nil && ns == own {
			pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// run runs the job, with the kills, and returns its output without tags and numbers, and how many
// kills were in time.
func (r *killRun) run(replicas int, kills []kill) (shape string, struck int) {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.w.Ctx)
	defer stop()
	var met atomic.Int64
	var killers sync.WaitGroup
	for _, k := range kills {
		killers.Go(func() {
			if r.strike(ctx, k) {
				met.Add(1)
			}
		})
	}
	cmd := r.w.Isthmus(r.words(replicas)...)
	stdout, stderr, status := labtest.Run(r.t, cmd)
	stop()
	killers.Wait()
	if shape = shapeOf(stdout); status != 0 || strings.Count(stdout, r.success()) != 1 {
		r.t.Errorf("%s: status %d\nstdout:\n%s\nstderr:\n%s", r.kernel, status, stdout, stderr)
	} else if len(kills) > 0 {
		r.t.Logf("%s, %v: the launcher wrote:\n%s", r.kernel, kills, stderr)
	}
	return shape, int(met.Load())
}

var (
	tagText    = regexp.MustCompile(`(?m)^\[[^]]*\] `)
	numberText = regexp.MustCompile(` *-?[0-9][0-9.]*([eE][-+]?[0-9]+)?`)
)

// shapeOf is an output without tags and numbers, its lines in order.
func shapeOf(output string) string {
	lines := strings.SplitAfter(numberText.ReplaceAllString(tagText.ReplaceAllString(output, ""), " #"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestShapeOf(t *testing.T) {
	a := shapeOf("[0] time is   1.5\n[0] class S -2e-10\n")
	if b := shapeOf("[paris/n1:0] class S   13\n[paris/n1:0] time is 30\n"); a != b || a != "class S #\ntime is #\n" {
		t.Errorf("%q and %q", a, b)
	}
}

// killReference is what a kernel does when nobody dies.
type killReference struct {
	shape string // of its output with one process for each rank
	calls int    // the reads and writes of a process of two for each rank
}

// reference runs a kernel without kills.
func (r *killRun) reference() (ref killReference) {
	r.t.Helper()
	ref.shape, _ = r.run(1, nil)
	r.w.AwaitNoJobs()
	os.Remove(filepath.Join(r.dir, "pid.1.0"))
	ref.calls = r.countCalls(func(shape string) {
		if shape != ref.shape {
			r.t.Errorf("with replicas it wrote\n%swithout\n%s", shape, ref.shape)
		}
	})
	return ref
}

// countCalls runs the example with replicas and without kills, and returns the reads and writes of a process. check gets the
// shape of the output.
func (r *killRun) countCalls(check func(shape string)) (calls int) {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.w.Ctx)
	var counting sync.WaitGroup
	counting.Go(func() { _, calls = r.reach(ctx, 1, 0, 1<<62) })
	shape, _ := r.run(2, nil)
	check(shape)
	stop()
	counting.Wait()
	r.w.AwaitNoJobs()
	return calls
}

// restart starts the daemons that were killed.
func (w *world) restart() {
	w.T.Helper()
	for _, d := range w.Daemons() {
		if !d.Running() {
			if err := d.Start(w.Ctx); err != nil {
				w.T.Fatal(err)
			}
		}
	}
	w.AwaitHosts(6)
}

// cleanedUp waits until nothing is left of any job.
func (r *killRun) cleanedUp() {
	r.t.Helper()
	r.w.restart()
	r.w.AwaitNoJobs()
	for _, node := range r.w.helpers() {
		r.w.nothingOf(node.String())
	}
	word := r.words(2)
	r.w.Until("no process to be left", func() bool { return len(processesOf(word[len(word)-1])) == 0 && len(processesOf("example")) == 0 })
}

// killCounts is what TestKills reports.
type killCounts struct {
	Seed   uint64
	Runs   int
	Struck map[string]int // kills by kind of victim
	Late   int            // kills that came after what they were to meet had ended
	Failed []string       // runs
}

// add counts a run's kills.
func (c *killCounts) add(kills []kill, struck int) {
	c.Runs++
	c.Late += len(kills) - struck
	kind, _, daemon := strings.Cut(kills[0].victim, " ")
	if !daemon {
		kind = "process"
	}
	c.Struck[kind] += struck
}

// total returns the kills of processes, and of all others.
func (c *killCounts) total() (processes, daemons int) {
	for kind, n := range c.Struck {
		if kind == "process" {
			processes += n
		} else {
			daemons += n
		}
	}
	return processes, daemons
}

// killWorld has two closed sites, and an open one that runs no processes and launches the jobs.
func killWorld(t *testing.T) *world {
	t.Helper()
	cfg := labtest.LaunchConfig(map[string]any{"jobs": 2, "processes": 2})
	cfg.Profile = func(_ string, p overlay.SiteProfile) overlay.SiteProfile { return p }
	return newWorld(t, labtest.SiteOpen+labtest.SiteClosed+"  - {name: east, preset: stateful, nodes: 2}\n", cfg)
}

// NAS kernels over two closed sites verify and print everything once whichever processes, helpers,
// frontals and sites are killed at random moments, as long as a replica of each rank lives; nothing is left behind.
func TestKills(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := killWorld(t)
	w.AwaitHosts(6)
	c := killCounts{Seed: 1, Struck: map[string]int{}}
	kernels, processes, daemons := []string{"is"}, 2, 0
	if text := os.Getenv(killsKey); text != "" {
		c.Seed = rand.Uint64()
		kernels = []string{"is", "ep", "cg", "mg", "ft"}
		if _, err := fmt.Sscanf(text, "%d,%d", &processes, &daemons); err != nil {
			t.Fatalf("%s: %v", killsKey, err)
		}
	}
	if text := os.Getenv(killSeedKey); text != "" {
		if _, err := fmt.Sscan(text, &c.Seed); err != nil {
			t.Fatalf("%s: %v", killSeedKey, err)
		}
	}
	defer func() {
		line, _ := json.Marshal(c)
		fmt.Printf("kills: %s\n", line)
	}()
	references := map[string]killReference{}
	for _, kernel := range kernels {
		w.kills(t, "without/"+kernel, kernel, func(r *killRun) { references[kernel] = r.reference() })
	}
	const most = 3 // failed runs: a world that does not come back fails all that follow
	for i := 0; len(c.Failed) < most && (!t.Failed() || len(c.Failed) > 0); i++ {
		rng := rand.New(rand.NewPCG(c.Seed, uint64(i)))
		kernel := kernels[i%len(kernels)]
		ref := references[kernel]
		var kills []kill
		switch p, d := c.total(); {
		case p < processes:
			kills = processKills(rng, ref.calls, processes-p)
		case d < daemons:
			kills = []kill{daemonKill(rng, ref.calls, i)}
		default:
			return
		}
		if labtest.PatienceFor(t, labtest.Patience) < labtest.Patience {
			t.Errorf("the time has ended before %d kills of processes and %d of daemons", processes, daemons)
			return
		}
		name := fmt.Sprintf("%d/%s/%v", i, kernel, kills)
		if !w.kills(t, name, kernel, func(r *killRun) {
			shape, struck := r.run(2, kills)
			c.add(kills, struck)
			if shape != ref.shape {
				r.t.Errorf("it wrote\n%sand without kills\n%s", shape, ref.shape)
			}
			r.cleanedUp()
		}) {
			c.Failed = append(c.Failed, name)
		}
	}
}

// Examples whose output is not the same in two runs print what one without replicas can, whichever processes are killed at
// random moments: all that differs their replicas agree about.
func TestKillsWhereRunsDiffer(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := killWorld(t)
	w.AwaitHosts(6)
	runs := 1
	if text := os.Getenv(killsKey); text != "" {
		if _, err := fmt.Sscanf(text, "%d,", &runs); err != nil {
			t.Fatalf("%s: %v", killsKey, err)
		}
		runs /= 10
	}
	for _, name := range slices.Sorted(maps.Keys(differing)) {
		var calls int
		w.kills(t, "without/"+name, name, func(r *killRun) { calls = r.countCalls(func(string) {}) })
		for i := range runs {
			kills := processKills(rand.New(rand.NewPCG(7, uint64(i))), calls, 2)
			w.kills(t, fmt.Sprintf("%d/%s/%v", i, name, kills), name, func(r *killRun) {
				r.run(2, kills)
				r.cleanedUp()
			})
		}
	}
}

// kills runs a part of TestKills with a time limit of its own; if it fails it says what the daemons wrote
// since it began.
func (w *world) kills(t *testing.T, name, kernel string, part func(*killRun)) bool {
	return t.Run(name, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), labtest.PatienceFor(t, labtest.Patience))
		defer cancel()
		sub := &world{w.Sub(t)}
		sub.Ctx = ctx
		before := map[*grid.Daemon]int{}
		for _, d := range w.Daemons() {
			before[d] = len(d.Log())
		}
		defer func() {
			for _, d := range w.Daemons() {
				if log := d.Log(); t.Failed() {
					t.Logf("%s wrote:\n%s", d.Name, log[min(before[d], len(log)):])
				}
			}
		}()
		dir := enterable(t)
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		part(&killRun{w: sub, t: t, kernel: kernel, dir: dir})
	})
}
