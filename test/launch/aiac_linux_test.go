//go:build system

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/aiac"
	"github.com/isthmus-grid/isthmus/aiac/checkpoint"
	"github.com/isthmus-grid/isthmus/launch/gossip"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

const (
	// volatileKey marks, in the environment, a process as one of volatile, and names the folder of its job.
	volatileKey = "ISTHMUS_TEST_AIAC"
	// aiacFaultsKey says how many faults TestAiacFaults has, from a random seed (killSeedKey); without it there are two.
	aiacFaultsKey = "ISTHMUS_TEST_AIAC_FAULTS"
)

// volatileRing is a system of one unknown for each task, (2+s) x[t] - x[t-1] - x[t+1] = s around a ring, so that all are 1. Until
// the file "go" is in dir, s is so small that nothing converges; then it is 1. Each iteration adds a byte to a file of the
// process, TASK.NUMBER.PID.
type volatileRing struct {
	tasks      int
	dir        string
	iterations *os.File
	goes       bool
}

func (s *volatileRing) Tasks() int { return s.tasks }
func (s *volatileRing) Values(from, to int) int {
	switch (s.tasks + from - to) % s.tasks {
	case 0, 1, s.tasks - 1:
		return 1
	}
	return 0
}
func (s *volatileRing) New(task int) (aiac.Task, error) {
	return &volatileTask{volatileRing: s, task: task, of: map[int]float64{}}, nil
}

type volatileTask struct {
	*volatileRing
	task int
	x    float64
	of   map[int]float64
}

func (u *volatileTask) shift() float64 {
	if u.goes {
		return 1
	}
	return 1e-6
}

func (u *volatileTask) right() float64 {
	sum := u.shift()
	for _, v := range u.of {
		sum += v
	}
	return sum
}

func (u *volatileTask) Step() error {
	time.Sleep(20 * time.Millisecond) // it stands for much work: twenty tasks share this machine
	if !u.goes {
		_, err := os.Stat(filepath.Join(u.dir, "go"))
		u.goes = err == nil
	}
	u.x = u.right() / (2 + u.shift())
	_, err := u.iterations.Write([]byte{'.'})
	return err
}

func (u *volatileTask) Residual() float64       { return math.Abs((2+u.shift())*u.x - u.right()) }
func (u *volatileTask) Give(_ int, v []float64) { v[0] = u.x }
func (u *volatileTask) Take(from int, v []float64) {
	if from == u.task {
		u.x = v[0]
	} else {
		u.of[from] = v[0]
	}
}

// volatileResult is what a process of volatile prints at its end.
type volatileResult struct {
	Task                 int
	X, Residual          float64
	Iterations, Restored uint64
	Saved, Kept          uint64  // states
	Share                float64 // of the time, which they took
	Missing              string
}

// volatile is a process of a job that iterates asynchronously on hosts that fail.
func volatile() error {
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	spare := w.Replacements()
	s := &volatileRing{tasks: spare.Ranks, dir: os.Getenv(volatileKey)}
	s.iterations, err = os.Create(filepath.Join(s.dir, fmt.Sprintf("%d.%d.%d", spare.Rank(), spare.Comm.Rank(), os.Getpid())))
	if err != nil {
		return err
	}
	r, err := aiac.RunReplaceable(ctx, w, s, aiac.Options{Mode: aiac.Async, Tolerance: 1e-9, Checkpoint: &checkpoint.Config{}})
	if err != nil {
		return err
	}
	c := r.Checkpoints
	result := volatileResult{spare.Rank(), r.Task.(*volatileTask).x, r.Residual, r.Iterations, c.Restored, c.Saved, c.Kept, c.Share, ""}
	if c.Missing != nil {
		result.Missing = c.Missing.Error()
	}
	line, err := json.Marshal(result)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", line)
	return w.Finalize(ctx)
}

// The tasks are at four nodes of each of five sites, and each site has one more. The submitter is at none of them.
var aiacSites = []string{"open", "closed", "east", "north", "south"}

const aiacTasks = 20

// nodeOfTask returns the node where a task begins.
func nodeOfTask(task int) string { return aiacNode(task/4, task%4) }

// aiacNode returns the nth node of a site, of which the last has no task.
func aiacNode(site, nth int) string {
	if site == 0 {
		nth++ // n1 is the submitter
	}
	return fmt.Sprintf("%s/n%d", aiacSites[site], nth+1)
}

