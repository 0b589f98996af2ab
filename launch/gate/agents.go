package gate

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
)

// A Starter starts job agents, each in an account that the keys of this node are safe
// from. It is safe for concurrent use.
type Starter interface {
	// Start has an agent run for who, with s.Listener as its socket. s.Group names it.
	// The agent makes the job's folder in folder.
	Start(who Asker, folder string, s jobagent.Spec) error

	// Kill ends the agent of a name at once, and what it runs.
	Kill(name string) error

	// Ended returns when nothing is left of the agent of a name, which has ended; it may
	// be one that an earlier helper had started.
	Ended(name string) error
}

// inherited are the variables of the helper that a job's processes get which run in its
// own account. The rest is the helper's own: there may be secrets in it.
var inherited = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// ownAccount starts agents in the helper's own account.
type ownAccount struct {
	mu  sync.Mutex
	all map[string]*ownAgent // by name
}

type ownAgent struct {
	process *jobagent.Process
	ended   chan struct{} // closed when it was waited for
}

// Start implements Starter.
func (o *ownAccount) Start(_ Asker, _ string, s jobagent.Spec) error {
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			s.Env = append(s.Env, name+"="+v)
		}
	}
	s.Log = os.Stderr
	p, err := jobagent.Spawn(s)
	if err != nil {
		return err
	}
	a := &ownAgent{p, make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[string]*ownAgent{}
	}
	o.all[s.Group] = a
	go func() { // ends with the agent, which may outlive this process
		p.Wait()
		close(a.ended)
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all, s.Group)
	}()
	return nil
}

func (o *ownAccount) find(name string) *ownAgent {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[name]
}

// Kill implements Starter. One that another process had started is its guard's affair.
func (o *ownAccount) Kill(name string) error {
	if a := o.find(name); a != nil {
		a.process.Kill()
	}
	jobagent.RemoveGroup(name)
	return nil
}

// Ended implements Starter.
func (o *ownAccount) Ended(name string) error {
	if a := o.find(name); a != nil {
		<-a.ended
		return nil
	}
	jobagent.RemoveGroup(name)
	return nil
}

// maxSocketPath is how long the path of a Unix socket may be.
const maxSocketPath = 100

// socketPath returns a path of the socket of that name in a folder that is not too long,
// and what ends its use.
func socketPath(folder, name string) (string, func(), error) {
	path := filepath.Join(folder, name)
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(folder)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name), func() { dir.Close() }, nil
}

// listenAt makes an agent's socket.
func listenAt(folder, name string) (*os.File, error) {
	path, done, err := socketPath(folder, name)
	if err != nil {
		return nil, err
	}
	defer done()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	defer ln.Close()
	return ln.File()
}

// startAgent has an agent run for the booking, and returns the job's folder, which it
// makes. starting is held.
func (b *booking) startAgent() (folder string, err error) {
	ln, err := listenAt(b.k.agents(), b.name)
	if err != nil {
		return "", err
	}
	err = b.k.starter.Start(b.who, b.k.jobs(), jobagent.Spec{
		Listener: ln, Group: b.name,
		Memory: b.ask.Memory * int64(b.ask.Processes), CPU: b.ask.CPU * b.ask.Processes,
	})
	ln.Close()
	if err != nil {
		b.forget()
		return "", err
	}
	link, err := b.dial()
	if err != nil {
		b.k.starter.Kill(b.name)
		b.k.starter.Ended(b.name)
		b.forget()
		return "", err
	}
	b.hasAgent = true
	b.setLink(link)
	b.note()
	b.k.work.Go(func() { b.readAgent(link) }) // ends with the agent, or when the node service leaves
	return link.Opened.Folder, nil
}

// dial connects with the agent.
func (b *booking) dial() (*jobagent.Link, error) {
	path, done, err := socketPath(b.k.agents(), b.name)
	if err != nil {
		return nil, err
	}
	defer done()
	link, err := jobagent.Dial(path, &gatepb.Open{
		Parent: b.k.jobs(), Name: b.ask.Job.Name(), OrphanMs: uint64(b.k.opts.Orphan.Milliseconds()), Have: b.events.Last(),
	})
	if err != nil {
		return nil, err
	}
	if err := b.checkFolder(link.Opened.Folder); err != nil {
		link.Close()
		return nil, err
	}
	return link, nil
}

// checkFolder says why a folder is not one that the job's agent makes, or returns nil: the
// node service removes it in the end, in its own account, and believes no agent where it is.
func (b *booking) checkFolder(folder string) error {
	name, below := strings.CutPrefix(folder, b.k.jobs()+"/")
	if !below || !strings.HasPrefix(name, b.ask.Job.Name()+"-") || strings.Contains(name, "/") {
		return fmt.Errorf("the job agent says that the job is in %.200q, which is no folder of its in %s", folder, b.k.jobs())
	}
	return nil
}

// maxDials is how often a node service tries to reach an agent whose connection broke, 20 s each
// when it does not answer, before it kills it.
const maxDials = 2

