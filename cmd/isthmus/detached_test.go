package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/detached"
	"github.com/isthmus-grid/isthmus/overlay"
)

// patience bounds the waits of these tests. Nothing takes that long unless it hangs.
const patience = 2 * time.Minute

// background is a command that goes on while the test does.
type background struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr bytes.Buffer
}

// inBackground starts a program with its own session, as a terminal's.
func inBackground(t *testing.T, program string, words ...string) *background {
	t.Helper()
	b := &background{t: t, cmd: exec.CommandContext(t.Context(), program, words...)}
	b.cmd.Env = append(os.Environ(), "ISTHMUS_TEST_MAIN=1")
	b.cmd.Stderr, b.cmd.SysProcAttr = &b.stderr, &syscall.SysProcAttr{Setsid: true}
	out, err := b.cmd.StdoutPipe()
	if err == nil {
		err = b.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(patience, func() {
		b.cmd.Process.Kill()
		out.Close() // another process may have it
	})
	t.Cleanup(func() { hung.Stop() })
	b.stdout = bufio.NewReader(out)
	return b
}

// line returns the next line of its standard output.
func (b *background) line() string {
	b.t.Helper()
	line, err := b.stdout.ReadString('\n')
	if err != nil {
		b.cmd.Wait()
		b.t.Fatalf("%q: %q, %v\n%s", b.cmd.Args, line, err, b.stderr.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// wait returns the outcome, with the rest of its standard output.
func (b *background) wait() result {
	b.t.Helper()
	rest, err := io.ReadAll(b.stdout)
	if err != nil {
		b.t.Error(err)
	}
	b.cmd.Wait()
	return result{string(rest), b.stderr.String(), b.cmd.ProcessState.ExitCode()}
}

func self(t *testing.T) string {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// detachedHome gives the test's detached jobs a folder, and ends those that it leaves.
func detachedHome(t *testing.T) (root string) {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir()) // a driver that is killed leaves its ranks' folder
	t.Setenv("ISTHMUS_HELPER", "")
	root, err := detached.Root()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		jobs, err := detached.List(root)
		if err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, j := range jobs {
			j.Signal(syscall.SIGTERM)
			if err := j.Await(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	return root
}

// runDetached starts a detached job of one rank, a shell's, and returns its id.
func runDetached(t *testing.T, script string, flags ...string) (id string) {
	t.Helper()
	got := isthmus(t, t.TempDir(), append(append([]string{"run", "--detach", "-n", "1", "--label", ""}, flags...), "sh", "-c", script)...)
	id, _, _ = strings.Cut(got.stdout, "\n")
	want := localOne + fmt.Sprintf("isthmus: the job has started; isthmus attach %s shows its output, isthmus kill %[1]s ends it\n", id)
	if got.status != 0 || !strings.HasPrefix(id, "local-") || got.stdout != id+"\n" || got.stderr != want {
		t.Fatalf("%+v", got)
	}
	return id
}

// gate returns a FIFO from which a job reads a line, and what lets it read it.
func gate(t *testing.T) (name string, open func()) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0) // RDWR: neither side waits for the other to open it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return name, func() {
		if _, err := f.WriteString("go on\n"); err != nil {
			t.Error(err)
		}
	}
}

// stateOf returns what isthmus ps says of a detached job.
func stateOf(t *testing.T, id string) (s detached.State) {
	t.Helper()
	got := isthmus(t, t.TempDir(), "ps", "--detached", "--json")
	if got.status != 0 || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	for line := range strings.Lines(got.stdout) {
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		if string(s.ID) == id {
			return s
		}
	}
	t.Fatalf("ps does not list %s:\n%s", id, got.stdout)
	return s
}

// awaitEnd waits until a process has ended.
func awaitEnd(t *testing.T, pid string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		if _, state, _ := strings.Cut(string(text), ") "); err != nil || strings.HasPrefix(state, "Z") {
			return
		}
	}
	t.Errorf("process %s goes on", pid)
}

// localOne is the first line of a job of one rank.
const localOne = "isthmus: local: 1 rank on this host\n"

// Two that attach see a job from its beginning to its end, and get its status; one that leaves does
// not end it.
func TestDetachAndAttach(t *testing.T) {
	detachedHome(t)
	fifo, open := gate(t)
	id := runDetached(t, "echo one; echo two >&2; read line <"+fifo+"; echo three; exit 9")
	var attached [3]*background
	for i := range attached {
		attached[i] = inBackground(t, self(t), "attach", id[:len("local-")+8])
		if got := attached[i].line(); got != "one" {
			t.Errorf("the first line is %q", got)
		}
	}
	attached[2].cmd.Process.Signal(syscall.SIGINT)
	if got, want := attached[2].wait(), fmt.Sprintf("isthmus: %s goes on; isthmus attach %[1]s shows it again, isthmus kill %[1]s ends it\n", id); got.status != 130 || !strings.HasSuffix(got.stderr, want) || got.stdout != "" {
		t.Errorf("%+v, want %q", got, want)
	}
	if s := stateOf(t, id); s.Phase != detached.Running || s.Ended.After(s.Began) {
		t.Errorf("%+v", s)
	}
	open()
	for _, b := range attached[:2] {
		if got := b.wait(); got != (result{"three\n", localOne + "two\nisthmus: rank 0: exit status 9\n", 9}) {
			t.Errorf("%+v", got)
		}
	}
	if got := isthmus(t, t.TempDir(), "attach", id); got != (result{"one\nthree\n", localOne + "two\nisthmus: rank 0: exit status 9\n", 9}) {
		t.Errorf("after the end: %+v", got)
	}
	if got := isthmus(t, t.TempDir(), "attach", "--tail", id); got.stdout != "" || !strings.HasSuffix(got.stderr, "isthmus: rank 0: exit status 9\n") || got.status != 9 {
		t.Errorf("its tail after the end: %+v", got)
	}
	if s := stateOf(t, id); s.Phase != detached.Ended || s.Status != 9 || s.Error != "rank 0: exit status 9" {
		t.Errorf("%+v", s)
	}
	if got := isthmus(t, t.TempDir(), "kill", id); got.status != 1 || got.stderr != fmt.Sprintf("isthmus: kill: %s has ended; isthmus attach %[1]s shows how\n", id) {
		t.Errorf("%+v", got)
	}
	if got := isthmus(t, t.TempDir(), "attach", "nobody"); got.status != 1 || !strings.HasPrefix(got.stderr, "isthmus: attach: job nobody: no detached job of yours has this id (below ") {
		t.Errorf("%+v", got)
	}
}

// The job goes on when the shell is killed from which it was submitted, with all that shell started
// and its terminal; of what the shell passed on it keeps nothing open.
func TestDetachedJobOutlivesTheShell(t *testing.T) {
	detachedHome(t)
	fifo, open := gate(t)
	shell := inBackground(t, "sh", "-c", `exec 5>&1; "$0" run --detach -n 1 --label "" sh -c "read line <$1; echo \$line"; read line <$1`, self(t), fifo)
	id := shell.line()
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGKILL} {
		syscall.Kill(-shell.cmd.Process.Pid, s)
	}
	if got := shell.wait(); got.status != -1 {
		t.Errorf("%+v", got)
	}
	open()
	if got := isthmus(t, t.TempDir(), "attach", id); got != (result{"go on\n", localOne, 0}) {
		t.Errorf("%+v", got)
	}
}

// When the driver is killed, its job's processes end, and whoever asks about the job hears it.
func TestKilledDriver(t *testing.T) {
	detachedHome(t)
	id := runDetached(t, "echo $$; exec sleep 1000")
	attached := inBackground(t, self(t), "attach", id)
	pid := attached.line()
	driver := stateOf(t, id).PID
	if err := syscall.Kill(driver, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	want := localOne + fmt.Sprintf("isthmus: attach: %s: its driver, process %d, ended without recording how the job did", id, driver)
	if got := attached.wait(); got.status != 137 || !strings.HasPrefix(got.stderr, want) {
		t.Errorf("%+v, want %q", got, want)
	}
	awaitEnd(t, pid)
	if s := stateOf(t, id); s.Phase != detached.Lost {
		t.Errorf("%+v", s)
	}
	if got := isthmus(t, t.TempDir(), "kill", id); got.status != 1 || !strings.Contains(got.stderr, "has no driver any more") {
		t.Errorf("%+v", got)
	}
}

// isthmus kill ends a detached job by its driver, which records it.
func TestKillDetached(t *testing.T) {
	detachedHome(t)
	id, other := runDetached(t, "exec sleep 1000"), runDetached(t, "exec sleep 1000")
	if got := isthmus(t, t.TempDir(), "kill", "local-"); got.status != 1 || !strings.Contains(got.stderr, "job local-: 2 jobs begin so") {
		t.Errorf("%+v", got)
	}
	if got := isthmus(t, t.TempDir(), "kill", id); got != (result{id + " was ended\n", "", 0}) {
		t.Errorf("%+v", got)
	}
	if got := isthmus(t, t.TempDir(), "attach", id); got != (result{"", localOne + "isthmus: the job was ended: terminated\n", 143}) {
		t.Errorf("%+v", got)
	}
	if s := stateOf(t, other); s.Phase != detached.Running {
		t.Errorf("%+v", s)
	}
}

// A job that does not start leaves nothing, and its status is what it is without --detach.
func TestDetachedJobThatDoesNotStart(t *testing.T) {
	root := detachedHome(t)
	for _, tc := range []struct {
		words  []string
		status int
		stderr string
	}{
		{[]string{"./none"}, 127, localOne + "isthmus: run: rank 0: fork/exec ./none: no such file or directory; next: ls -l ./none: a name with a slash begins at the working folder, or at /\n"},
		{[]string{"--groups", "a:1,b:1", "true"}, 2, "isthmus: run: --groups: groups \"a:1,b:1\": \"b:1\"; want NAME:COUNT between commas, and counts that add up to the 1 ranks\n"},
		{[]string{"--stdin", "none", "true"}, 1, "isthmus: run: --detach: --stdin: open none: no such file or directory\n"},
	} {
		got := isthmus(t, t.TempDir(), append([]string{"run", "--detach", "-n", "1"}, tc.words...)...)
		if got != (result{"", tc.stderr, tc.status}) {
			t.Errorf("%q: %+v", tc.words, got)
		}
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("left are %v (%v)", left, err)
	}
}

// Rank 0 reads a file or nothing; of a long output the first and the last part are kept.
func TestInputAndOutputOfADetachedJob(t *testing.T) {
	root := detachedHome(t)
	if got := isthmus(t, t.TempDir(), "attach", runDetached(t, "cat; echo end")); got != (result{"end\n", localOne, 0}) {
		t.Errorf("without --stdin: %+v", got)
	}
	name := filepath.Join(t.TempDir(), "input")
	var all strings.Builder
	for n := range 300000 {
		fmt.Fprintf(&all, "%08d\n", n)
	}
	if err := os.WriteFile(name, []byte(all.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	id := runDetached(t, "cat", "--stdin", name, "--output-limit", "1MiB")
	ended := inBackground(t, self(t), "attach", "--tail", id)
	if got := ended.wait(); got.status != 0 {
		t.Errorf("%+v", got)
	}
	got := isthmus(t, t.TempDir(), "attach", id)
	half := 1 << 19
	if got.status != 0 || len(got.stdout) > 2*half || !strings.HasPrefix(all.String(), got.stdout[:half]) || !strings.HasSuffix(all.String(), got.stdout[half:]) || len(got.stdout) < half+half*3/4 {
		t.Errorf("status %d and %d bytes", got.status, len(got.stdout))
	}
	if want := fmt.Sprintf("isthmus: %d bytes of stdout are not kept here: --output-limit\n", all.Len()-len(got.stdout)) + localOne; got.stderr != want {
		t.Errorf("%q, want %q", got.stderr, want)
	}
	if jobs, err := detached.List(root); err != nil || len(jobs) != 2 {
		t.Errorf("%v, %v", jobs, err)
	}
}

// A prefix means a detached job if neither another one nor a job of the grid has it too.
func TestPrefixesOfDetachedJobs(t *testing.T) {
	root := filepath.Join(t.TempDir(), "jobs")
	for _, digit := range []string{"1", "2"} {
		d, err := detached.Begin(root, idOf("mine", digit), nil, detached.MinLimit)
		if err != nil {
			t.Fatal(err)
		}
		defer d.End(0, "")
	}
	for _, tc := range []struct {
		name  string
		grid  []overlay.JobID
		found overlay.JobID
		fails bool
	}{
		{"mine-1", []overlay.JobID{idOf("mine", "1"), idOf("other", "1")}, idOf("mine", "1"), false},
		{"mine-1", []overlay.JobID{idOf("mine", "1"), idOf("mine", "11")}, "", true},
		{string(idOf("mine", "1")), []overlay.JobID{idOf("mine", "1"), idOf("mine", "11")}, idOf("mine", "1"), false},
		{"mine", nil, "", true},
		{"other", []overlay.JobID{idOf("other", "1")}, "", false},
	} {
		j, err := liveDetached(root, tc.name, func() ([]overlay.JobID, error) { return tc.grid, nil })
		if (err != nil) != tc.fails || (j == nil) != (tc.found == "") || j != nil && j.ID != tc.found {
			t.Errorf("%s with %v: %+v, %v", tc.name, tc.grid, j, err)
		}
	}
}

// idOf returns the id of a job whose digits begin so.
func idOf(name, digits string) overlay.JobID {
	return overlay.JobID(name + "-" + digits + strings.Repeat("0", 32-len(digits)))
}
