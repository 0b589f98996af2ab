package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/audit"
	"github.com/isthmus-grid/isthmus/internal/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
)

// EnvCopy is the variable by which a process of a job whose ranks are replicated
// learns which copy of its rank it is.
const EnvCopy = "ISTHMUS_COPY"

// inherited are the variables of the helper that a job's processes get. The rest is the
// helper's own: there may be secrets in it.
var inherited = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"}

type place = allocate.Process

// running is a process that has not been waited for.
type running struct{ process *ranks.Process }

// execute runs the processes to their end and says what there is to say. The
// reservation is over, and others may book, as soon as the processes have ended.
func (b *booking) execute() {
	b.launch()
	b.idle()
	b.k.do(func(time.Time) { b.k.node.Exited(b.key) })
	b.fetch()
	ended := ""
	var killed errKilled
	if errors.As(context.Cause(b.ctx), &killed) {
		ended = killed.Error()
	}
	over := &gatepb.ToSubmitter{Say: &gatepb.ToSubmitter_Over{Over: &gatepb.Over{Ended: ended}}}
	b.events.force(over)
	b.mu.Lock()
	b.over = over.Event
	b.mu.Unlock()
	b.k.log.Info("job ended", "job", string(b.ask.Job), "by", b.who.Identity(), "why", ended)
	b.k.auditJob(b, audit.JobEnd, ended)
	if b.heardAll() { // it may have been acknowledged before it was noted
		b.release()
	}
	<-b.free
	b.stop(nil)
	b.k.do(func(time.Time) { b.finish() })
}

// heardAll reports whether the submitter has acknowledged the last event.
func (b *booking) heardAll() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over != 0 && b.events.acked(b.over)
}

// launch starts the processes and waits until all have ended.
func (b *booking) launch() {
	p := b.program
	b.mu.Lock()
	dir, err := b.home()
	grave := b.grave
	b.mu.Unlock()
	var group *cgroup
	if err == nil {
		group = newCgroup(filepath.Base(dir), b.ask.Memory*int64(len(p.processes)), b.ask.CPU*len(p.processes))
		grave.tell("group", group.path())
	}
	var all sync.WaitGroup
	for _, at := range p.processes {
		process, startErr := (*ranks.Process)(nil), err
		if err == nil {
			process, startErr = b.startOne(at, dir, group)
		}
		if startErr != nil {
			b.exited(at, b.unstarted(startErr))
			continue
		}
		grave.tell("add", fmt.Sprint(process.PID()))
		all.Go(func() { b.await(at, process, grave) })
	}
	all.Wait()
	group.remove()
}

// unstarted says of a process why it was not started: where the reservation has ended that
// is why, whatever the start came to.
func (b *booking) unstarted(err error) *gatepb.Exited {
	if cause := context.Cause(b.ctx); cause != nil {
		return &gatepb.Exited{Status: 128 + uint32(syscall.SIGKILL), Signal: "KILL", Text: "not started: " + cause.Error()}
	}
	return &gatepb.Exited{Status: uint32(ranks.StartStatus(err)), Text: err.Error()}
}

// startOne starts a process.
func (b *booking) startOne(at place, dir string, group *cgroup) (*ranks.Process, error) {
	if err := context.Cause(b.ctx); err != nil {
		return nil, err
	}
	p := b.program
	s := ranks.Spec{
		Argv: p.argv, Dir: dir, Env: b.environment(at),
		Stdout: &teller{b, at, false}, Stderr: &teller{b, at, true},
		Attr: lifeline(),
	}
	if p.input && at == (place{}) {
		theirs, ours, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		s.Stdin = theirs
		defer theirs.Close()
		context.AfterFunc(b.ctx, func() { ours.SetWriteDeadline(time.Unix(1, 0)) })
		defer b.k.work.Go(func() { b.input.feed(ours, b.ctx.Done(), b.taken) }) // ends with the reader of the pipe, the input or the job
	}
	process, err := b.k.starter.run(func() (*ranks.Process, error) { return startLimited(b.ctx, s, p.limits, group) })
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.running[at] = &running{process}
	b.mu.Unlock()
	return process, nil
}

// environment is that of a process: the node's, then the job's, then its place.
func (b *booking) environment(at place) []string {
	p := b.program
	var env []string
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	env = append(env, slices.DeleteFunc(slices.Clone(p.env), func(v string) bool { return strings.HasPrefix(v, ranks.EnvDir+"=") })...)
	env = append(env, ranks.EnvHelper+"="+b.k.opts.Helper)
	if at.Copy > 0 {
		env = append(env, fmt.Sprintf("%s=%d", EnvCopy, at.Copy))
	}
	return append(env, ranks.Environment(p.key, p.groups, at.Rank, p.size)...)
}

