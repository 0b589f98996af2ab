package submit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// buffer collects the output of several processes.
type buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

// sorted returns the sorted lines.
func (b *buffer) sorted() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := slices.Collect(strings.Lines(b.all.String()))
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func jobOf(t *testing.T, n int, out io.Writer) *Job {
	t.Helper()
	key, err := jobkey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	return &Job{Key: key, Argv: []string{"x"}, Place: allocate.Job{Ranks: n, Copies: 1}, Strategy: "concentrate", Output: ranks.Lines(out, out)}
}

func TestAJobOverThreeHosts(t *testing.T) {
	w := newWorld(t, "a/n1:2", "b/n1:2", "c/n1:8")
	var out buffer
	j := jobOf(t, 6, &out)
	var steps []string
	j.Progress = func(p Progress) {
		if len(steps) == 0 || steps[len(steps)-1] != p.Step {
			steps = append(steps, p.Step)
		}
	}
	r, err := w.run(j)
	if err != nil {
		t.Fatal(err)
	}
	want := "[a/n1:0] rank 0\n[a/n1:1] rank 1\n[b/n1:2] rank 2\n[b/n1:3] rank 3\n[c/n1:4] rank 4\n[c/n1:5] rank 5\n"
	if out.sorted() != want {
		t.Errorf("got\n%s\nwant\n%s", out.sorted(), want)
	}
	if got := fmt.Sprint(r.Places); got != "[{a/n1 [{0 0} {1 0}]} {b/n1 [{2 0} {3 0}]} {c/n1 [{4 0} {5 0}]}]" {
		t.Error(got)
	}
	for _, want := range []string{"listing", "booking", "staging", "starting", "running", "ended"} {
		if !slices.Contains(steps, want) {
			t.Errorf("no step %q in %v", want, steps)
		}
	}
	w.idle()
}

func TestFilesGoOnce(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1")
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, bytes.Repeat([]byte("#!/bin/sh\n"), 300_000), 0o700); err != nil {
		t.Fatal(err)
	}
	name, file, err := Program(program)
	if err != nil || name != "./program" {
		t.Fatal(name, err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inputs, err := Collect([]string{empty})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{2 * distinct(file), 0} {
		j := jobOf(t, 2, io.Discard)
		j.Argv, j.Files = []string{name}, append(inputs, *file)
		r, err := w.run(j)
		if err != nil {
			t.Fatal(err)
		}
		if r.Staged != want {
			t.Errorf("run %d: %d bytes were sent, want %d", i, r.Staged, want)
		}
	}
	for _, n := range w.nodes {
		if got := fmt.Sprint(n.files); got != "[empty 0 program 3000000 empty 0 program 3000000]" {
			t.Errorf("%s has %s", n.name, got)
		}
	}
	w.idle()
}

// distinct returns the number of bytes in distinct chunks of a file.
func distinct(f *File) (n int64) {
	seen := map[string]bool{}
	for i, sum := range f.Manifest.Chunks {
		if !seen[sum.String()] {
			n += min(1<<20, f.Manifest.Size-int64(i)<<20)
		}
		seen[sum.String()] = true
	}
	return n
}

// Streams break at every step, once for each reservation; the job is not affected.
func TestStreamsThatBreak(t *testing.T) {
	for name, at := range map[string]func(*nodepb.ToNode) bool{
		"manifest": func(m *nodepb.ToNode) bool { return m.GetManifest() != nil },
		"chunk":    func(m *nodepb.ToNode) bool { return m.GetChunk() != nil },
		"start":    func(m *nodepb.ToNode) bool { return m.GetStart() != nil },
		"commit":   func(m *nodepb.ToNode) bool { return m.GetCommit() != nil },
		"input":    func(m *nodepb.ToNode) bool { return m.GetInput() != nil },
		"ack":      func(m *nodepb.ToNode) bool { return m.GetAck() != nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a/n1:1", "b/n1:1")
			for _, n := range w.nodes {
				n.breaks = func(t *talk, m *nodepb.ToNode) bool {
					if !at(m) || t.broke > 0 {
						return false
					}
					t.broke++
					return true
				}
				n.life = func(p *process) {
					if p.Rank == 0 {
						<-p.inputEnd
						p.say("%d bytes\n", p.input.Len())
					}
					for i := range 100 {
						p.say("%d\n", i)
					}
					p.exit(0, "")
				}
			}
			file := filepath.Join(t.TempDir(), "data")
			if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
			var out buffer
			j := jobOf(t, 2, &out)
			var err error
			if j.Files, err = Collect([]string{file}); err != nil {
				t.Fatal(err)
			}
			j.Stdin = strings.NewReader(strings.Repeat("x", 1_000_000))
			if _, err := w.run(j); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(out.sorted(), "\n"); got != 201 || !strings.Contains(out.sorted(), "[a/n1:0] 1000000 bytes\n") {
				t.Errorf("%d lines, want 201:\n%.200s", got, out.sorted())
			}
			w.idle()
		})
	}
}

