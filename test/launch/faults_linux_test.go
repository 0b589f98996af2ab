//go:build system

package launch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/submit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// moments are points of a submission, each in the middle of one of its steps: a message that is
// about to be sent, or was just received.
var moments = []string{
	"Hosts",     // 1: the list is asked for
	"ask",       // 2, 3: a host is asked, with the key
	"ok",        // 4: it has accepted
	"manifest",  // 5, 6: the hosts are chosen, and get their files
	"stored",    // all files are there
	"start",     // 7: the hosts are told who runs what
	"committed", // 8: all have started, and know it
	"output",    // the processes run: one has written, and every host knows that all have started, or is done
}

// struck is a submitter's connection with its helper on which something happens at a moment, once.
// Messages wait until it has happened.
type struck struct {
	grpc.ClientConnInterface
	moment string
	hosts  int // of the submission
	happen func()
	once   sync.Once
	begun  chan struct{} // closed when it happens
	over   chan struct{} // closed when it has happened

	mu      sync.Mutex                 // guards the fields below
	settled map[grpc.ClientStream]bool // the streams that reported committed, or over
	written bool                       // there was output
}

func newStruck(conn grpc.ClientConnInterface, moment string, hosts int, happen func()) *struck {
	return &struck{
		ClientConnInterface: conn, moment: moment, hosts: hosts, happen: happen, begun: make(chan struct{}), over: make(chan struct{}),
		settled: map[grpc.ClientStream]bool{},
	}
}

// running records a stream's message and reports whether the processes run. Output alone does not
// prove it: a host's processes may write, and even end, before another host has received the start,
// let alone all.
func (s *struck) running(stream grpc.ClientStream, says string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch says {
	case "committed", "over": // one whose processes have ended may not be told any more
		s.settled[stream] = true
	case "output":
		s.written = true
	}
	return s.written && len(s.settled) >= s.hosts
}

// pass is called with a message about to be sent or just received; stream is nil for a call.
func (s *struck) pass(stream grpc.ClientStream, moment string) {
	now := moment == s.moment
	if s.moment == "output" {
		now = s.running(stream, moment)
	}
	if now {
		s.once.Do(func() {
			close(s.begun)
			s.happen()
			close(s.over)
		})
	}
}

// Invoke implements grpc.ClientConnInterface.
func (s *struck) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	s.pass(nil, path.Base(method))
	return s.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (s *struck) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s.pass(nil, path.Base(method)) // a forwarded one may be any call
	c, err := s.ClientConnInterface.NewStream(ctx, d, method, opts...)
	return struckStream{c, s}, err
}

type struckStream struct {
	grpc.ClientStream
	s *struck
}

func (c struckStream) SendMsg(m any) error {
	c.s.pass(c.ClientStream, said(m))
	return c.ClientStream.SendMsg(m)
}

func (c struckStream) RecvMsg(m any) error {
	err := c.ClientStream.RecvMsg(m)
	if err == nil {
		c.s.pass(c.ClientStream, said(m))
	}
	return err
}

// The processes of a submission run when all hosts have committed it or are done, regardless of
// which of them writes first, and when.
func TestMomentOfOutput(t *testing.T) {
	type stream struct {
		grpc.ClientStream
		host int
	}
	one, two := stream{host: 1}, stream{host: 2}
	type heard struct {
		from stream
		says string
	}
	for _, c := range [][]heard{
		{{one, "output"}, {one, "committed"}, {one, "output"}, {two, "committed"}},
		{{one, "committed"}, {one, "committed"}, {two, "committed"}, {two, "output"}},
		{{two, "output"}, {two, "over"}, {one, "output"}, {one, "committed"}},
	} {
		happened := 0
		s := newStruck(nil, "output", 2, func() { happened++ })
		for i, h := range c {
			s.pass(h.from, h.says)
			if last := i == len(c)-1; (happened == 1) != last {
				t.Errorf("after %v of %v it has happened %d times", h, c, happened)
			}
		}
	}
}

