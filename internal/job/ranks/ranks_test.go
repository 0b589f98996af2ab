package ranks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
)

// patience bounds the waits of the tests. Nothing takes that long unless it hangs.
const patience = 30 * time.Second

// TestMain makes this binary a rank too: Job.Env selects its part.
func TestMain(m *testing.M) {
	if part := os.Getenv("RANKS_TEST_PART"); part != "" {
		play(part, os.Getenv("RANKS_TEST_ARG"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// parts are those that only some systems have.
var parts = map[string]func(arg string){}

// play runs a rank, or its child.
func play(part, arg string) {
	if f := parts[part]; f != nil {
		f(arg)
		return
	}
	rank, _ := strconv.Atoi(os.Getenv(EnvRank))
	switch part {
	case "exit": // "1=3,2=4": rank 1 ends with 3, rank 2 with 4, others wait to be ended
		for _, one := range strings.Split(arg, ",") {
			if who, status, _ := strings.Cut(one, "="); who == strconv.Itoa(rank) {
				n, _ := strconv.Atoi(status)
				os.Exit(n)
			}
		}
		forever()
	case "some": // like exit, or "1=kill", but the others exit with status 0
		for _, one := range strings.Split(arg, ",") {
			if who, how, _ := strings.Cut(one, "="); who == strconv.Itoa(rank) {
				if how == "kill" {
					syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
				n, _ := strconv.Atoi(how)
				os.Exit(n)
			}
		}
		fmt.Printf("%d went on\n", rank)
	case "die": // by a signal of its own
		n, _ := strconv.Atoi(arg)
		syscall.Kill(os.Getpid(), syscall.Signal(n))
		forever()
	case "env":
		for _, v := range os.Environ() {
			if strings.HasPrefix(v, "ISTHMUS_") && !strings.HasPrefix(v, jobkey.EnvKeyFD) {
				fmt.Println(v)
			}
		}
	case "print":
		fmt.Print(arg)
		fmt.Fprint(os.Stderr, "complaint")
	case "flood": // whole lines in random pieces
		flood(rank, arg)
	case "polite": // tells that it was asked to end
		got := make(chan os.Signal, 1)
		signal.Notify(got, syscall.SIGTERM)
		fmt.Println("ready")
		fmt.Println((<-got).String())
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		hold(arg)
		fmt.Println("ready")
		forever()
	case "parent": // leaves a stubborn child behind that has its output
		leave(arg, false)
	case "deserter": // leaves one in another process group
		leave(arg, true)
	case "read":
		b, err := io.ReadAll(os.Stdin)
		fmt.Printf("read %q %v\n", b, err)
	case "readline":
		var line string
		fmt.Scanln(&line)
		fmt.Printf("read %s\n", line)
	case "talk": // until nobody listens
		for {
			fmt.Println("and another thing")
		}
	case "launch": // a job of one, with this process's input and output
		if err := Run(context.Background(), jobOf(arg, "", 1, os.Stdin, os.Stdout)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	case "launch stubborn", "launch family": // a job of one that holds a file, itself or by its child
		Run(context.Background(), jobOf(strings.TrimPrefix(part, "launch "), arg, 1, nil, os.Stdout))
	case "family": // lives, with a stubborn child
		leave(arg, false)
		forever()
	}
}

func forever() { select {} }

// hold takes the lock on a file until this process ends.
func hold(file string) {
	if file == "" {
		return
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(9)
	}
}

// leave starts a child that holds file, and returns once it does.
func leave(file string, away bool) {
	self, _ := os.Executable()
	r, w, _ := os.Pipe()
	p, err := os.StartProcess(self, []string{self}, &os.ProcAttr{
		Env:   []string{"RANKS_TEST_PART=stubborn", "RANKS_TEST_ARG=" + file},
		Files: []*os.File{nil, w, os.Stderr}, // of its outputs, the rank's is stderr
		Sys:   &syscall.SysProcAttr{Setsid: away},
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(9)
	}
	w.Close()
	io.ReadFull(r, make([]byte, len("ready\n")))
	fmt.Println(p.Pid)
}

const floodLines = 500

func flood(rank int, arg string) {
	var all strings.Builder
	for n := range floodLines {
		fmt.Fprintf(&all, "%d/%d %s\n", rank, n, arg)
	}
	rest := all.String()
	for size := 1; rest != ""; size = (size*7 + 3) % 97 {
		k := min(size+1, len(rest))
		os.Stdout.WriteString(rest[:k])
		rest = rest[k:]
	}
}

// jobOf is a job of n ranks that play a part.
func jobOf(part, arg string, n int, stdin io.Reader, stdout io.Writer) Job {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	key, err := jobkey.New("test")
	if err != nil {
		panic(err)
	}
	return Job{
		Argv: []string{self}, Count: n, Size: n, Key: key, Label: "here",
		Env:   []string{"RANKS_TEST_PART=" + part, "RANKS_TEST_ARG=" + arg},
		Stdin: stdin, Stdout: stdout,
	}
}

// listener is an output that calls heard with every line, one at a time.
type listener struct {
	bytes.Buffer
	mu    sync.Mutex
	heard func(line string)
}

func (l *listener) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heard != nil {
		for line := range strings.Lines(string(b)) {
			l.heard(strings.TrimSuffix(line, "\n"))
		}
	}
	return l.Buffer.Write(b)
}

// run is Run, which must end in time.
func run(t *testing.T, j Job) error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("the test's patience is over"))
	defer cancel()
	return Run(ctx, j)
}

func TestTheFirstFailureEndsTheJob(t *testing.T) {
	for _, tc := range []struct {
		part, arg string
		ranks     int
		rank      int
		status    int
		text      string
	}{
		{"exit", "2=3", 4, 2, 3, "rank 2: exit status 3"},
		{"die", "9", 1, 0, 128 + 9, "rank 0: signal: killed"},
		{"die", "15", 1, 0, 128 + 15, "rank 0: signal: terminated"},
	} {
		err := run(t, jobOf(tc.part, tc.arg, tc.ranks, nil, nil))
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Rank != tc.rank || exit.ExitCode() != tc.status || !strings.HasPrefix(err.Error(), tc.text) {
			t.Errorf("%s %s: %v, want %q and status %d", tc.part, tc.arg, err, tc.text, tc.status)
		}
	}
	if err := run(t, jobOf("exit", "0=0,1=0", 2, nil, nil)); err != nil {
		t.Errorf("two ranks that ended well: %v", err)
	}
}

// The others continue, and their results count.
func TestTheOthersSurvive(t *testing.T) {
	for _, tc := range []struct {
		part, arg string
		text      string // of the error
	}{
		{"some", "0=kill", ""},
		{"some", "0=kill,1=4", "rank 1: exit status 4"},
		{"some", "0=kill,1=kill,2=kill", "signal: killed"},
		{"some", "0=137", "rank 0: exit status 137"}, // its own
		{"some", "2=0", ""},
	} {
		var out listener
		j := jobOf(tc.part, tc.arg, 3, nil, &out)
		j.Survive = true
		err := run(t, j)
		if tc.text == "" && err != nil || tc.text != "" && (err == nil || !strings.Contains(err.Error(), tc.text)) {
			t.Errorf("%s: %v, want %q", tc.arg, err, tc.text)
		}
		for rank := range 3 {
			if lives := !strings.Contains(tc.arg, fmt.Sprint(rank)+"="); lives != strings.Contains(out.String(), fmt.Sprintf("[here:%d] %d went on", rank, rank)) {
				t.Errorf("%s: rank %d said nothing, or too much:\n%s", tc.arg, rank, out.String())
			}
		}
	}
}

// Started is called once, when all ranks have been started, and not when one could not be.
func TestStarted(t *testing.T) {
	calls := 0
	j := jobOf("print", "x\n", 3, nil, nil)
	j.Started = func() { calls++ }
	if err := run(t, j); err != nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	j.Argv = []string{"/no/such/program"}
	if err := run(t, j); err == nil || calls != 1 {
		t.Errorf("of a program that does not exist: %d calls, %v", calls-1, err)
	}
}

// The statuses are those of shells, and the text says what is missing.
func TestProgramsThatCannotBeStarted(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := file("plain", 0o600, "no program")
	for program, want := range map[string]struct {
		status int
		text   string
	}{
		"no-such-program-here": {127, "not found"},
		"/no/such/program":     {127, "no such file"},
		plain + "/program":     {127, "not a directory"},
		plain:                  {126, "permission denied"},
		dir:                    {126, "permission denied"},
		file("script", 0o700, "#!/no/such/interpreter -x\necho\n"):                                   {127, `"/no/such/interpreter", is not there`},
		file("dos", 0o700, "#!/bin/sh\r\necho\r\n"):                                                  {127, `"/bin/sh\r", is not there`},
		file("bare", 0o700, "echo\n"):                                                                {126, "does not begin with #!"},
		file("elsewhere", 0o700, "\x7fELF\x02\x01\x01"+strings.Repeat("\x00", 9)+"\x02\x00\xf3\x00"): {126, "another kind of system or processor"},
	} {
		j := jobOf("", "", 2, nil, nil)
		j.Argv = []string{program}
		err := run(t, j)
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Rank != 0 || exit.Status != want.status || !strings.Contains(err.Error(), program) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v, want status %d and %q", program, err, want.status, want.text)
		}
	}
}

func TestOutputIsTagged(t *testing.T) {
	for label, want := range map[string]string{
		"siteb/n1": "[siteb/n1:4] one\n[siteb/n1:4] \n[siteb/n1:4] no end\n",
		"":         "one\n\nno end\n",
	} {
		var stdout, stderr listener
		j := jobOf("print", "one\n\nno end", 1, nil, &stdout)
		j.First, j.Size, j.Helper, j.Label, j.Stderr = 4, 5, "/none", label, &stderr
		if err := run(t, j); err != nil {
			t.Fatal(err)
		}
		if stdout.String() != want {
			t.Errorf("label %q: %q, want %q", label, stdout.String(), want)
		}
		if line := stderr.String(); !strings.HasSuffix(line, "complaint\n") || strings.HasPrefix(line, "[") != (label != "") {
			t.Errorf("label %q: stderr has %q", label, line)
		}
	}
}

// TestLinesStayWhole lets eight ranks write concurrently, in pieces that do not end at line ends.
func TestLinesStayWhole(t *testing.T) {
	var out listener
	filling := strings.Repeat("x", 50)
	if err := run(t, jobOf("flood", filling, 8, nil, &out)); err != nil {
		t.Fatal(err)
	}
	next := [8]int{}
	for line := range strings.Lines(out.String()) {
		var tag, rank, n int
		var rest string
		if _, err := fmt.Sscanf(line, "[here:%d] %d/%d %s\n", &tag, &rank, &n, &rest); err != nil || tag != rank || rest != filling {
			t.Fatalf("a torn line: %q (%v)", line, err)
		}
		if n != next[rank] {
			t.Fatalf("rank %d: line %d after line %d", rank, n, next[rank]-1)
		}
		next[rank]++
	}
	if next != [8]int{floodLines, floodLines, floodLines, floodLines, floodLines, floodLines, floodLines, floodLines} {
		t.Errorf("lines of each rank: %v", next)
	}
}

// TestALineWithoutEndIsCut: the buffer is bounded, and nothing is lost.
func TestALineWithoutEndIsCut(t *testing.T) {
	var out listener
	o := Lines(&out, nil)
	w, _, err := o.Of(Place{})
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("0123456789"), maxLine/2)
	for part := range slices.Chunk(want, 1000) {
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
		if held := len(w.(*lineWriter).unfinished); held > maxLine {
			t.Fatalf("%d bytes are held back, at most %d may be", held, maxLine)
		}
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if got := bytes.ReplaceAll(out.Bytes(), []byte("\n"), nil); !bytes.Equal(got, want) {
		t.Errorf("%d bytes came out, want %d", len(got), len(want))
	}
}

func TestTheEnvironmentSaysWhereARankIs(t *testing.T) {
	t.Setenv(EnvHelper, "/an/outer/helper.sock") // of the job that this process might belong to
	t.Setenv(EnvDir, "/an/outer/folder")
	t.Setenv(EnvRank, "77")
	t.Setenv(jobgroups.Env, "outer:77")
	var out listener
	j := jobOf("env", "", 3, nil, &out)
	j.Label = ""
	if err := run(t, j); err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(out.String())
	slices.Sort(lines)
	dir, ok := strings.CutPrefix(lines[0], EnvDir+"=")
	want := []string{EnvDir + "=" + dir, EnvDir + "=" + dir, EnvDir + "=" + dir, EnvRank + "=0", EnvRank + "=1", EnvRank + "=2", EnvSize + "=3", EnvSize + "=3", EnvSize + "=3"}
	if !ok || dir == "/an/outer/folder" || !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the job's folder %s is left: %v", dir, err)
	}

	out.Reset()
	j.First, j.Count, j.Size, j.Helper = 2, 1, 9, "/run/helper.sock"
	j.Groups = jobgroups.Layout{{Name: "a", Count: 2}, {Name: "b", Count: 7}}
	if err := run(t, j); err != nil {
		t.Fatal(err)
	}
	if want := jobgroups.Env + "=a:2,b:7\n"; strings.Count(out.String(), jobgroups.Env) != 1 || !strings.Contains(out.String(), want) {
		t.Errorf("%q, want one %s", out.String(), want)
	}
	if want := EnvHelper + "=/run/helper.sock"; !strings.Contains(out.String(), want) || strings.Contains(out.String(), EnvDir) {
		t.Errorf("%q, want %s and no %s", out.String(), want, EnvDir)
	}
}

// whenReady calls do once n ranks have reported that they are ready.
func whenReady(n int, do func()) *listener {
	return &listener{heard: func(line string) {
		if strings.HasSuffix(line, " ready") {
			if n--; n == 0 {
				do()
			}
		}
	}}
}

func TestASignalReachesEveryRank(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		heed(s)
		out := whenReady(5, func() { syscall.Kill(os.Getpid(), s) })
		err := run(t, jobOf("polite", "", 5, nil, out))
		var signalled *SignalError
		if !errors.As(err, &signalled) || signalled.ExitCode() != 128+int(s) {
			t.Errorf("%v: %v", s, err)
		}
		if got := strings.Count(out.String(), "terminated\n"); got != 5 {
			t.Errorf("%v: %d of 5 ranks were told:\n%s", s, got, out.String())
		}
	}
}

// heed makes sure that a signal is not ignored because of an earlier test or because this process
// was started with nohup. signal.Reset alone would leave it marked as ignored.
func heed(s syscall.Signal) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, s)
	signal.Stop(c)
}