// aiacRun is one job under which something fails.
type aiacRun struct {
	*killRun
	rng    *rand.Rand
	job    *labtest.Background
	struck time.Time
	gone   map[int]bool // tasks whose process was killed
}

// process is what is known of one by its file.
type process struct{ task, number, pid, iterations int }

// processes returns all that have begun, by number.
func (r *aiacRun) processes() map[int]process {
	all := map[int]process{}
	names, _ := filepath.Glob(filepath.Join(r.dir, "*.*.*"))
	for _, name := range names {
		var p process
		info, err := os.Stat(name)
		if n, _ := fmt.Sscanf(filepath.Base(name), "%d.%d.%d", &p.task, &p.number, &p.pid); err != nil || n != 3 {
			r.t.Errorf("%s: %v", name, err)
			continue
		}
		p.iterations = int(info.Size())
		all[p.number] = p
	}
	return all
}

// begin starts the job, and waits until all its tasks iterate and their states may have been saved.
func (r *aiacRun) begin(spares int) {
	r.t.Helper()
	var hosts, nodes []string
	for task := range aiacTasks {
		nodes = append(nodes, nodeOfTask(task))
		site, node, _ := strings.Cut(nodes[task], "/")
		hosts = append(hosts, node+"@"+site+":1")
	}
	r.gone = map[int]bool{}
	r.job = &labtest.Background{Cmd: r.w.Isthmus("run", "--hosts", strings.Join(hosts, ","), "--replace", fmt.Sprint(spares), "--wait", "1m", "--installed",
		"--env", volatileKey+"="+r.dir, enterableSelf(r.t))}
	r.job.Cmd.Stdout, r.job.Cmd.Stderr = r.job, r.job
	if err := r.job.Cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { r.job.Cmd.Process.Kill() })
	for task := range aiacTasks {
		r.until(fmt.Sprintf("task %d to iterate", task), func() bool { return r.processes()[task].iterations >= 100 })
	}
	r.w.awaitCommitted(nodes...)
}

// until waits for a condition while the job runs.
func (r *aiacRun) until(what string, ok func() bool) {
	r.t.Helper()
	r.w.Until(what, func() bool {
		if _, over := ended(r.job.Cmd.Process.Pid); over {
			status := r.job.ExitStatus(r.w.World)
			r.t.Fatalf("waited for %s, and the job has ended with status %d:\n%s", what, status, r.job.Output())
		}
		return ok()
	}, r.job.Output)
}

// kills kills the first processes of tasks.
func (r *aiacRun) kills(tasks ...int) {
	all := r.processes()
	for _, task := range tasks {
		r.gone[task] = true
		syscall.Kill(all[task].pid, syscall.SIGKILL)
	}
}

// killBooked kills the first host without a task that is booked, but for the submitter's.
func (r *aiacRun) killBooked() {
	r.t.Helper()
	booked := ""
	r.until("a host to be booked", func() bool {
		for site := range aiacSites {
			node := aiacNode(site, 4)
			entries, _ := os.ReadDir(filepath.Join(r.w.Store(node), "jobs"))
			if len(entries) > 0 {
				booked = node
			}
		}
		return booked != ""
	})
	r.w.killHosts(booked)
}

// holders returns the tasks that hold the states of a task.
func (r *aiacRun) holders(task int) []int {
	var places []checkpoint.Place
	for task := range aiacTasks {
		site, node, _ := strings.Cut(nodeOfTask(task), "/")
		places = append(places, checkpoint.Place{Site: site, Node: node})
	}
	return checkpoint.Holders(task, places, nil)
}

// restartsDaemon kills a daemon, lets the tasks go on without it, and starts it again.
func (r *aiacRun) restartsDaemon(name string) {
	r.t.Helper()
	r.w.Daemon(name).Kill()
	r.rises(r.processes())
	if err := r.w.Daemon(name).Start(r.w.Ctx); err != nil {
		r.t.Fatal(err)
	}
}

// rises waits until the iterations of all tasks that live have risen.
func (r *aiacRun) rises(from map[int]process) {
	r.t.Helper()
	for task := range aiacTasks {
		if !r.gone[task] {
			r.until(fmt.Sprintf("task %d to go on", task), func() bool { return r.processes()[task].iterations > from[task].iterations+10 })
		}
	}
}