// said returns the name of the kind of a conversation's message.
func said(m any) string {
	r := m.(proto.Message).ProtoReflect()
	say := r.Descriptor().Oneofs().ByName("say")
	if say == nil {
		return "" // of another call
	}
	if f := r.WhichOneof(say); f != nil {
		return string(f.Name())
	}
	return ""
}

// program is what each rank of a submission runs.
const program = "echo pid $$; read word; cat file"

// submission is a job of two ranks, which write their process ids; rank 0 reads a line to its end,
// and each has a file.
type submission struct {
	w    *world
	file string
	stop context.CancelFunc // of the submitter
	out  lockedBuffer
	conn *grpc.ClientConn

	mayFail bool // before anything happens to it: it is one of many concurrent ones
}

type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// newSubmission prepares one that brings a file, from node.
func (w *world) newSubmission(t *testing.T, node string) *submission {
	t.Helper()
	s := &submission{w: w, file: filepath.Join(t.TempDir(), "file")}
	if err := os.WriteFile(s.file, []byte("content for "+t.Name()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := nodeservice.Connect(w.Socket(node))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s.conn = conn
	nodes := w.helpers()
	w.Until("all hosts to be listed", func() bool {
		list, err := nodepb.NewSubmittersClient(conn).Hosts(w.Ctx, &nodepb.HostsRequest{})
		up := 0
		for _, h := range list.GetHosts() {
			if h.State == "up" && h.Jobs > 0 {
				up++
			}
		}
		return err == nil && up == len(nodes)
	})
	return s
}

// run submits it to hosts; something happens at the moment. The processes end after that, or soon
// if there is none. It may run concurrently with the test's goroutine.
func (s *submission) run(t *testing.T, moment string, happen func(), hosts ...overlay.NodeID) error {
	t.Helper()
	ctx, stop := context.WithCancel(s.w.Ctx)
	defer stop()
	s.stop = stop
	files, err := submit.Collect([]string{s.file})
	if err != nil {
		return err
	}
	key, err := jobkey.New("faults")
	if err != nil {
		return err
	}
	var shares []submit.HostShare
	for _, h := range hosts {
		shares = append(shares, submit.HostShare{Node: h, Ranks: 1})
	}
	conn := newStruck(s.conn, moment, len(hosts), happen)
	if moment == "" {
		close(conn.begun)
		close(conn.over)
	}
	stdin, word := io.Pipe()
	defer stdin.Close()
	go func() { // ends with the run
		select {
		case <-conn.over:
			io.WriteString(word, "word\n")
		case <-ctx.Done():
		}
		word.Close()
	}()
	_, err = submit.Run(ctx, submit.NewGrid(conn), &submit.Job{
		Key: key, Argv: []string{"sh", "-c", program},
		Place: allocate.Job{Ranks: len(hosts), Copies: 1}, Hosts: shares, Wait: labtest.Patience, Queue: true, Files: files, Stdin: stdin,
		Output: ranks.Lines(&s.out, &s.out),
	})
	select {
	case <-conn.begun:
	default:
		if s.mayFail {
			t.Logf("a submission did not come to %s: %v", moment, err)
			break
		}
		t.Errorf("the submission did not come to %s: %v", moment, err)
	}
	return err
}

// gone waits until nothing is left of any job: no reservation, no folder, and no process that runs
// the program of submissions, or of those whose output is given.
func (w *world) gone(t *testing.T, node string, out string) {
	t.Helper()
	conn, err := nodeservice.Connect(w.Socket(node))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	nodes := w.helpers()
	w.Until("no reservation to be left", func() bool {
		for _, n := range nodes {
			p, err := nodepb.NewNodeServiceClient(conn).Ping(nodeservice.At(w.Ctx, n), &nodepb.PingRequest{})
			if err != nil || p.Jobs > 0 {
				return false
			}
		}
		return true
	})
	for _, n := range nodes {
		jobs := filepath.Join(w.Store(n.String()), "jobs")
		list := func() string { return fmt.Sprint(os.ReadDir(jobs)) }
		w.Until("no folder to be left at "+n.String(), func() bool {
			entries, err := os.ReadDir(jobs)
			return len(entries) == 0 && (err == nil || os.IsNotExist(err))
		}, list)
	}
	w.Until("no process to be left", func() bool { return len(processesOf(program)) == 0 }, func() string { return fmt.Sprint(processesOf(program)) })
	for line := range strings.Lines(out) {
		if _, pid, ok := strings.Cut(strings.TrimSpace(line), "pid "); ok {
			w.Until("process "+pid+" to end", func() bool {
				_, err := os.Stat("/proc/" + pid)
				return err != nil
			})
		}
	}
}

// processesOf returns the processes that have a word on their command line.
func processesOf(word string) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		words, _ := os.ReadFile(name) // it may have ended
		if slices.Contains(strings.Split(string(words), "\x00"), word) {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	return pids
}

// helpers are the nodes that have one.
func (w *world) helpers() (nodes []overlay.NodeID) {
	for _, d := range w.Daemons() {
		if name, ok := strings.CutPrefix(d.Name, "helper "); ok {
			if n, err := overlay.ParseNodeID(name); err == nil {
				nodes = append(nodes, n)
			}
		}
	}
	return nodes
}

// impatient is a grid whose nodes soon give up silent submitters, and whose sites do not measure themselves: that
// takes sockets for minutes.
func impatient() grid.Config {
	cfg := labtest.LaunchConfig(map[string]any{"jobs": 50, "processes": 2})
	cfg.Settings["frontal"] = map[string]any{"measure": "0s"}
	cfg.Settings["helper"]["node_service"] = map[string]any{"orphan": "3s"} // longer than a busy machine stalls, mostly
	return cfg
}

// Each participant of a submission is killed in the middle of each of its steps, and restarted: a
// frontal or the broker does not affect the job, nor does a helper once the job was committed; a
// failure leaves nothing behind.
func TestFaultsAtEachStep(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, impatient())
	patience := labtest.PatienceFor(t, 6*time.Minute) // it is many tests
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	w.Ctx = ctx
	hosts := []overlay.NodeID{{Site: "shut", Name: "n1"}, {Site: "closed", Name: "n2"}}
	w.newSubmission(t, "closed/n1").run(t, "", nil, hosts...) // the ways are open then
	sockets := w.socketsOf()
	t.Run("submitter", func(t *testing.T) { w.killedRuns(t, "closed/n1", hosts...) })
	for _, victim := range []struct {
		daemon string
		harms  bool // the job may fail before it was committed
	}{{"broker", false}, {"frontal closed", false}, {"frontal shut", false}, {"helper shut/n1", true}, {"helper closed/n1", true}} {
		t.Run(victim.daemon, func(t *testing.T) {
			for _, moment := range moments {
				t.Run(moment, func(t *testing.T) {
					s := w.newSubmission(t, "closed/n1")
					again := make(chan error, 1)
					start := time.Now()
					err := s.run(t, moment, func() {
						w.Daemon(victim.daemon).Kill()
						go func() { again <- w.Daemon(victim.daemon).Start(w.Ctx) }()
					}, hosts...)
					t.Logf("after %v: %v", time.Since(start), err)
					if err != nil && (!victim.harms || moment == "committed" || moment == "output") {
						t.Error(err)
					}
					if err == nil && strings.Count(s.out.String(), "content for ") != 2 {
						t.Errorf("the ranks wrote\n%s", s.out.String())
					}
					if t.Failed() {
						return
					}
					if err := <-again; err != nil {
						t.Fatal(err)
					}
					w.gone(t, "closed/n1", s.out.String())
				})
			}
		})
	}
	w.noMoreSockets(sockets)
}

// killedRuns kills isthmus run, the process, in the middle of each step of a submission.
func (w *world) killedRuns(t *testing.T, node string, hosts ...overlay.NodeID) {
	sockets := w.socketsOf()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("content\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, h := range hosts {
		named = append(named, h.String()+":1")
	}
	for _, moment := range moments {
		// Different content each time: files already present are not sent again.
		if err := os.WriteFile(file, []byte("content for "+moment+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out lockedBuffer
		var cmd *exec.Cmd
		ready, dead := make(chan struct{}), make(chan struct{})
		socket, begun := w.between(t, node, moment, len(hosts), func() {
			<-ready
			cmd.Process.Kill()
			<-dead // nothing passes before
		})
		cmd = exec.Command(labtest.Program(t, ""), "run", "--helper", socket, "--hosts", strings.Join(named, ","), "--wait", labtest.Patience.String(), "--input", file, "sh", "-c", program)
		cmd.Stdout, cmd.Stderr = &out, &out
		input, err := cmd.StdinPipe() // which has no writer: the ranks wait
		if err != nil {
			t.Fatal(err)
		}
		defer input.Close()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		close(ready)
		go func() { // ends with the process
			defer close(dead)
			cmd.Wait()
		}()
		select {
		case <-begun:
		case <-dead: // which may be the case by now because it was killed
			select {
			case <-begun:
			default:
				t.Fatalf("isthmus run ended before %s:\n%s", moment, out.String())
			}
		case <-w.Ctx.Done():
			cmd.Process.Kill()
			t.Fatalf("isthmus run did not come to %s:\n%s", moment, out.String())
		}
		<-dead
		if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGKILL {
			t.Errorf("at %s isthmus run ended with %v:\n%s", moment, cmd.ProcessState, out.String())
		}
	}
	w.gone(t, node, "")
	w.noMoreSockets(sockets)
}

// Jobs run, some concurrently, in which something random happens to the submitter: nothing is left,
// no reservation, folder, process or descriptor of any daemon. ISTHMUS_TEST_RUNS is the number of
// jobs; without it, there are as many as combinations of moment, event and hosts.
func TestRandomFaults(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, impatient())
	runs := len(moments) * 3 * 2
	if text := os.Getenv("ISTHMUS_TEST_RUNS"); text != "" {
		if _, err := fmt.Sscan(text, &runs); err != nil {
			t.Fatalf("ISTHMUS_TEST_RUNS: %v", err)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	hosts := []overlay.NodeID{{Site: "shut", Name: "n1"}, {Site: "closed", Name: "n2"}, {Site: "closed", Name: "n1"}}
	if err := w.newSubmission(t, "closed/n1").run(t, "", nil, hosts...); err != nil { // the ways are open then
		t.Fatal(err)
	}
	w.gone(t, "closed/n1", "")
	before := map[string]int{}
	for _, d := range w.Daemons() {
		before[d.Name], _ = d.Descriptors()
	}
	var all sync.WaitGroup
	outs := make([]string, runs)
	room := make(chan struct{}, 8)
	for i := range runs {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		s := w.newSubmission(t, "closed/n1")
		s.mayFail = true
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			what := []func(){
				func() {},                           // nothing
				func() { s.stop() },                 // its user ends it
				func() { s.conn.Close(); s.stop() }, // it is killed
			}[rng.IntN(3)]
			s.run(t, moments[rng.IntN(len(moments))], what, hosts[rng.IntN(2):]...)
			s.conn.Close()
			outs[i] = s.out.String()
		})
	}
	all.Wait()
	w.gone(t, "closed/n1", strings.Join(outs, ""))
	// Nodes of a job may have opened paths to each other since, which stay for some time.
	more := 2 * len(w.Daemons())
	for _, d := range w.Daemons() {
		n := 0
		w.Until(fmt.Sprintf("%s to have at most %d descriptors more than %d", d.Name, more, before[d.Name]), func() bool {
			n, _ = d.Descriptors()
			return n <= before[d.Name]+more
		}, func() string { return fmt.Sprint(n) })
	}
}