func TestTheFirstFailureEndsTheJob(t *testing.T) {
	w := newWorld(t, "a/n1:2", "b/n1:2")
	for _, n := range w.nodes {
		n.life = func(p *process) {
			if p.Rank == 2 {
				p.exit(9, "")
				return
			}
			if s := <-p.Signals; s != "TERM" {
				t.Errorf("rank %d: signal %s", p.Rank, s)
			}
			p.exit(143, "TERM")
		}
	}
	_, err := w.run(jobOf(t, 4, io.Discard))
	var exit *ranks.ExitError
	if !errors.As(err, &exit) || exit.Rank != 2 || exit.ExitCode() != 9 || err.Error() != "rank 2: exit status 9 (b/n1)" {
		t.Error(err)
	}
	w.idle()
}

// A node that sends Over without the exits of its processes has lost them.
func TestANodeIsOverWithoutAWord(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1")
	w.nodes["a/n1"].life = func(p *process) {
		<-p.Signals
		p.exit(143, "TERM")
	}
	w.nodes["b/n1"].life = func(p *process) {
		p.n.mu.Lock()
		p.talk.running = nil
		p.n.node.Exited(p.key)
		p.n.mu.Unlock()
		p.event(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Over{Over: &nodepb.Over{Ended: []byte("not all nodes started in time")}}})
	}
	_, err := w.run(jobOf(t, 2, io.Discard))
	var exit *ranks.ExitError
	if !errors.As(err, &exit) || exit.Rank != 1 || exit.ExitCode() != 137 || !strings.HasPrefix(err.Error(), "rank 1: lost with b/n1: not all nodes started in time") {
		t.Error(err)
	}
	w.idle()
}

// Words, variables, names of files and errors are bytes on their way to a node and back.
func TestBytesAreBytes(t *testing.T) {
	const odd = "\xff\xc3"
	w := newWorld(t, "a/n1:1")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in"+odd), []byte(odd), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := Collect([]string{filepath.Join(dir, "in"+odd)})
	if err != nil {
		t.Fatal(err)
	}
	w.nodes["a/n1"].life = func(p *process) {
		if got := fmt.Sprintf("%q %q %q %q", p.start.Argv, p.start.Environment, p.start.Outputs, p.n.files); got != fmt.Sprintf("%q %q %q %q", []string{"./prog" + odd, odd}, []string{"A" + odd + "=" + odd}, []string{"out" + odd}, []string{"in" + odd + " 2"}) {
			t.Errorf("the node has %s", got)
		}
		p.say("%s\n", odd)
		p.event(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_File{File: &nodepb.FileChunk{Name: []byte("out" + odd), Data: []byte(odd), Mode: 0o600, End: true}}})
		p.event(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_File{File: &nodepb.FileChunk{Name: []byte("none" + odd), Fault: []byte("no such file: none" + odd), End: true}}})
		p.exits(&nodepb.Exited{Status: 127, Text: []byte("exec ./prog" + odd)})
	}
	var out buffer
	j := jobOf(t, 1, &out)
	fetched := &Folder{Dir: dir, Flat: true}
	j.Argv, j.Env, j.Files, j.Fetch, j.FetchTo = []string{"./prog" + odd, odd}, []string{"A" + odd + "=" + odd}, files, []string{"out" + odd}, fetched
	_, err = w.run(j)
	var exit *ranks.ExitError
	if !errors.As(err, &exit) || exit.Status != 127 || !strings.Contains(err.Error(), "exec ./prog"+odd) {
		t.Errorf("%v", err)
	}
	if _, err := fetched.Close(); err == nil || !strings.Contains(err.Error(), "none"+odd) {
		t.Errorf("the folder: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "out"+odd)); string(text) != odd || out.sorted() != "[a/n1:0] "+odd+"\n" {
		t.Errorf("%q, %v, %q", text, err, out.sorted())
	}
	w.idle()
}