// TestAnIgnoredSignalIsIgnored: a user who starts the launcher with nohup wants the job to outlive
// the terminal.
func TestAnIgnoredSignalIsIgnored(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer heed(syscall.SIGHUP)
	out := whenReady(1, func() {
		syscall.Kill(os.Getpid(), syscall.SIGHUP)
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
	})
	err := run(t, jobOf("polite", "", 1, nil, out))
	var signalled *SignalError
	if !errors.As(err, &signalled) || signalled.Signal != syscall.SIGTERM {
		t.Errorf("%v, want SIGTERM's", err)
	}
}

func TestTheContextEndsTheJob(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	out := whenReady(2, func() { cancel(enough) })
	err := Run(ctx, jobOf("polite", "", 2, nil, out))
	if !errors.Is(err, enough) || err.Error() != "the job was ended: enough" {
		t.Error(err)
	}
}

// TestWhoIgnoresSIGTERMIsKilled: after the grace time, both the parent and the child that has its
// output are killed.
func TestWhoIgnoresSIGTERMIsKilled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "lock")
	err := Run(ctx, jobOf("stubborn", file, 1, nil, whenReady(1, cancel)))
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	mustBeFree(t, file)
}

// mustBeFree fails when a process still holds file.
func mustBeFree(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	taken := make(chan error, 1)
	go func() { taken <- syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }()
	select {
	case err := <-taken:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Errorf("a process still runs and holds %s", file)
	}
}

