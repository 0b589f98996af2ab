package aiac

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/aiac/checkpoint"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// savesAsProcess is a process of a job that saves states. It prints which tasks' states it holds, and at the end from which
// iteration it started.
func savesAsProcess(isEndless bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	config := &checkpoint.Config{Store: checkpoint.NewStore(0), Share: 1, First: 1}
	p := watching{line{tasks: w.Replacements().Ranks, rows: 20, shift: 0.05}, config.Store, isEndless}
	r, err := RunReplaceable(ctx, w, p, Options{Mode: Async, Tolerance: processTolerance, MaxIterations: math.MaxUint64, Checkpoint: config})
	if err != nil {
		return err
	}
	r.Task = r.Task.(*watched).Task
	if err := isSolution(r); err != nil {
		return err
	}
	c := r.Checkpoints
	switch {
	case r.Iterations < c.Restored || c.Missing != nil && c.Restored > 0:
		return fmt.Errorf("%d iterations, %+v", r.Iterations, c)
	case c.Missing != nil:
		fmt.Println("anew")
	default:
		fmt.Println("restored", c.Restored > 0)
	}
	return w.Finalize(ctx)
}

// watching is a problem whose tasks print what the Store holds. An endless one never has a small residual.
type watching struct {
	line
	store     *checkpoint.Store
	isEndless bool
}

func (w watching) New(task int) (Task, error) {
	t, err := w.line.New(task)
	return &watched{t, w, map[int]bool{}}, err
}

type watched struct {
	Task
	watching
	holds map[int]bool
}

func (w *watched) Step() error {
	for task := range w.tasks {
		if _, ok := w.store.Newest(task); ok && !w.holds[task] {
			w.holds[task] = true
			fmt.Println("holds", task)
		}
	}
	return w.Task.Step()
}

func (w *watched) Residual() float64 {
	if w.isEndless {
		return 1
	}
	return w.Task.Residual()
}

// printing is a process, and what it prints.
type printing struct {
	*exec.Cmd
	lines chan string // closed at its end
	read  map[string]bool
}

func (j job) print(number int, role, replacements string) printing {
	j.t.Helper()
	p := printing{j.start(number, role, replacements), make(chan string, 20), map[string]bool{}}
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		j.t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p
}

// await waits until it prints a line.
func (p printing) await(t *testing.T, want string) {
	t.Helper()
	for !p.read[want] {
		line, ok := <-p.lines
		if !ok {
			t.Fatalf("it prints %q, want %q", slices.Sorted(maps.Keys(p.read)), want)
		}
		p.read[line] = true
	}
}

// Tasks are killed once certain holders have their states. The processes that replace them start from a saved iteration, or, where
// all holders of a task are killed as well, anew, and the result is right everywhere.
func TestRestart(t *testing.T) {
	const tasks = 5
	holders := func(task int) []int { return checkpoint.Holders(task, make([]checkpoint.Place, tasks), nil) }
	h := holders(1)
	for name, c := range map[string]struct {
		killed []int
		anew   int // of the killed; -1: none
	}{
		"one task":                  {[]int{1}, -1},
		"a task and a holder":       {[]int{1, h[0]}, -1},
		"a task and both holders":   {[]int{1, h[0], h[1]}, 1},
		"two neighbours":            {[]int{2, 3}, -1},
		"a task and another holder": {[]int{1, h[1]}, -1},
	} {
		t.Run(name, func(t *testing.T) { restart(t, tasks, c.killed, c.anew, holders) })
	}
}

func restart(t *testing.T, tasks int, killed []int, anew int, holders func(int) []int) {
	j := newJob(t, tasks)
	running := map[int]printing{}
	for task := range tasks {
		role := "saves"
		if slices.Contains(killed, task) {
			role = "endless"
		}
		running[task] = j.print(task, role, "")
	}
	wants := map[int]string{} // by process
	for _, task := range killed {
		for _, holder := range holders(task) {
			if task == anew || !slices.Contains(killed, holder) {
				running[holder].await(t, fmt.Sprint("holds ", task))
			}
		}
	}
	for _, task := range killed {
		running[task].Process.Kill()
		running[task].Wait()
		delete(running, task)
	}
	var replaced []string
	for i, task := range killed {
		replaced = append(replaced, fmt.Sprint(task))
		running[tasks+i] = j.print(tasks+i, "saves", strings.Join(replaced, ","))
		if wants[tasks+i] = "restored true"; task == anew {
			wants[tasks+i] = "anew"
		} else if !slices.ContainsFunc(holders(task), func(h int) bool { return !slices.Contains(killed, h) }) {
			delete(wants, tasks+i) // it depends on who else was a holder meanwhile
		}
	}
	for _, number := range slices.Sorted(maps.Keys(running)) {
		if want := wants[number]; want != "" {
			running[number].await(t, want)
		} else if number < tasks {
			running[number].await(t, "restored false")
		}
		for range running[number].lines {
		}
		if err := running[number].Wait(); err != nil {
			t.Errorf("process %d: %v", number, err)
		}
	}
}