// A message that cannot be encoded, decoded or carried, here or there, ends the job with that as the
// reason. It is not taken for a fault of the network, and not sent again.
func TestMessagesThatCannotBeCarried(t *testing.T) {
	for name, tc := range map[string]struct {
		job  func(*Job)
		node func(*talk, *nodepb.ToNode) bool
		want string
	}{
		"not encoded here": {job: func(j *Job) { j.Limits = []*nodepb.Limit{{Name: "\xff"}} }, want: "invalid UTF-8"},
		"too large there":  {job: func(j *Job) { j.Env = []string{"A=" + strings.Repeat("x", 5<<20)} }, want: "larger than max"},
		"not encoded there": {node: func(t *talk, m *nodepb.ToNode) bool {
			if m.GetAsk() != nil {
				t.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Nok{Nok: &nodepb.NOK{Reason: "\xff"}}})
			}
			return false
		}, want: "invalid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a/n1:1")
			var starts atomic.Int32
			w.nodes["a/n1"].breaks = func(of *talk, m *nodepb.ToNode) bool {
				if m.GetAsk() != nil || m.GetAttach() != nil {
					starts.Add(1)
				}
				return tc.node != nil && tc.node(of, m)
			}
			j := jobOf(t, 1, io.Discard)
			if tc.job != nil {
				tc.job(j)
			}
			j.Progress = func(p Progress) {
				if p.Step == "broken" || p.Step == "back" {
					t.Errorf("said %q", p)
				}
			}
			_, err := w.run(j)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "a/n1") || starts.Load() > 3 {
				t.Errorf("%v, after %d attempts", err, starts.Load())
			}
		})
	}
}

// The user gets the reason why a submission failed, not the fact that its hosts then cancelled what
// they had started.
func TestCancellingIsNoCause(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1")
	a, b := w.nodes["a/n1"], w.nodes["b/n1"]
	a.life = func(*process) {} // it reports its end when it is cancelled
	a.breaks = func(t *talk, m *nodepb.ToNode) bool {
		if m.GetCancel() != nil {
			exited := &nodepb.ToSubmitter{Event: 1, Say: &nodepb.ToSubmitter_Exited{Exited: &nodepb.Exited{
				Process: &nodepb.Process{}, Status: 137, Signal: "KILL", Text: []byte("not started: cancelled")}}}
			t.events = append(t.events, exited)
			t.answer(exited)
		}
		return false
	}
	b.breaks = func(t *talk, m *nodepb.ToNode) bool {
		if m.GetStart() != nil { // its lease expired before that arrived
			b.node.Tick(time.Now().Add(time.Hour))
		}
		return false
	}
	_, err := w.run(jobOf(t, 2, io.Discard))
	if err == nil || !strings.Contains(err.Error(), "does not start: b/n1 refuses: expired") {
		t.Error(err)
	}
	w.idle()
}

func TestSignals(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		t.Run(fmt.Sprintf("stubborn=%t", stubborn), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a/n1:1", "b/n1:1")
			signals := make(chan os.Signal, 20)
			for _, n := range w.nodes {
				n.life = func(p *process) {
					p.say("ready\n")
					if s := <-p.Signals; s != "TERM" {
						t.Errorf("rank %d: signal %s", p.Rank, s)
					}
					if stubborn {
						if s := <-p.Signals; s != "KILL" {
							t.Errorf("rank %d: then %s", p.Rank, s)
						}
					}
					p.exit(143, "TERM")
				}
			}
			j := jobOf(t, 2, io.Discard)
			j.Signals = signals
			j.Progress = func(p Progress) {
				if p.Step == "running" {
					signals <- syscall.SIGINT
					if stubborn {
						signals <- syscall.SIGINT
					}
				}
			}
			_, err := w.run(j)
			var signalled *ranks.SignalError
			if !errors.As(err, &signalled) || signalled.ExitCode() != 130 {
				t.Error(err)
			}
			w.idle()
		})
	}
}

func TestASignalBeforeTheStart(t *testing.T) {
	for _, step := range []string{"listing", "booking", "staging", "starting", "waiting"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a/n1:1", "b/n1:1")
			for _, n := range w.nodes {
				n.life = func(p *process) {
					<-p.Signals
					p.exit(143, "TERM")
				}
			}
			j := jobOf(t, 2, io.Discard)
			if step == "waiting" {
				j.Place.Ranks, j.Wait = 3, patience
			}
			signals := make(chan os.Signal, 1)
			j.Signals = signals
			j.Progress = func(p Progress) {
				if p.Step == step {
					select {
					case signals <- syscall.SIGTERM:
					default:
					}
				}
			}
			_, err := w.run(j)
			var signalled *ranks.SignalError
			if !errors.As(err, &signalled) {
				t.Error(err)
			}
			w.idle()
		})
	}
}

