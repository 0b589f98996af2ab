package aiac

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// roleEnv makes the test's program a process of a job: it solves a system with the others, or, with the value
// "stops", stops for good after some iterations. With "saves" and "endless" it saves states (savesAsProcess).
const roleEnv = "AIAC_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	run := func() error { return solveAsProcess(role == "stops") }
	if role == "saves" || role == "endless" {
		run = func() error { return savesAsProcess(role == "endless") }
	}
	if err := run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

const processTolerance = 1e-9

// solveAsProcess is a process of the job.
func solveAsProcess(stops bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	var p Problem = line{tasks: w.Replacements().Ranks, rows: 20, shift: 0.05}
	if stops {
		p = stopping{p}
	}
	r, err := RunReplaceable(ctx, w, p, Options{Mode: Async, Tolerance: processTolerance})
	if err != nil {
		return err
	}
	if err := isSolution(r); err != nil {
		return err
	}
	return w.Finalize(ctx)
}

func isSolution(r *Result) error {
	worst := 0.0
	for _, x := range r.Task.(*lineTask).x {
		worst = max(worst, math.Abs(x-1))
	}
	if r.Residual > processTolerance || worst > 1e-6 {
		return fmt.Errorf("residual %g, %g off", r.Residual, worst)
	}
	return nil
}

// stopping is a problem whose tasks stop for good after some iterations.
type stopping struct{ Problem }

func (s stopping) New(task int) (Task, error) {
	t, err := s.Problem.New(task)
	return &stopped{Task: t}, err
}

type stopped struct {
	Task
	steps int
}

func (s *stopped) Step() error {
	if s.steps++; s.steps > 5 {
		fmt.Println("stopped")
		select {}
	}
	return s.Task.Step()
}

// job starts the processes of a job with 4 spare numbers.
type job struct {
	t   *testing.T
	env []string
}

func newJob(t *testing.T, tasks int) job {
	t.Helper()
	key, err := jobkey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	dir := testkit.ShortDir(t)
	return job{t, []string{fmt.Sprint("ISTHMUS_SIZE=", tasks), "ISTHMUS_SPARES=4", "ISTHMUS_JOB_KEY=" + key.String(), "ISTHMUS_DIR=" + dir}}
}

// start starts process number.
func (j job) start(number int, role, replacements string) *exec.Cmd {
	j.t.Helper()
	c := exec.CommandContext(j.t.Context(), os.Args[0])
	c.Env = append(append(os.Environ(), j.env...), roleEnv+"="+role, fmt.Sprintf("ISTHMUS_RANK=%d", number), "ISTHMUS_REPLACEMENTS="+replacements)
	c.Stderr = os.Stderr
	return c
}

// kill starts a process, and kills it when it has stopped.
func (j job) kill(c *exec.Cmd) {
	j.t.Helper()
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		j.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	c.Process.Kill()
	c.Wait()
	if line != "stopped\n" {
		j.t.Fatalf("it prints %q, %v", line, err)
	}
}

// Two neighbouring tasks are killed, then the process that replaces one of them: when all are replaced, the result is right
// everywhere.
func TestReplaced(t *testing.T) {
	j := newJob(t, 4)
	type result struct {
		number int
		out    []byte
		err    error
	}
	results := make(chan result, 4)
	runs := func(number int, replacements string) {
		c := j.start(number, "solves", replacements)
		go func() { // ends with the process
			out, err := c.Output()
			results <- result{number, out, err}
		}()
	}
	runs(0, "")
	runs(3, "")
	first := j.start(1, "stops", "")
	killed := make(chan struct{})
	go func() { defer close(killed); j.kill(first) }()
	j.kill(j.start(2, "stops", ""))
	<-killed
	j.kill(j.start(4, "stops", "1"))
	runs(5, "1,2")
	runs(6, "1,2,1")
	for range 4 {
		if r := <-results; r.err != nil {
			t.Errorf("process %d: %v: %s", r.number, r.err, strings.TrimSpace(string(r.out)))
		}
	}
}

// Only asynchronous runs of jobs with spare numbers are replaceable.
func TestNotReplaceable(t *testing.T) {
	mpilib.TestWorld(t, 1, func(ctx context.Context, c *mpilib.Comm) error {
		_, err := RunReplaceable(ctx, c.World(), line{tasks: 1, rows: 2, shift: 1}, Options{Mode: Async, Tolerance: 1})
		if err == nil || !strings.Contains(err.Error(), "spare process numbers") {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
}