// readAgent takes what the agent says until it has ended or the node service leaves it. An agent
// whose connection broke is asked again: the kernel closes its socket when its guard has
// ended, too, and nothing is left of the job. Without a link the agent is that of the
// node service before.
func (b *booking) readAgent(link *jobagent.Link) {
	adopted := link == nil
	for tries := 0; ; {
		for link != nil {
			m, err := link.Receive()
			if err == nil {
				err = b.handleAgent(m)
			}
			if err != nil {
				link.Close()
				link = nil
				continue
			}
			tries = 0
		}
		if b.isLeft() {
			return
		}
		var err error
		link, err = b.dial()
		switch {
		case err == nil:
			if !b.setLink(link) {
				link.Close()
				return
			}
			if adopted && link.Opened.Waits {
				b.unlaunched()
			}
			adopted = false
		case errors.Is(err, jobagent.ErrGone):
			if err := b.k.starter.Ended(b.name); err != nil {
				b.k.log.Warn("something of a job may be left", "job", string(b.ask.Job), "agent", b.name, "error", err)
			}
			b.died()
			return
		default:
			b.k.log.Warn("a job agent does not answer", "job", string(b.ask.Job), "agent", b.name, "error", err)
			if tries++; tries >= maxDials {
				b.k.starter.Kill(b.name)
			}
			if tries > 2*maxDials { // what cannot be ended stays; its guard waits for it
				b.died()
				return
			}
		}
	}
}

// unlaunched ends a job that the node service before was about to have started, and did not:
// only it knew what the agent is to run.
func (b *booking) unlaunched() {
	b.k.do(func(time.Time) {
		if b.program != nil && !b.ending {
			b.kill("the helper of its node ended before it had the processes started")
		}
	})
}

func (b *booking) isLeft() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left
}

// setLink makes a connection the booking's, unless the node service leaves.
func (b *booking) setLink(link *jobagent.Link) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left {
		return false
	}
	b.link, b.folder = link, link.Opened.Folder
	b.taken.Store(link.Opened.Taken)
	if b.released {
		go link.Send(&gatepb.ToAgent{Say: &gatepb.ToAgent_Release{Release: &gatepb.Release{}}})
	}
	return true
}

// sendAgent says something to the agent. Without one, or when it does not read, hear finds out.
func (b *booking) sendAgent(m *gatepb.ToAgent) {
	b.mu.Lock()
	link := b.link
	b.mu.Unlock()
	if link == nil {
		return
	}
	b.sending.Lock()
	defer b.sending.Unlock()
	if err := link.Send(m); err != nil {
		link.Close()
	}
}

// tellSoon is tell for a goroutine that must not wait.
func (b *booking) tellSoon(m *gatepb.ToAgent) {
	b.k.work.Go(func() { b.sendAgent(m) })
}

// handleAgent deals with what the agent says. An agent that breaks the rules is not heard any
// more: its account is the job's.
func (b *booking) handleAgent(m *gatepb.FromAgent) error {
	switch m := m.Say.(type) {
	case *gatepb.FromAgent_Event:
		return b.report(m.Event)
	case *gatepb.FromAgent_Ended:
		b.processesEnded()
	case *gatepb.FromAgent_Taken:
		b.taken.Store(m.Taken.Bytes)
		b.tellStream(&gatepb.ToSubmitter{Say: &gatepb.ToSubmitter_Taken{Taken: m.Taken}})
	case *gatepb.FromAgent_Staged:
		select {
		case b.staged <- m.Staged:
		default:
		}
	case *gatepb.FromAgent_Fault:
		b.tellStream(&gatepb.ToSubmitter{Say: &gatepb.ToSubmitter_Fault{Fault: m.Fault}})
		b.k.do(func(now time.Time) { b.k.end(b, m.Fault.Text, now) })
	}
	return nil
}

// report takes an event of the agent.
func (b *booking) report(m *gatepb.ToSubmitter) error {
	switch m.Say.(type) {
	case *gatepb.ToSubmitter_Output, *gatepb.ToSubmitter_Exited, *gatepb.ToSubmitter_File, *gatepb.ToSubmitter_Over:
	default:
		return fmt.Errorf("the job agent says %T as an event", m.Say)
	}
	if err := b.events.Put(m); err != nil {
		return err
	}
	if e := m.GetExited(); e != nil {
		b.noteExit(place{Rank: int(e.GetProcess().GetRank()), Copy: int(e.GetProcess().GetCopy())})
	}
	if over := m.GetOver(); over != nil {
		b.isOver(m.Event, over.Ended)
	}
	return nil
}

// noteExit notes of a process that its end was told: of as many as there are.
func (b *booking) noteExit(at place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.begun.Load(); p != nil && len(b.exited) < len(p.processes) {
		b.exited[at] = true
	}
}

// died says what an agent does not say any more that has ended.
func (b *booking) died() {
	why := b.whyEnded()
	b.mu.Lock()
	over, released := b.over != 0, b.released
	b.link = nil
	b.mu.Unlock()
	close(b.agentGone)
	if over || released || b.begun.Load() == nil {
		b.processesEnded()
		b.overOnce.Do(func() { close(b.overCame) })
		return
	}
	if why == "" {
		why = "its job agent was killed, and all its processes with it"
	}
	for _, at := range b.begun.Load().processes {
		b.mu.Lock()
		told := b.exited[at]
		b.mu.Unlock()
		if !told {
			b.events.Force(&gatepb.ToSubmitter{Say: &gatepb.ToSubmitter_Exited{Exited: &gatepb.Exited{
				Process: &gatepb.Process{Rank: uint32(at.Rank), Copy: uint32(at.Copy)}, Status: 128 + uint32(syscall.SIGKILL), Signal: "KILL", Text: why,
			}}})
		}
	}
	b.processesEnded()
	last := &gatepb.ToSubmitter{Say: &gatepb.ToSubmitter_Over{Over: &gatepb.Over{Ended: why}}}
	b.events.Force(last)
	b.isOver(last.Event, why)
}
