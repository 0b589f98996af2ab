//go:build system

package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// roundsKey marks, in the environment, a process as a rank of rounds.
const roundsKey = "ISTHMUS_TEST_ROUNDS"

// rounds is a rank: all ranks exchange blocks with all others, check the received ones, and report
// it, until rank 0's input ends. Each reports at the end how many rounds were correct.
func rounds() error {
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	c := w.Comm()
	more := make(chan bool)
	go func() { // ends with the input
		if c.Rank() == 0 {
			io.Copy(io.Discard, os.Stdin)
		}
		close(more)
	}()
	const block = 1000
	send, recv := make([]int, block*c.Size()), make([]int, block*c.Size())
	value := func(round, from, to, i int) int { return ((round*31+from)*31+to)*31 + i }
	for round := 0; ; round++ {
		for i := range send {
			send[i] = value(round, c.Rank(), i/block, i)
		}
		if err := mpilib.Alltoall(ctx, c, send, recv); err != nil {
			return err
		}
		for i := range recv {
			if want := value(round, i/block, c.Rank(), c.Rank()*block+i%block); recv[i] != want {
				return fmt.Errorf("rank %d, round %d, element %d: %d, want %d", c.Rank(), round, i, recv[i], want)
			}
		}
		on := []int{1}
		if c.Rank() == 0 {
			fmt.Println("round", round)
			select {
			case <-more:
				on[0] = 0
			default:
			}
		}
		if err := mpilib.Bcast(ctx, c, on, 0); err != nil {
			return err
		}
		if on[0] == 0 {
			fmt.Println("right:", round+1)
			return w.Finalize(ctx)
		}
	}
}

// A helper that is killed under a running job, or ended as by an upgrade, leaves it running: the
// next one takes it over, no rank dies, all messages and all output arrive once.
func TestHelperRestartsUnderAJob(t *testing.T) {
	t.Parallel() // most of it is waiting
	cfg := threeSites()
	cfg.Settings["helper"]["node_service"] = map[string]any{"end_jobs": false}
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteShut, cfg)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w.AwaitHosts(5)
	cmd := w.Isthmus("run", "--hosts", "n2@open:2,n1@closed:2,n1@shut:2", self)
	cmd.Env = append(cmd.Env, roundsKey+"=yes")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints lockedBuffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := make(chan string, 1<<16)
	go func() { // ends with the command
		for s := bufio.NewScanner(stdout); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	next := 0
	var right []string // the rounds that each rank counted: other hosts' lines may come before rank 0's last
	hear := func() bool {
		select {
		case line, ok := <-lines:
			switch _, what, _ := strings.Cut(line, "] "); {
			case !ok:
				return false
			case strings.HasPrefix(what, "right: "):
				right = append(right, what)
			case what == fmt.Sprint("round ", next):
				next++
			default:
				t.Errorf("%q where round %d was due", line, next)
			}
			return !t.Failed()
		case <-w.Ctx.Done():
			t.Fatalf("no output after round %d: %v\n%s", next-1, context.Cause(w.Ctx), complaints.String())
		}
		return false
	}
	hearTo := func(round int) {
		for next < round && hear() {
		}
		if next < round {
			t.Fatalf("only %d rounds came\n%s", next, complaints.String())
		}
	}
	hearTo(50)
	for _, end := range []struct {
		daemon string
		how    func() error
	}{
		{"helper closed/n1", func() error { w.Daemon("helper closed/n1").Kill(); return nil }},
		{"helper open/n2", func() error { w.Daemon("helper open/n2").Kill(); return nil }}, // of rank 0, who speaks
		{"helper shut/n1", w.Daemon("helper shut/n1").Stop},
	} {
		if err := end.how(); err != nil {
			t.Fatal(err)
		}
		if end.daemon != "helper open/n2" {
			hearTo(next + 10) // the ranks do not need their helper
		}
		if err := w.Daemon(end.daemon).Start(w.Ctx); err != nil {
			t.Fatal(err)
		}
		w.AwaitLog(end.daemon, "job taken over")
		hearTo(next + 50)
	}
	stdin.Close()
	for hear() {
	}
	want := slices.Repeat([]string{fmt.Sprint("right: ", next)}, 6)
	if err := cmd.Wait(); err != nil || !slices.Equal(right, want) {
		t.Errorf("%v; after %d rounds the ranks said %q\n%s", err, next, right, complaints.String())
	}
	w.AwaitNoJobs()
	for _, node := range w.helpers() {
		w.nothingOf(node.String())
	}
}