// TestWhatARankLeavesBehindIsEnded: the rank exited with status 0, so the job did.
func TestWhatARankLeavesBehindIsEnded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	var out listener
	if err := run(t, jobOf("parent", file, 1, nil, &out)); err != nil {
		t.Error(err)
	}
	mustBeFree(t, file)
}

// TestWhoLeftTheGroupIsNotWaitedFor, although it has the rank's output.
func TestWhoLeftTheGroupIsNotWaitedFor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	var out listener
	j := jobOf("deserter", file, 1, nil, &out)
	j.Label = ""
	err := run(t, j)
	pid, atoiErr := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil || atoiErr != nil {
		t.Fatal(err, atoiErr)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("the child had to be alive still: %v", err)
	}
	mustBeFree(t, file)
}

func TestStdinGoesToRank0(t *testing.T) {
	file := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(file, []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for name, stdin := range map[string]io.Reader{"reader": strings.NewReader("words"), "file": opened} {
		var out listener
		if err := run(t, jobOf("read", "", 3, stdin, &out)); err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(out.String(), "\n")
		slices.Sort(lines)
		want := "[here:0] read \"words\" <nil>\n[here:1] read \"\" <nil>\n[here:2] read \"\" <nil>\n"
		if got := strings.Join(lines, ""); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestAnInputThatNeverEndsHoldsNothingUp: rank 0 need not read it.
func TestAnInputThatNeverEndsHoldsNothingUp(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	if err := run(t, jobOf("print", "done\n", 2, r, nil)); err != nil {
		t.Error(err)
	}
}

// TestNobodyTakesTheOutput: a rank gets SIGPIPE, as in a pipeline.
func TestNobodyTakesTheOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	err = run(t, jobOf("talk", "", 1, nil, w))
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Status != 128+int(syscall.SIGPIPE) {
		t.Errorf("%v, want the end by SIGPIPE", err)
	}
}

// TestALauncherInAPipelineClearsUp: "isthmus run ... | head" leaves neither ranks nor a folder
// behind.
func TestALauncherInAPipelineClearsUp(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var said bytes.Buffer
	launcher := exec.Command(os.Args[0])
	launcher.Env = append(os.Environ(), "RANKS_TEST_PART=launch", "RANKS_TEST_ARG=talk", "TMPDIR="+dir)
	launcher.Stdout, launcher.Stderr = w, &said
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(patience, func() { launcher.Process.Kill() })
	defer hung.Stop()
	w.Close()
	io.ReadFull(r, make([]byte, 1000))
	r.Close()
	if err := launcher.Wait(); err != nil || said.String() != "rank 0: signal: broken pipe\n" {
		t.Errorf("%v, %q", err, said.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestBadJobs(t *testing.T) {
	ok := Job{Argv: []string{"x"}, Count: 1, Size: 1}
	for _, tc := range []struct {
		change func(*Job)
		text   string
	}{
		{func(j *Job) { j.Argv = nil }, "no program to run"},
		{func(j *Job) { j.Count = 0 }, "0 processes: want at least 1"},
		{func(j *Job) { j.Size = math.MaxInt }, "a job of 9223372036854775807 processes: want 1 to 2147483647"},
		{func(j *Job) { j.First = -1 }, "ranks -1--1 do not lie in a job of 1"},
		{func(j *Job) { j.First = 1 }, "ranks 1-1 do not lie in a job of 1"},
		{func(j *Job) { j.First, j.Count = 1, math.MaxInt }, "do not lie in a job of 1"},
		{func(j *Job) { j.Groups = jobgroups.Layout{{Name: "a", Count: 2}} }, `groups "a:2": "a:2"; want NAME:COUNT between commas, and counts that add up to the 1 ranks`},
		{func(j *Job) { j.Size = 2 }, "ranks 0-0 of 2 run here and no helper was named, so they could not reach the others; give --helper or ISTHMUS_HELPER"},
	} {
		j := ok
		tc.change(&j)
		if err := Run(t.Context(), j); err == nil || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%v, want %q", err, tc.text)
		}
	}
}

func TestParseRanks(t *testing.T) {
	for text, want := range map[string][2]int{"3": {3, 1}, "0-3": {0, 4}, "7-7": {7, 1}} {
		if first, count, err := ParseRanks(text); err != nil || first != want[0] || count != want[1] {
			t.Errorf("%q: %d, %d, %v", text, first, count, err)
		}
	}
	for _, text := range []string{"", "-", "a", "3-", "-3", "3-1", "1-2-3", "0-9223372036854775807", "1-x"} {
		if _, _, err := ParseRanks(text); err == nil || err.Error() != fmt.Sprintf("ranks %q: want FIRST-LAST, such as 0-3", text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The data in a pipe is copied regardless of delays and of other processes that hold the pipe.
func TestOutputIsPassedOnLate(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close() // another process holds it
	if _, err := w.WriteString("last words\n"); err != nil {
		t.Fatal(err)
	}
	r.SetReadDeadline(time.Unix(1, 0))
	var got bytes.Buffer
	passOn(&got, r)
	if got.String() != "last words\n" {
		t.Errorf("got %q", got.String())
	}
}

// A rank that ended well, but without Finalize, is named as what came before the failure of another.
func TestWhoLeftEarlyIsNamed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"rank-1-0a.sock", "rank-12-0a.sock", "rank-2-0a.left"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got error
	e := &endings{fail: func(err error) { got = err }}
	for _, rank := range []int{2, 1, 3} {
		e.exitedOK(rank, stillListed(dir, rank))
	}
	e.exitedWithError(&ExitError{Rank: 0, Status: 4, Err: errors.New("exit status 4")})
	if want := "rank 0: exit status 4, after rank 1 had ended with status 0 and without Finalize"; got == nil || got.Error() != want {
		t.Errorf("%v, want %s", got, want)
	}
	if stillListed("", 1) {
		t.Error("a job with a helper has no folder")
	}
}