func TestDeadHostsArePassedOver(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1")
	w.nodes["a/n1"].dead = true
	var out buffer
	if _, err := w.run(jobOf(t, 2, &out)); err != nil {
		t.Fatal(err)
	}
	if want := "[b/n1:0] rank 0\n[c/n1:1] rank 1\n"; out.sorted() != want {
		t.Errorf("%s, want %s", out.sorted(), want)
	}
	w.idle()
}

// A node that forgot its reservation, because its helper was killed, is lost with its processes;
// with Survive the others continue.
func TestALostHost(t *testing.T) {
	for _, survive := range []bool{false, true} {
		t.Run(fmt.Sprintf("survive=%t", survive), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a/n1:1", "b/n1:1")
			lost := make(chan struct{})
			w.nodes["a/n1"].life = func(p *process) {
				select {
				case <-p.Signals:
				case <-lost:
				}
				p.say("went on\n")
				p.exit(0, "")
			}
			w.nodes["b/n1"].life = func(p *process) {
				<-p.committed
				p.n.mu.Lock()
				p.n.breaks = func(t *talk, m *nodepb.ToNode) bool {
					if a := m.GetAttach(); a != nil {
						t.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Refused{Refused: &nodepb.Refused{Reason: "unknown", Text: []byte("no such reservation")}}})
						close(lost)
						return false
					}
					return false
				}
				p.talk.running = nil
				p.n.node.Exited(p.key)
				p.stop()
				p.n.mu.Unlock()
			}
			j := jobOf(t, 2, io.Discard)
			j.Survive = survive
			_, err := w.run(j)
			var exit *ranks.ExitError
			switch {
			case survive && err != nil:
				t.Error(err)
			case !survive && (!errors.As(err, &exit) || exit.Rank != 1 || !strings.Contains(err.Error(), "lost with b/n1")):
				t.Error(err)
			}
			w.idle()
		})
	}
}

func TestTooFewHosts(t *testing.T) {
	w := newWorld(t, "a/n1:2", "b/n1:2")
	_, err := w.run(jobOf(t, 5, io.Discard))
	var short *allocate.Shortage
	if !errors.As(err, &short) || short.Have != 4 || !strings.Contains(err.Error(), "would fit: 4 ranks") {
		t.Error(err)
	}
	j := jobOf(t, 3, io.Discard)
	if j.Hosts, err = ParseHosts("n1@a:1,n1@z:2"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.run(j); err == nil || err.Error() != "z/n1 is not a host of the grid now (isthmus hosts lists them)" {
		t.Error(err)
	}
	if j.Hosts, err = ParseHosts("a/n1:3"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.run(j); err == nil {
		t.Error("3 processes on a host that takes 2")
	}
	w.idle()
}

// Waiting: the job starts when the missing host is available.
func TestWaitingForAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a/n1:1", "z/n1:1")
		w.order = w.order[:1] // z is not listed yet
		var out buffer
		j := jobOf(t, 2, &out)
		var err error
		if j.Hosts, err = ParseHosts("z/n1:1,a/n1:1"); err != nil {
			t.Fatal(err)
		}
		j.Wait = patience
		w.unlisted = true
		said := ""
		j.Progress = func(p Progress) {
			switch {
			case p.Step == "waiting" && strings.Contains(p.String(), "waiting for the list of hosts"):
				w.unlisted = false
			case p.Step == "waiting":
				said = p.String()
				w.order = []string{"a/n1", "z/n1"}
			}
		}
		if _, err := w.run(j); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(said, "1/2 ranks, waiting for z/n1: ") {
			t.Error(said)
		}
		if want := "[a/n1:1] rank 1\n[z/n1:0] rank 0\n"; out.sorted() != want {
			t.Error(out.sorted())
		}
		w.idle()
	})
}

// A job that names a host, or needs all, whose helper has lost its session a moment ago has it when it is there again.
func TestHostThatReturns(t *testing.T) {
	for _, hosts := range []string{"", "z/n1:1,a/n1:1"} {
		for _, c := range []struct {
			returns int
			starts  bool
		}{{300, true}, {2500, false}} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a/n1:1", "z/n1:1")
				w.away, w.returns = map[string]int{"z/n1": 0}, c.returns
				j := jobOf(t, 2, io.Discard)
				var err error
				if j.Hosts, err = ParseHosts(hosts); err != nil && hosts != "" {
					t.Fatal(err)
				}
				if _, err := w.run(j); (err == nil) != c.starts {
					t.Errorf("on %q, back after %d ms: %v", hosts, c.returns, err)
				}
				w.idle()
			})
		}
	}
}

