package jobagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// Piece bounds the bytes of output in one event.
const Piece = 32 << 10

type place = allocate.Process

// running is a process that has not been waited for.
type running struct {
	process *ranks.Process
	ended   chan struct{} // closed when it has been
}

// job is the content of a Launch.
type job struct {
	*nodepb.Start
	helper string   // socket through which the processes reach other ranks
	key    *os.File // in the form that processes get
	groups jobgroups.Layout
	limits []limit
}

func jobOf(m *nodepb.Launch) (job, error) {
	j := job{Start: m.Start, helper: string(m.Helper)}
	if len(m.GetStart().GetArgv()) == 0 {
		return j, errors.New("no program to run")
	}
	var err error
	if j.limits, err = parseLimits(m.Start.Limits); err != nil {
		return j, err
	}
	if j.groups, err = jobgroups.Parse(m.Start.Groups, int(m.Start.Size)); err != nil {
		return j, err
	}
	key, err := jobkey.Parse(m.Start.JobKey)
	if err == nil {
		j.key, err = key.File()
	}
	return j, err
}

// launch starts the processes, once. It reports failures to start by events.
func (a *agent) launch(m *nodepb.Launch) {
	j, err := jobOf(m)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.launched || a.closed || a.folder == "" {
		return
	}
	a.launched = true
	a.work.Go(func() { a.execute(j, err) })
}

// execute runs the processes to their end and reports the results.
func (a *agent) execute(j job, err error) {
	var all sync.WaitGroup
	for _, q := range j.GetProcesses() {
		at := q.Value()
		process, startErr := (*ranks.Process)(nil), err
		if err == nil {
			process, startErr = a.startOne(j, at)
		}
		if startErr != nil {
			a.exited(at, a.unstarted(startErr))
			continue
		}
		all.Go(func() { a.await(at, process) })
	}
	j.key.Close()
	a.mu.Lock()
	a.started, a.early = true, nil
	a.mu.Unlock()
	all.Wait()
	killOffspring(a.guard)
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.wakeSender()
	a.fetch(j)
	ended := ""
	var killed errKilled
	if errors.As(context.Cause(a.ctx), &killed) {
		ended = killed.Error()
	}
	over := &nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Over{Over: &nodepb.Over{Ended: []byte(ended)}}}
	a.events.Force(over)
	a.mu.Lock()
	released := a.orphan == 0
	a.mu.Unlock()
	if released {
		a.release()
	}
}

func (a *agent) hasEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

// unstarted reports why a process was not started: if the job is being ended, that is the reason,
// whatever the error of the start.
func (a *agent) unstarted(err error) *nodepb.Exited {
	if cause := context.Cause(a.ctx); cause != nil {
		return &nodepb.Exited{Status: 128 + uint32(syscall.SIGKILL), Signal: "KILL", Text: []byte("not started: " + cause.Error())}
	}
	return &nodepb.Exited{Status: uint32(ranks.StartStatus(err)), Text: []byte(err.Error())}
}

// startOne starts a process.
func (a *agent) startOne(j job, at place) (*ranks.Process, error) {
	if err := context.Cause(a.ctx); err != nil {
		return nil, err
	}
	s := ranks.Spec{
		Argv: nodepb.Words(j.Argv), Dir: a.folder, Env: environment(j, at, a.folder),
		Stdout: &teller{a, at, false}, Stderr: &teller{a, at, true},
		Attr: dieWithParent(), Key: j.key,
	}
	r := &running{ended: make(chan struct{})}
	var ours *os.File
	if j.Input && at.Rank == 0 { // no host has two replicas of it
		theirs, end, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		ours = end
		s.Stdin = theirs
		defer theirs.Close()
		context.AfterFunc(a.ctx, func() { ours.SetWriteDeadline(time.Unix(1, 0)) })
		defer a.work.Go(func() { a.input.feed(ours, a.ctx.Done(), func(uint64) { a.wakeSender() }) }) // ends with the reader of the pipe, the input or the job
	}
	process, err := a.thread.run(func() (*ranks.Process, error) { return startLimited(a.ctx, s, j.limits) })
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r.process = process
	a.running[at] = r
	if ours != nil {
		a.work.Go(func() { a.input.watch(ours, process.PID(), r.ended, a.wakeSender) }) // ends with the process
	}
	for _, e := range a.early {
		if e.concerns(at) {
			process.Signal(e.signal)
		}
	}
	return process, nil
}

