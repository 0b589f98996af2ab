package nodeservice

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

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// A Starter starts job agents, each in an account that cannot read the keys of this node. It is
// safe for concurrent use.
type Starter interface {
	// Start starts an agent for who, with s.Listener as its socket and s.Group as its name. The
	// agent creates the job's folder in folder. It returns the agent's account.
	Start(who Asker, folder string, s jobagent.Spec) (Account, error)

	// Kill ends the named agent and everything that it runs, at once.
	Kill(name string) error

	// Ended returns when nothing is left of the named agent, which has ended; an earlier helper may
	// have started it.
	Ended(name string) error
}

// Account is the account in which a job runs. The zero Account is this process's own.
type Account struct {
	UID  uint32
	Only bool // nothing but jobs runs in it
}

// inherited are the helper's variables that processes of a job get when they run in the helper's
// own account. The others are withheld: they may contain secrets.
var inherited = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// ownAccount is a Starter that starts agents in the helper's own account.
type ownAccount struct {
	mu  sync.Mutex
	all map[string]*ownAgent // by name
}

type ownAgent struct {
	process *jobagent.Process
	ended   chan struct{} // closed after the wait for it
}

// Start implements Starter.
func (o *ownAccount) Start(_ Asker, _ string, s jobagent.Spec) (Account, error) {
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			s.Env = append(s.Env, name+"="+v)
		}
	}
	s.Log = os.Stderr
	p, err := jobagent.Spawn(s)
	if err != nil {
		return Account{}, err
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
	return Account{}, nil
}

func (o *ownAccount) find(name string) *ownAgent {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[name]
}

// Kill implements Starter. An agent that another process started is left to its guard.
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

// maxSocketPath bounds the length of a Unix socket's path.
const maxSocketPath = 100

// socketPath returns a path that is short enough for the named socket in a folder, and a function
// that ends its use.
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

// listenAt creates an agent's socket.
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

// startAgent starts an agent for the booking and returns the job's folder, which the agent creates.
// The caller must hold starting.
func (b *booking) startAgent() (folder string, err error) {
	ln, err := listenAt(b.k.agents(), b.name)
	if err != nil {
		return "", err
	}
	account, err := b.k.starter.Start(b.who, b.k.jobs(), jobagent.Spec{
		Listener: ln, Group: b.name,
		Memory: b.ask.Memory * int64(b.ask.Processes), CPU: b.ask.CPU * b.ask.Processes,
	})
	ln.Close()
	if err != nil {
		b.forget()
		return "", err
	}
	b.occupy(account)
	link, err := b.dial()
	if err != nil {
		b.k.starter.Kill(b.name)
		b.vacate(b.k.starter.Ended(b.name))
		b.account = nil
		b.forget()
		return "", err
	}
	b.setLink(link)
	b.writeRecord()
	b.k.work.Go(func() { b.readAgent(link) }) // ends with the agent, or when the node service leaves it
	return string(link.Opened.Folder), nil
}

// occupy records that the job's account is the submitter's.
func (b *booking) occupy(account Account) {
	b.account = &account
	if account != (Account{}) {
		b.k.accounts.begin(account, b.who)
	}
}

// vacate ends that. If it is not certain that nothing is left of the job, the account stays the submitter's as
// long as this node service runs.
func (b *booking) vacate(err error) {
	switch {
	case err != nil:
		b.k.log.Warn("something of a job may be left", "job", string(b.ask.Job), "agent", b.name, "error", err)
	case *b.account != (Account{}):
		b.k.accounts.end(*b.account)
	}
}

// dial connects to the agent.
func (b *booking) dial() (*jobagent.Link, error) {
	path, done, err := socketPath(b.k.agents(), b.name)
	if err != nil {
		return nil, err
	}
	defer done()
	link, err := jobagent.Dial(path, &nodepb.Open{
		Parent: []byte(b.k.jobs()), Name: []byte(b.ask.Job.Name()), OrphanMs: uint64(b.k.opts.Orphan.Milliseconds()), Have: b.events.Last(),
	})
	if err != nil {
		return nil, err
	}
	if err := b.checkFolder(string(link.Opened.Folder)); err != nil {
		link.Close()
		return nil, err
	}
	return link, nil
}

