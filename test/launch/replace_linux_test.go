//go:build system

package launch

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-grid/isthmus/aiac"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// solveKey marks, in the environment, a process as one of solve: "kill", "pause" or "stop", which is what happens to task 1
// or its host in the middle of its iteration.
const solveKey = "ISTHMUS_TEST_SOLVE"

// ring4 is a system of one unknown for each task: 4 x[t] - x[t-1] - x[t+1] = 2, around a ring, so that all are 1.
type ring4 struct {
	tasks int
	how   string // what task 1 does
}

func (s ring4) Tasks() int { return s.tasks }
func (s ring4) Values(from, to int) int {
	switch (s.tasks + from - to) % s.tasks {
	case 0, 1, s.tasks - 1:
		return 1
	}
	return 0
}
func (s ring4) New(task int) (aiac.Task, error) {
	return &unknown{ring4: s, task: task, of: map[int]float64{}}, nil
}

type unknown struct {
	ring4
	task  int
	x     float64
	of    map[int]float64
	steps int
}

func (u *unknown) right() (sum float64) {
	sum = 2
	for _, v := range u.of {
		sum += v
	}
	return sum
}

func (u *unknown) Step() error {
	u.x = u.right() / 4
	if u.steps++; u.steps <= 3 || u.task != 1 || u.how == "" {
		return nil
	}
	if u.how == "kill" {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	fmt.Println("it stops")
	select {}
}

func (u *unknown) Residual() float64       { return math.Abs(4*u.x - u.right()) }
func (u *unknown) Give(_ int, v []float64) { v[0] = u.x }
func (u *unknown) Take(from int, v []float64) {
	if from == u.task {
		u.x = v[0]
	} else {
		u.of[from] = v[0]
	}
}

// solve is a process of a job that iterates asynchronously. Only the first process of task 1 is lost.
func solve() error {
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	spare := w.Replacements()
	s := ring4{tasks: spare.Ranks}
	if spare.Comm.Rank() < spare.Ranks {
		s.how = os.Getenv(solveKey)
	}
	r, err := aiac.RunReplaceable(ctx, w, s, aiac.Options{Mode: aiac.Async, Tolerance: 1e-9})
	if err != nil {
		return err
	}
	if x := r.Task.(*unknown).x; r.Residual > 1e-9 || math.Abs(x-1) > 1e-8 {
		return fmt.Errorf("task %d: x = %g, residual %g", spare.Rank(), x, r.Residual)
	}
	fmt.Printf("process %d has task %d after %d iterations\n", spare.Comm.Rank(), spare.Rank(), r.Iterations)
	return w.Finalize(ctx)
}

// awaitCommitted waits until the only job of each node has been committed: a host that is lost before that ends the
// job, which then has not begun.
func (w *world) awaitCommitted(nodes ...string) {
	w.T.Helper()
	for _, node := range nodes {
		w.Until(node+" to have a job that was committed", func() bool { return w.committed(node) })
	}
	var out []byte
	w.Until("isthmus ps to answer", func() (ok bool) { // by then the answers have left, too
		var err error
		out, err = w.Isthmus("ps").CombinedOutput()
		return err == nil
	}, func() string { return string(out) })
}

// committed says whether the only job of a node has been committed there.
func (w *world) committed(node string) bool {
	records, _ := filepath.Glob(filepath.Join(w.Store(node), "agents", "*.json"))
	if len(records) != 1 {
		return false
	}
	text, _ := os.ReadFile(records[0])
	return strings.Contains(string(text), `"Committed":true`)
}

// A process of an asynchronous iteration is killed, or its host's helper stands still for longer than the other hosts
// wait, or the host falls silent: another host goes on with its task, and the result is right.
//
// It takes more than a minute, and longer on a busy machine: set ISTHMUS_TEST_REPLACED=1.
func TestReplaced(t *testing.T) {
	if os.Getenv("ISTHMUS_TEST_REPLACED") == "" {
		t.Skip("takes more than a minute: set ISTHMUS_TEST_REPLACED=1")
	}
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := killWorld(t)
	w.AwaitHosts(6)
	for _, how := range []string{"kill", "pause", "stop"} {
		j := &labtest.Background{}
		j.Cmd = w.Isthmus("run", "--hosts", "n1@east:1,n1@closed:1,n2@closed:1,n2@east:1", "--replace", "2", "--installed",
			"--env", solveKey+"="+how, enterableSelf(t))
		j.Cmd.Stdout, j.Cmd.Stderr = j, j
		if err := j.Cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { j.Cmd.Process.Kill() })
		if how != "kill" {
			w.Until("task 1 to stop", func() bool { return strings.Contains(j.Output(), "it stops") }, j.Output)
			w.awaitCommitted("closed/n1", "closed/n2", "east/n1", "east/n2")
		}
		switch helper := w.Daemon("helper closed/n1").PID(); how {
		case "pause":
			syscall.Kill(helper, syscall.SIGSTOP)
			w.Until("another host to go on with task 1", func() bool { return strings.Contains(j.Output(), "process 4 goes on with rank 1 at ") }, j.Output)
			syscall.Kill(helper, syscall.SIGCONT)
		case "stop":
			w.signalAll("closed/n1", syscall.SIGSTOP, 0)
		}
		status := j.ExitStatus(w.World)
		if how == "stop" {
			w.signalAll("closed/n1", syscall.SIGCONT, 0)
		}
		for _, want := range []string{"process 4 replaces it", "process 4 goes on with rank 1 at ", "process 0 has task 0 after ", "process 2 has task 2 after ", "process 3 has task 3 after ", "process 4 has task 1 after "} {
			if status != 0 || strings.Count(j.Output(), want) != 1 {
				t.Errorf("%s: status %d, want %q once:\n%s", how, status, want, j.Output())
			}
		}
		w.AwaitNoJobs()
		w.AwaitHosts(6)
		w.nothingOf("closed/n1")
	}
}