// One that has enough without that host does not wait for it.
func TestHostThatIsNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a/n1:1", "z/n1:1")
		w.away, w.returns = map[string]int{"z/n1": 0}, 300
		if _, err := w.run(jobOf(t, 1, io.Discard)); err != nil || w.away["z/n1"] != 100 {
			t.Errorf("%v, after lists at which the other host is away for %d ms", err, w.away["z/n1"])
		}
		w.idle()
	})
}

// A job waits while another one occupies its host, without a bound; one that not even free hosts would
// take fails at once.
func TestQueuedBehindAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a/n1:1")
		w.nodes["a/n1"].policy.Jobs = 1
		if err := w.nodes["a/n1"].node.SetPolicy(w.nodes["a/n1"].policy); err != nil {
			t.Fatal(err)
		}
		started, end := make(chan struct{}, 2), make(chan struct{})
		w.nodes["a/n1"].life = func(p *process) {
			started <- struct{}{}
			<-end
			p.exit(0, "")
		}
		over := make(chan error, 2)
		run := func(j *Job) {
			_, err := w.run(j)
			over <- err
		}
		go run(jobOf(t, 1, io.Discard))
		<-started
		second, waits := jobOf(t, 1, io.Discard), make(chan string, 100)
		second.Queue = true
		second.Progress = func(p Progress) {
			if p.Step == "waiting" {
				waits <- p.String()
			}
		}
		go run(second)
		for range 2 {
			if said := <-waits; said != "waiting for other jobs on a/n1 to end" {
				t.Error(said)
			}
		}
		third := jobOf(t, 2, io.Discard)
		third.Queue = true
		var short *allocate.Shortage
		if _, err := w.run(third); !errors.As(err, &short) {
			t.Errorf("a job for which there is never room: %v", err)
		}
		close(end)
		<-started
		for range 2 {
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
		w.idle()
	})
}

// Nodes say how many jobs they have; a dead one is missing.
func TestReservations(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1")
	w.nodes["c/n1"].dead = true
	started, counted := make(chan struct{}), make(chan struct{})
	w.nodes["a/n1"].life = func(p *process) {
		close(started)
		<-counted
		p.exit(0, "")
	}
	over := make(chan error, 1)
	go func() {
		_, err := w.run(jobOf(t, 1, io.Discard))
		over <- err
	}()
	<-started
	nodes := []overlay.NodeID{{Site: "a", Name: "n1"}, {Site: "b", Name: "n1"}, {Site: "c", Name: "n1"}}
	if held := w.grid.Reservations(t.Context(), nodes); len(held) != 2 || held[nodes[0]] != 1 || held[nodes[1]] != 0 {
		t.Error(held)
	}
	close(counted)
	if err := <-over; err != nil {
		t.Error(err)
	}
}

func TestParseHosts(t *testing.T) {
	got, err := ParseHosts("n1@paris:8, lyon/n2:2")
	if err != nil || fmt.Sprint(got) != "[{paris/n1 8} {lyon/n2 2}]" || ranksOf(got) != 10 {
		t.Error(got, err)
	}
	for _, bad := range []string{"", "n1", "n1@paris:0", "n1@paris:x", "n1@paris:1,n2@paris", "a/b:1,b@a:2", "n1@:3", "a/b:99999999999"} {
		if _, err := ParseHosts(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestNobodyTakesTheOutput(t *testing.T) {
	w := newWorld(t, "a/n1:1")
	w.nodes["a/n1"].life = func(p *process) {
		p.say("hello\n")
		<-p.Signals
		p.exit(143, "TERM")
	}
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer wr.Close()
	r.Close()
	_, err = w.run(jobOf(t, 1, wr))
	var exit *ranks.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGPIPE) {
		t.Error(err)
	}
	w.idle()
}

// Hosts that were booked unnecessarily are free when a job is over, however soon that is and
// whatever happens to the stream on which they were told.
func TestHostsBookedInVainAreFree(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1", "d/n1:1", "e/n1:1")
	for _, n := range w.nodes {
		n.breaks = func(t *talk, m *nodepb.ToNode) bool {
			first := m.GetCancel() != nil && t.broke == 0
			if first {
				t.broke++
			}
			return first
		}
	}
	j := jobOf(t, 2, io.Discard)
	j.Strategy = "spread"
	if _, err := w.run(j); err != nil {
		t.Fatal(err)
	}
	w.idle()
}