// checkFolder returns an error unless the folder is one that the job's agent may create: the node
// service finally removes it, in its own account, and does not trust the agent about its place.
func (b *booking) checkFolder(folder string) error {
	name, below := strings.CutPrefix(folder, b.k.jobs()+"/")
	if !below || !strings.HasPrefix(name, b.ask.Job.Name()+"-") || strings.Contains(name, "/") {
		return fmt.Errorf("the job agent says that the job is in %.200q, which is no folder of its in %s", folder, b.k.jobs())
	}
	return nil
}

// maxConnects is how many connections with an agent may fail in a row, up to 20 s each if it does not
// answer, before the node service kills the agent. After twice as many it gives the agent up.
const maxConnects = 3

// readAgent handles the agent's messages until the agent ends or the node service leaves it. If the
// connection breaks, readAgent connects again: when the guard has ended too, the kernel has closed
// the socket, and nothing is left of the job. A nil link means that a previous node service started
// the agent.
func (b *booking) readAgent(link *jobagent.Link) {
	adopted := link == nil
	c := newConduct(time.Now())
	for {
		if link != nil {
			c.connected(time.Now())
			err := b.hear(link, c)
			link.Close()
			if errors.Is(err, jobagent.ErrMessage) { // it would come again
				b.endFor(err)
				b.k.starter.Kill(b.name)
			}
			b.pauseAgent(c, errors.New("it hangs up"))
		}
		if b.isLeft() {
			return
		}
		if c.tries > 2*maxConnects { // what answers cannot be ended and stays; if it is the agent, its guard waits for it
			b.died()
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
			b.vacate(b.k.starter.Ended(b.name))
			b.died()
			return
		default:
			b.pauseAgent(c, err)
		}
	}
}

// hear handles the messages of one connection, until it breaks.
func (b *booking) hear(link *jobagent.Link, c *conduct) error {
	for {
		m, err := link.Receive()
		if err != nil {
			return err
		}
		b.wait(c.took(proto.Size(m), time.Now()))
		if m.GetFault() != nil {
			if c.faulted {
				continue // the first has ended the job
			}
			c.faulted = true
		}
		if err := b.handleAgent(m); err != nil {
			return err
		}
	}
}

// pauseAgent waits after a connection with the agent that broke, or could not be made, and kills an agent
// with which that happens again and again.
func (b *booking) pauseAgent(c *conduct, err error) {
	pause := c.failed(time.Now())
	if c.tries > 1 {
		b.k.log.Warn("a job agent does not answer", "job", string(b.ask.Job), "agent", b.name, "error", err)
	}
	if c.tries >= maxConnects {
		b.k.starter.Kill(b.name)
	}
	b.wait(pause)
}

// wait waits, unless the node service leaves the booking.
func (b *booking) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-b.leave:
	}
}

// unlaunched ends a job that the previous node service was about to launch and did not: only that
// service knew what to run.
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

// setLink makes a connection the booking's, unless the node service is leaving.
func (b *booking) setLink(link *jobagent.Link) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left {
		return false
	}
	b.link, b.folder = link, string(link.Opened.Folder)
	b.taken.Store(&nodepb.Taken{Bytes: link.Opened.Taken, Wants: !link.SaysWants()})
	if b.released {
		go link.Send(&nodepb.ToAgent{Say: &nodepb.ToAgent_Release{Release: &nodepb.Release{}}})
	}
	return true
}

// endFor ends the booking because of a message of its agent's, or to it, that cannot be carried.
func (b *booking) endFor(err error) {
	b.k.do(func(now time.Time) { b.k.end(b, err.Error(), now) })
}

