//go:build system

package mpilib

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
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
	dir := testkit.ShortDir(t)
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
		"rank 2: Recv: receive from rank 0 of world, tag 2 at mpilib/process_system_test.go:",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var all []moment
	for rank := range n {
		all = append(all, readTimeline(t, filepath.Join(traces, fmt.Sprintf("rank-%d.json", rank)))...)
	}
	if spans, arrows := checkTimeline(t, all, 1e6); arrows < n || spans["Sendrecv"] < n {
		t.Errorf("%d arrows, %v", arrows, spans)
	}
}

// The timeline of a killed process is readable. In a folder each rank writes its own file.
func TestTimelineOfTheDead(t *testing.T) {
	const child = "ISTHMUS_TEST_TIMELINE"
	if os.Getenv(child) != "" {
		traceUntilKilled(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestTimelineOfTheDead$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), child+"=1", EnvTrace+"="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "rank-0.json")
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), "Send") {
			break
		}
		if time.Now().After(deadline) {
			t.Error("nothing was written in 30 s")
			break
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if spans, arrows := checkTimeline(t, readTimeline(t, name), 0); spans["Recv"] == 0 || arrows == 0 {
		t.Errorf("%v, %d arrows", spans, arrows)
	}
}

// traceUntilKilled runs in the child process of TestTimelineOfTheDead.
func traceUntilKilled(t *testing.T) {
	w, err := Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for {
		if err := Send(t.Context(), w.Comm(), []int{1}, 0, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Recv(t.Context(), w.Comm(), []int{0}, 0, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestChild is rank 1 of TestKilledPeer, in a separate process.
func TestChild(t *testing.T) {
	if os.Getenv("ISTHMUS_TEST_CHILD") == "" {
		t.Log("only as a child of TestKilledPeer")
		return
	}
	w, err := Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := Send(t.Context(), w.Comm(), []int{42}, 0, 1); err != nil {
		t.Fatal(err)
	}
	Recv(t.Context(), w.Comm(), []int{0}, 0, 9) // until the process is killed
}

// Every call that needs a killed peer fails and names it, also in the debug mode, in which calls wait
// for what the other ranks say.
func TestKilledPeer(t *testing.T) {
	for _, debug := range []string{os.Getenv(EnvDebug), "all"} {
		t.Run("debug="+debug, func(t *testing.T) {
			t.Setenv(EnvDebug, debug) // the child's, too
			killedPeer(t, debug)
		})
	}
}

func killedPeer(t *testing.T, debug string) {
	t.Helper()
	dir := testkit.ShortDir(t)
	child := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.timeout=60s")
	child.Env = append(os.Environ(), "ISTHMUS_TEST_CHILD=1", EnvRank+"=1", EnvSize+"=2", EnvJobKey+"="+testKey, EnvDir+"="+dir)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	env := map[string]string{EnvRank: "0", EnvSize: "2", EnvJobKey: testKey, EnvDir: dir, EnvDebug: debug}
	w, err := Init(ctx, func(c *config) { c.lookup = func(name string) (string, bool) { v, ok := env[name]; return v, ok } })
	if err != nil {
		t.Fatal(err)
	}
	c := w.Comm()
	buf := []int{0}
	if _, err := Recv(ctx, c, buf, 1, 1); err != nil || buf[0] != 42 {
		t.Fatal(buf, err)
	}
	named, any := Irecv(c, buf, 1, 1), Irecv(c, make([]int, 1), AnySource, 2)
	big := Isend(c, make([]byte, 100<<20), 1, 3) // more than the peer reads before it is killed
	child.Process.Kill()
	child.Wait()
	for _, r := range []*Request{named, any, big} {
		_, err := r.Wait(ctx)
		if !errors.Is(err, ErrProcFailed) || !strings.Contains(err.Error(), "rank 1 of the world") || !strings.Contains(err.Error(), "the link (same node) broke while ") {
			t.Errorf("%v", err)
		}
	}
	for _, err := range []error{
		Send(ctx, c, buf, 1, 1), Barrier(ctx, c),
		func() error { _, err := c.Probe(ctx, 1, 1); return err }(),
		func() error { _, err := c.Probe(ctx, AnySource, 1); return err }(),
		func() error { _, err := Recv(ctx, c, buf, AnySource, 1); return err }(),
	} {
		var failed *ProcFailedError
		if !errors.Is(err, ErrProcFailed) || errors.Is(err, ErrProcFailedPending) || !errors.As(err, &failed) || fmt.Sprint(failed.Ranks) != "[1]" {
			t.Errorf("%v", err)
		}
	}
	if err := w.Finalize(ctx); err != nil { // no peer is left that could confirm
		t.Error(err)
	}
}