// An aiacFault is something that fails while a job runs.
type aiacFault struct {
	name   string
	spares int
	strike func(*aiacRun)
	ends   string // the job ends, and says this; "-": it says nothing
}

var aiacFaults = []aiacFault{
	{"process", 4, func(r *aiacRun) { r.kills(r.rng.IntN(aiacTasks)) }, ""},
	{"site", 5, func(r *aiacRun) {
		site := 1 + r.rng.IntN(4)
		var nodes []string
		for nth := range 5 {
			nodes = append(nodes, aiacNode(site, nth))
			if nth < 4 {
				r.gone[4*site+nth] = true
			}
		}
		r.w.Daemon("frontal " + aiacSites[site]).Kill()
		r.w.killHosts(nodes...)
	}, ""},
	{"adjacent", 4, func(r *aiacRun) {
		task := r.rng.IntN(aiacTasks)
		r.kills(task, (task+1)%aiacTasks)
	}, ""},
	{"holders", 4, func(r *aiacRun) {
		task := r.rng.IntN(aiacTasks)
		r.kills(append(r.holders(task), task)...)
	}, ""},
	{"host during restart", 4, func(r *aiacRun) {
		r.kills(r.rng.Perm(aiacTasks)[:2]...) // the first that is replaced goes on at the submitter's node
		r.killBooked()
	}, ""},
	{"broker", 4, func(r *aiacRun) {
		r.restartsDaemon("broker")
		r.kills(r.rng.IntN(aiacTasks))
	}, ""},
	{"frontal", 4, func(r *aiacRun) {
		site := r.rng.IntN(len(aiacSites))
		r.restartsDaemon("frontal " + aiacSites[site])
		r.kills(4*site + r.rng.IntN(4))
	}, ""},
	{"submitter", 4, func(r *aiacRun) { r.job.Cmd.Process.Kill() }, "-"},
	{"spares exhausted", 1, func(r *aiacRun) { r.kills(r.rng.Perm(aiacTasks)[:2]...) }, "no spare process number is left to replace it"},
}

// aiacCounts is what TestAiacFaults reports.
type aiacCounts struct {
	Seed         uint64
	Runs         map[string]int // by fault
	BoundSeconds float64        // of the detectors
	Replaced     map[string][]float64
	Late         int     // more than the bound and 3 s after the fault
	MostShare    float64 // of the time, for backups; the greatest of all tasks
	Restored     int     // tasks that began from a saved state
	Anew         int     // and others
	Failed       []string
}

// replaced waits until the tasks that were lost iterate again.
func (r *aiacRun) replaced(fault string, c *aiacCounts) {
	r.t.Helper()
	before := r.processes()
	waiting := map[int]bool{}
	for task := range r.gone {
		waiting[task] = true
	}
	r.until("the lost tasks to iterate again", func() bool {
		for _, p := range r.processes() {
			if p.number >= aiacTasks && waiting[p.task] && p.iterations > before[p.number].iterations+2 {
				delete(waiting, p.task)
				took := time.Since(r.struck).Seconds()
				c.Replaced[fault] = append(c.Replaced[fault], math.Round(10*took)/10)
				if took > c.BoundSeconds+3 {
					c.Late++
				}
			}
		}
		return len(waiting) == 0
	})
}

// ends lets the tasks converge, and checks the result.
func (r *aiacRun) ends(c *aiacCounts) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "go"), nil, 0o644); err != nil {
		r.t.Fatal(err)
	}
	status := r.job.ExitStatus(r.w.World)
	results := map[int]volatileResult{}
	for line := range strings.Lines(r.job.Output()) {
		var v volatileResult
		at := strings.Index(line, `{"Task":`)
		if at < 0 {
			continue
		}
		if err := json.Unmarshal([]byte(line[at:]), &v); err != nil {
			r.t.Errorf("%q: %v", line, err)
		}
		results[v.Task] = v
	}
	if status != 0 || len(results) != aiacTasks {
		r.t.Fatalf("status %d, and results of %d tasks:\n%s", status, len(results), r.job.Output())
	}
	for task, v := range results {
		left, right := results[(task+aiacTasks-1)%aiacTasks], results[(task+1)%aiacTasks]
		if res := math.Abs(3*v.X - left.X - right.X - 1); res > 1e-9 || v.Residual > 1e-9 {
			r.t.Errorf("task %d: residual %g, and %g of what was printed", task, v.Residual, res)
		}
		c.MostShare = max(c.MostShare, v.Share)
		if v.Restored > 0 {
			c.Restored++
		} else if r.gone[task] {
			c.Anew++
			r.t.Logf("task %d began anew: %s", task, v.Missing)
		}
	}
}