// nothingOf waits until a node's node service has neither agents nor folders of jobs.
func (w *world) nothingOf(node string) {
	w.T.Helper()
	left := func() string {
		var all []string
		for _, folder := range []string{"jobs", "agents"} {
			entries, err := os.ReadDir(filepath.Join(w.Store(node), folder))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				w.T.Fatal(err)
			}
			for _, e := range entries {
				all = append(all, e.Name())
			}
		}
		return fmt.Sprint(all)
	}
	w.Until("nothing to be left at "+node, func() bool { return left() == "[]" }, left)
}

// ended waits until a process is gone.
func (w *world) ended(pid string) {
	w.T.Helper()
	w.Until("process "+pid+" to end", func() bool {
		_, err := os.Stat("/proc/" + pid)
		return err != nil
	})
}

// parentOf returns the parent of a process.
func (w *world) parentOf(pid string) string {
	w.T.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if m := regexp.MustCompile(`(?m)^PPid:\s+(\d+)$`).FindSubmatch(text); err == nil && m != nil {
		return string(m[1])
	}
	w.T.Fatalf("process %s has no parent: %v", pid, err)
	return ""
}

// Killing a job agent ends its job: the submitter gets the reason, and neither processes, even in
// other groups, nor files are left. The same holds without a helper, after a while.
func TestJobAgentKilled(t *testing.T) {
	t.Parallel() // most of it is waiting
	cfg := labtest.LaunchConfig(map[string]any{"jobs": 2, "processes": 1})
	cfg.Settings["helper"]["node_service"] = map[string]any{"end_jobs": false, "orphan": "2s"}
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, cfg)
	// One stays, one left its group and session, and its parent has ended.
	const restless = "(setsid sh -c 'echo $$; trap \"\" TERM HUP; while :; do sleep 1; done' &); trap '' TERM HUP; echo $$; sleep 1000"
	begin := func() (c *labtest.Talk, pids []string, agent, guard int) {
		c = w.BookedTalk("closed/n1", "shut/n1", "killed")
		c.StageFile("input", []byte("content"))
		c.Start(&nodepb.Start{Argv: nodepb.Bytes([]string{"sh", "-c", restless})})
		for said := ""; len(strings.Fields(said)) < 2; pids = strings.Fields(said) {
			_, text := c.HearOutput()
			said += text
		}
		daemons := map[string]bool{fmt.Sprint(w.Daemon("helper shut/n1").PID()): true}
		if s := w.Starter("shut/n1"); s != nil {
			daemons[fmt.Sprint(s.PID())] = true
		}
		for _, pid := range pids { // the guard is the parent of the agent, and of the other since its own ended
			if parent := w.parentOf(pid); !daemons[w.parentOf(parent)] {
				agent, _ = strconv.Atoi(parent)
				guard, _ = strconv.Atoi(w.parentOf(parent))
			}
		}
		return c, pids, agent, guard
	}
	for _, who := range []string{"agent", "guard"} {
		c, pids, agent, guard := begin()
		syscall.Kill(map[string]int{"agent": agent, "guard": guard}[who], syscall.SIGKILL)
		all := c.Listen()
		if all.Exits[0].GetSignal() != "KILL" || !strings.Contains(string(all.Over.GetEnded()), "job agent") {
			t.Errorf("the %s killed: %+v", who, all)
		}
		for _, pid := range pids {
			w.ended(pid)
		}
		w.nothingOf("shut/n1")
	}
	t.Run("driver of a detached job", func(t *testing.T) { w.endsWithItsDriver(t, "closed/n1", "shut/n1") })
	t.Run("without a helper", func(t *testing.T) {
		_, pids, _, _ := begin()
		w.Daemon("helper shut/n1").Kill()
		for _, pid := range pids {
			w.ended(pid)
		}
		if err := w.Daemon("helper shut/n1").Start(w.Ctx); err != nil {
			t.Fatal(err)
		}
		w.nothingOf("shut/n1")
	})
}