// environment returns a process's environment: the agent's, which is clean, then the job's, then
// the variables of its place.
func environment(j job, at place, folder string) []string {
	env := os.Environ()
	if os.Getenv("HOME") == "" { // an account that is only for jobs
		env = append(env, "HOME="+folder)
	}
	env = append(env, slices.DeleteFunc(nodepb.Words(j.Environment), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == ranks.EnvDir || name == jobkey.EnvKey || name == ranks.EnvReplica || name == ranks.EnvReplicas || name == ranks.EnvSpares || name == ranks.EnvReplacements || name == ranks.EnvProcess
	})...)
	env = append(env, ranks.EnvHelper+"="+j.helper)
	if j.Replicas > 1 && j.Spares > 0 {
		env = append(env, fmt.Sprintf("%s=%d", ranks.EnvSpares, j.Spares))
		if first := int(j.Size * j.Replicas); at.Rank >= first { // it comes in place of a process that the job began with
			env = append(env, fmt.Sprintf("%s=%d", ranks.EnvProcess, at.Rank))
			lost := int(j.Replacements[at.Rank-first])
			at = place{Rank: lost % int(j.Size), Copy: lost / int(j.Size)}
		}
	}
	if at.Copy > 0 || j.Replicas > 1 {
		env = append(env, fmt.Sprintf("%s=%d", ranks.EnvReplica, at.Copy))
	}
	if j.Replicas > 1 {
		env = append(env, fmt.Sprintf("%s=%d", ranks.EnvReplicas, j.Replicas))
	}
	if j.Spares > 0 && j.Replicas <= 1 {
		env = append(env, ranks.SpareEnvironment(int(j.Spares), j.Replacements)...)
	}
	return append(env, ranks.Environment(j.groups, at.Rank, int(j.Size))...)
}

// await waits for a process and reports how it ended.
func (a *agent) await(at place, process *ranks.Process) {
	err := process.Wait()
	a.mu.Lock()
	close(a.running[at].ended)
	delete(a.running, at)
	a.mu.Unlock()
	e := &nodepb.Exited{Status: uint32(process.Status())}
	if sig := process.Killer(); sig != 0 {
		e.Signal = cmp.Or(strings.TrimPrefix(unix.SignalName(sig), "SIG"), strconv.Itoa(int(sig))) // one of real time has no name
	}
	if err != nil {
		e.Text = []byte(err.Error())
	}
	a.exited(at, e)
}

func (a *agent) exited(at place, e *nodepb.Exited) {
	e.Process = nodepb.ProcessOf(at)
	a.events.Force(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Exited{Exited: e}})
}

// An early signal arrived before all processes were started: the remaining ones get it when they
// start. A process runs, and may have reported so to its submitter, a moment before the agent
// registers it.
type early struct {
	signal syscall.Signal
	ranks  []uint32 // empty: all
}

// maxEarly bounds the early signals of a job; no submitter needs more in that time.
const maxEarly = 64

func (e early) concerns(at place) bool {
	return len(e.ranks) == 0 || slices.Contains(e.ranks, uint32(at.Rank))
}

// signal sends a signal to the groups of the processes with these ranks, or of all.
func (a *agent) signal(sig syscall.Signal, only []uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := early{sig, only}
	if !a.started && len(a.early) < maxEarly {
		a.early = append(a.early, e)
	}
	for at, r := range a.running {
		if e.concerns(at) {
			r.process.Signal(sig) // fails if it has just ended
		}
	}
}

// teller makes events of a process's output.
type teller struct {
	a      *agent
	at     place
	stderr bool
}

// Write implements io.Writer. It blocks while too much is unacknowledged.
func (t *teller) Write(p []byte) (int, error) {
	for part := range slices.Chunk(p, Piece) {
		t.a.events.Add(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Output{Output: &nodepb.Output{
			Process: nodepb.ProcessOf(t.at), Stderr: t.stderr, Data: slices.Clone(part),
		}}})
	}
	return len(p), nil
}