// sendAgent sends a message to the agent. It ignores a missing connection or a failed write:
// readAgent notices those. A message that cannot be carried ends the booking. Serve's goroutine must not
// call it.
func (b *booking) sendAgent(m *nodepb.ToAgent) {
	b.mu.Lock()
	link := b.link
	b.mu.Unlock()
	if link == nil {
		return
	}
	b.sending.Lock()
	err := link.Send(m)
	b.sending.Unlock()
	switch {
	case errors.Is(err, jobagent.ErrMessage):
		b.endFor(err)
	case err != nil:
		link.Close()
	}
}

// sendAgentLater is sendAgent for a goroutine that must not block.
func (b *booking) sendAgentLater(m *nodepb.ToAgent) {
	b.k.work.Go(func() { b.sendAgent(m) })
}

// handleAgent handles a message from the agent. It returns an error for a message that breaks the
// protocol, and the connection is dropped: the job controls the agent's account.
func (b *booking) handleAgent(m *nodepb.FromAgent) error {
	switch m := m.Say.(type) {
	case *nodepb.FromAgent_Event:
		return b.report(m.Event)
	case *nodepb.FromAgent_Ended:
		b.processesEnded()
	case *nodepb.FromAgent_Taken:
		b.tookInput(m.Taken)
	case *nodepb.FromAgent_Staged:
		select {
		case b.staged <- m.Staged:
		default:
		}
	case *nodepb.FromAgent_Fault:
		b.sendStream(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Fault{Fault: m.Fault}})
		b.k.do(func(now time.Time) { b.k.end(b, string(m.Fault.Text), now) })
	}
	return nil
}

// tookInput passes on how much of the input was taken, and whether more is wanted.
func (b *booking) tookInput(m *nodepb.Taken) {
	b.taken.Store(m)
	b.sendStream(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Taken{Taken: m}})
}

// report handles an event from the agent.
func (b *booking) report(m *nodepb.ToSubmitter) error {
	switch m.Say.(type) {
	case *nodepb.ToSubmitter_Output, *nodepb.ToSubmitter_Exited, *nodepb.ToSubmitter_File, *nodepb.ToSubmitter_Over:
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
		b.isOver(m.Event, string(over.Ended))
	}
	return nil
}

// noteExit records that the exit of a process was reported, for at most as many processes as the
// job has here.
func (b *booking) noteExit(at place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.begun.Load(); p != nil && len(b.exited) < len(p.processes) {
		b.exited[at] = true
	}
}

// live returns the processes of a program whose exit was not reported.
func (b *booking) live(p *program) (all []*nodepb.Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range p.processes {
		if !b.exited[q] {
			q = p.seat(q)
			all = append(all, &nodepb.Process{Rank: uint32(q.Rank), Copy: uint32(q.Copy)})
		}
	}
	return all
}

// died reports to the submitter what an agent that has ended left unreported.
func (b *booking) died() {
	why := b.whyEnded()
	b.mu.Lock()
	over, released := b.over != 0, b.released
	b.link = nil
	b.mu.Unlock()
	close(b.agentGone)
	if over || released || b.begun.Load() == nil {
		b.processesEnded()
		b.overKnown.happen(func() {})
		return
	}
	if why == "" {
		why = "its job agent was killed, and all its processes with it"
	}
	for _, at := range b.begun.Load().processes {
		b.mu.Lock()
		reported := b.exited[at]
		b.mu.Unlock()
		if !reported {
			b.events.Force(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Exited{Exited: &nodepb.Exited{
				Process: &nodepb.Process{Rank: uint32(at.Rank), Copy: uint32(at.Copy)}, Status: 128 + uint32(syscall.SIGKILL), Signal: "KILL", Text: []byte(why),
			}}})
		}
	}
	b.processesEnded()
	last := &nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Over{Over: &nodepb.Over{Ended: []byte(why)}}}
	b.events.Force(last)
	b.isOver(last.Event, why)
}
