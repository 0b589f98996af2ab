package main

import (
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
)

// roleEnv makes the test's program a process of the job, which runs main.
const roleEnv = "ROD_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "" {
		os.Exit(m.Run())
	}
	main()
}

// TestDocs: docs/aiac.md shows the program as it is, which has at most 60 lines.
func TestDocs(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/aiac.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "package main\n")
	if !strings.Contains(string(page), "```go\npackage main\n"+code+"```\n") {
		t.Error("the program of docs/aiac.md is another one")
	}
	if n := strings.Count(string(program), "\n"); n > 60 {
		t.Errorf("the program has %d lines, want at most 60", n)
	}
}

// The program, as a job of three processes, prints a small residual and the solution.
func TestMainSolves(t *testing.T) {
	const tasks = 3
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	job := newJob(t, tasks)
	var processes []*exec.Cmd
	outs := make([]strings.Builder, tasks)
	for rank := range tasks {
		c := exec.CommandContext(ctx, os.Args[0])
		c.Env = append(append(os.Environ(), job...), fmt.Sprint("ISTHMUS_RANK=", rank))
		c.Stdout, c.Stderr = &outs[rank], os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, c)
	}
	var u []float64
	for rank, c := range processes {
		if err := c.Wait(); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
		var iterations uint64
		var residual float64
		head, values, _ := strings.Cut(outs[rank].String(), ": [")
		if _, err := fmt.Sscanf(head, "%d iterations, residual %g", &iterations, &residual); err != nil || iterations == 0 || !(residual <= 1e-9) {
			t.Errorf("rank %d prints %q: %v", rank, head, err)
		}
		for _, word := range strings.Fields(strings.TrimSuffix(values, "]\n")) {
			var v float64
			fmt.Sscan(word, &v)
			u = append(u, v)
		}
	}
	if len(u) != 40 {
		t.Fatalf("%d points, want 40", len(u))
	}
	for i, v := range u {
		k := math.Acosh(2.01 / 2)
		if want := 1 - math.Cosh(k*(float64(i+1)-20.5))/math.Cosh(k*20.5); math.Abs(v-want) > 2e-7 {
			t.Errorf("point %d: %g, want %g", i+1, v, want)
		}
	}
}

// newJob returns what all processes of a job have in their environment.
func newJob(t *testing.T, tasks int) []string {
	t.Helper()
	key, err := jobkey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	dir := testkit.ShortDir(t)
	return []string{roleEnv + "=process", fmt.Sprint("ISTHMUS_SIZE=", tasks), "ISTHMUS_JOB_KEY=" + key.String(), "ISTHMUS_DIR=" + dir}
}