// nothingLeft waits until nothing is left of the job.
func (r *aiacRun) nothingLeft() {
	r.t.Helper()
	for _, d := range r.w.Daemons() {
		if !d.Running() {
			if err := d.Start(r.w.Ctx); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	r.w.AwaitHosts(5*len(aiacSites) + 1)
	r.w.AwaitNoJobs()
	for _, node := range r.w.helpers() {
		r.w.nothingOf(node.String())
	}
	for _, p := range r.processes() {
		r.w.Until(fmt.Sprintf("process %d to be gone", p.number), func() bool { _, over := ended(p.pid); return over })
	}
}

// suffers has a job suffer a fault.
func (r *aiacRun) suffers(f aiacFault, c *aiacCounts) {
	r.t.Helper()
	r.nothingLeft() // of one that has failed
	r.begin(f.spares)
	before := r.processes()
	r.struck = time.Now()
	f.strike(r)
	switch f.ends {
	case "":
		r.replaced(f.name, c)
		r.rises(before) // none of the others has waited for it
		r.rises(r.processes())
		r.ends(c)
	case "-":
		r.job.ExitStatus(r.w.World)
	default:
		if status := r.job.ExitStatus(r.w.World); status == 0 || !strings.Contains(r.job.Output(), f.ends) {
			r.t.Errorf("status %d, want %q:\n%s", status, f.ends, r.job.Output())
		}
	}
	r.nothingLeft()
	r.t.Logf("the launcher wrote:\n%s", r.job.Output())
}

// Twenty tasks at five sites iterate asynchronously, and processes, hosts, a site or daemons are lost: the others go on, the lost ones
// are replaced, the result is right, and nothing is left behind. How long a task is without a process is printed.
func TestAiacFaults(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	cfg := labtest.LaunchConfig(map[string]any{"jobs": 1, "processes": 1})
	cfg.Profile = func(_ string, p overlay.SiteProfile) overlay.SiteProfile { return p }
	w := newWorld(t, "  - {name: open, preset: open, nodes: 6}\n  - {name: closed, preset: stateful, nodes: 5}\n  - {name: east, preset: stateful, nodes: 5}\n"+
		"  - {name: north, preset: open, nodes: 5}\n  - {name: south, preset: open, nodes: 5}\n", cfg)
	w.AwaitHosts(5*len(aiacSites) + 1)
	c := aiacCounts{Seed: 1, Runs: map[string]int{}, Replaced: map[string][]float64{}, BoundSeconds: gossip.Config{}.Bound(aiacTasks).Seconds()}
	runs := 2
	for key, value := range map[string]any{aiacFaultsKey: &runs, killSeedKey: &c.Seed} {
		text := os.Getenv(key)
		if key == killSeedKey && text == "" && os.Getenv(aiacFaultsKey) != "" {
			text = fmt.Sprint(rand.Uint64())
		}
		if text == "" {
			continue
		}
		if _, err := fmt.Sscan(text, value); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	defer func() {
		for _, all := range c.Replaced {
			slices.Sort(all)
		}
		line, _ := json.Marshal(c)
		fmt.Printf("aiac faults: %s\n", line)
	}()
	for i := range runs {
		if i > 0 && labtest.PatienceFor(t, labtest.Patience) < labtest.Patience/2 {
			t.Errorf("the time has ended after %d of %d faults", i, runs)
			return
		}
		f := aiacFaults[i%len(aiacFaults)]
		name := fmt.Sprintf("%d %s", i, f.name)
		if !w.kills(t, name, "", func(r *killRun) {
			c.Runs[f.name]++
			(&aiacRun{killRun: r, rng: rand.New(rand.NewPCG(c.Seed, uint64(i)))}).suffers(f, &c)
		}) {
			c.Failed = append(c.Failed, name)
		}
	}
}