// await waits for a process and tells how it ended.
func (b *booking) await(at place, process *ranks.Process, grave *undertaker) {
	err := process.Wait()
	b.mu.Lock()
	delete(b.running, at)
	b.mu.Unlock()
	grave.tell("del", fmt.Sprint(process.PID()))
	e := &gatepb.Exited{Status: uint32(process.Status())}
	if sig := process.Killer(); sig != 0 {
		e.Signal = strings.TrimPrefix(unix.SignalName(sig), "SIG")
	}
	if err != nil {
		e.Text = err.Error()
	}
	b.exited(at, e)
}

func (b *booking) exited(at place, e *gatepb.Exited) {
	e.Process = &gatepb.Process{Rank: uint32(at.Rank), Copy: uint32(at.Copy)}
	b.events.force(&gatepb.ToSubmitter{Say: &gatepb.ToSubmitter_Exited{Exited: e}})
}

// signal sends a signal to the groups of the processes with these ranks, or of all.
func (b *booking) signal(sig syscall.Signal, only []uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at, r := range b.running {
		if len(only) == 0 || slices.Contains(only, uint32(at.Rank)) {
			r.process.Signal(sig) // fails when it has just ended
		}
	}
}

// taken tells the submitter how much of the input was taken, if it is there; otherwise
// it asks when it attaches.
func (b *booking) taken(total uint64) {
	m := &gatepb.ToSubmitter{Say: &gatepb.ToSubmitter_Taken{Taken: &gatepb.Taken{Bytes: total}}}
	var c *conversation
	if b.k.do(func(time.Time) { c = b.stream }) == nil && c != nil {
		c.answer(m)
	}
}

// teller makes events of what a process writes.
type teller struct {
	b      *booking
	at     place
	stderr bool
}

// Write implements io.Writer. It waits while too much has not been acknowledged.
func (t *teller) Write(p []byte) (int, error) {
	for part := range slices.Chunk(p, piece) {
		t.b.events.add(&gatepb.ToSubmitter{Say: &gatepb.ToSubmitter_Output{Output: &gatepb.Output{
			Process: &gatepb.Process{Rank: uint32(t.at.Rank), Copy: uint32(t.at.Copy)}, Stderr: t.stderr, Data: slices.Clone(part),
		}}})
	}
	return len(p), nil
}

// fetch brings the output files back that the submitter named.
func (b *booking) fetch() {
	b.mu.Lock()
	dir := b.folder
	b.mu.Unlock()
	if dir == "" || len(b.program.outputs) == 0 || b.ctx.Err() != nil {
		return
	}
	root, err := os.OpenRoot(dir) // through which no link leads out of the folder
	if err != nil {
		b.part(&gatepb.FileChunk{End: true, Fault: err.Error()})
		return
	}
	defer root.Close()
	sent := map[string]bool{}
	for _, pattern := range b.program.outputs {
		names, err := fs.Glob(root.FS(), filepath.ToSlash(pattern))
		if err == nil && len(names) == 0 {
			err = errors.New("there is no such file after the job")
		}
		if err != nil {
			b.part(&gatepb.FileChunk{Name: pattern, End: true, Fault: err.Error()})
		}
		for _, name := range names {
			if b.ctx.Err() == nil && !sent[name] && len(sent) < maxFiles {
				sent[name] = true
				b.fetchOne(root, name)
			}
		}
	}
}

// fetchOne brings one file back.
func (b *booking) fetchOne(root *os.Root, name string) {
	fail := func(err error) { b.part(&gatepb.FileChunk{Name: name, End: true, Fault: err.Error()}) }
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		fail(err)
		return
	}
	f, err := root.Open(name)
	if err != nil {
		fail(err)
		return
	}
	defer f.Close()
	buf := make([]byte, piece)
	for offset := uint64(0); b.ctx.Err() == nil; {
		n, err := io.ReadFull(f, buf)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			fail(err)
			return
		}
		b.part(&gatepb.FileChunk{Name: name, Mode: uint32(info.Mode().Perm()), Offset: offset, Data: slices.Clone(buf[:n]), End: end})
		if end {
			return
		}
		offset += uint64(n)
	}
}

func (b *booking) part(p *gatepb.FileChunk) {
	b.events.add(&gatepb.ToSubmitter{Say: &gatepb.ToSubmitter_File{File: p}})
}
