package mpilib

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRingChild is a process of TestDebugProcesses. Every process sends a message to the right, and
// then waits for one from the right.
func TestRingChild(t *testing.T) {
	if os.Getenv("ISTHMUS_TEST_RING") == "" {
		t.Log("only as a child of TestDebugProcesses")
		return
	}
	w, err := Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := w.Comm()
	right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	if _, err := Sendrecv(t.Context(), c, []int{1}, right, 1, []int{0}, left, 1); err != nil {
		t.Fatal(err)
	}
	Recv(t.Context(), c, []int{0}, right, 2) // until the process is killed
}

// Processes that wait for each other report the deadlock. Their timelines are consistent although
// the processes are killed.
func TestDebugProcesses(t *testing.T) {
	dir, err := os.MkdirTemp("", "isthmus")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	traces := t.TempDir()
	out := listenFor("deadlock:")
	const n = 3
	var children []*exec.Cmd
	for rank := range n {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRingChild$", "-test.timeout=60s")
		child.Env = append(os.Environ(), "ISTHMUS_TEST_RING=1", fmt.Sprintf("%s=%d", EnvRank, rank), fmt.Sprintf("%s=%d", EnvSize, n),
			EnvJobKey+"="+testKey, EnvDir+"="+dir, EnvDebug+"=deadlocks", EnvTrace+"="+traces)
		child.Stderr = out
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, child)
	}
	select {
	case <-out.wake:
	case <-time.After(45 * time.Second):
		t.Error("no deadlock was reported")
	}
	for _, child := range children {
		child.Process.Kill()
		child.Wait()
	}
	for _, want := range []string{
		"deadlock: ranks 0-2 can never go on", "rank 0 waits for rank 1 waits for rank 2 waits for rank 0\n",
		"rank 2: Recv: receive from rank 0 of world, tag 2 at mpilib/debug_process_test.go:",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var all []moment
	for rank := range n {
		all = append(all, readTimeline(t, filepath.Join(traces, fmt.Sprintf("rank-%d.json", rank)))...)
	}
	if spans, arrows := checkTimeline(t, all); arrows < n || spans["Sendrecv"] < n {
		t.Errorf("%d arrows, %v", arrows, spans)
	}
}
