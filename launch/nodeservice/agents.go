package nodeservice

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// agent is a booking's job agent. Its goroutine starts it, handles what it says, and connects again when the connection
// breaks; it tells the booking.
type agent struct {
	b      *booking
	name   string                  // of the agent, its socket and the booking's record
	link   *jobagent.Link          // the booking's, which sends over it; nil: there is none
	ready  chan struct{}           // closed when the first connection is there, or err is set
	err    error                   // why there is none
	staged chan *nodepb.StagedFile // its answer about a file
	left   chan struct{}           // closed when this node service leaves it to the next one
	gone   chan struct{}           // closed when nothing is left of it
}

func newAgent(b *booking) *agent {
	return &agent{
		b: b, name: hex.EncodeToString(b.Ask.Key[:8]), ready: make(chan struct{}), staged: make(chan *nodepb.StagedFile, 1),
		left: make(chan struct{}), gone: make(chan struct{}),
	}
}

func (a *agent) isLeft() bool   { return isClosed(a.left) }
func (a *agent) hasEnded() bool { return isClosed(a.gone) }

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// tell runs f in Serve's goroutine, and reports whether it did: not if the node service has left the agent.
func (a *agent) tell(f func(b *booking, now time.Time)) bool {
	told := false
	a.b.k.do(func(now time.Time) {
		if told = !a.isLeft(); told {
			f(a.b, now)
		}
	})
	return told
}

// begin starts the agent and serves it to its end.
func (a *agent) begin() {
	link, err := a.start()
	if err != nil {
		a.err = err
		a.tell(func(b *booking, _ time.Time) {
			b.agent = nil
			close(a.gone)
		})
	}
	close(a.ready)
	if err == nil {
		a.serve(link)
	}
}

// start starts the agent, which creates the job's folder.
func (a *agent) start() (*jobagent.Link, error) {
	b, k := a.b, a.b.k
	if _, err := k.openStore(); err != nil {
		return nil, err
	}
	ln, err := listenAt(k.agents(), a.name)
	if err != nil {
		return nil, err
	}
	account, err := k.starter.Start(b.Who, k.jobs(), jobagent.Spec{
		Listener: ln, Group: a.name,
		Memory: b.Ask.Memory * int64(b.Ask.Processes), CPU: b.Ask.CPU * b.Ask.Processes,
	})
	ln.Close()
	if err != nil {
		a.forget()
		return nil, err
	}
	k.accounts.begin(account, b.Who)
	link, err := a.dial()
	if err != nil {
		k.starter.Kill(a.name)
		a.vacate(account)
		a.forget()
		return nil, err
	}
	a.tell(func(b *booking, _ time.Time) {
		b.Account = account
		b.connected(link)
		b.note()
	})
	return link, nil
}

// vacate waits until nothing is left of the agent, and ends that its account is the submitter's. If that is not
// certain, the account stays the submitter's as long as this node service runs.
func (a *agent) vacate(account Account) {
	if err := a.b.k.starter.Ended(a.name); err != nil {
		a.b.k.log.Warn("something of a job may be left", "job", string(a.b.Ask.Job), "agent", a.name, "error", err)
		return
	}
	a.b.k.accounts.end(account)
}

// forget removes the agent's socket and the booking's record.
func (a *agent) forget() {
	os.Remove(filepath.Join(a.b.k.agents(), a.name))
	os.Remove(a.b.k.recordFile(a.name))
}

// dial connects to the agent.
func (a *agent) dial() (*jobagent.Link, error) {
	k, job := a.b.k, a.b.Ask.Job.Name()
	path, done, err := socketPath(k.agents(), a.name)
	if err != nil {
		return nil, err
	}
	defer done()
	link, err := jobagent.Dial(path, &nodepb.Open{
		Parent: []byte(k.jobs()), Name: []byte(job), OrphanMs: uint64(k.opts.Orphan.Milliseconds()), Have: a.b.events.Last(),
	})
	if err != nil {
		return nil, err
	}
	// The folder must be one that the agent may create: the node service finally removes it, in its own account, and does
	// not trust the agent about its place.
	folder := string(link.Opened.Folder)
	if name, below := strings.CutPrefix(folder, k.jobs()+"/"); !below || !strings.HasPrefix(name, job+"-") || strings.Contains(name, "/") {
		link.Close()
		return nil, fmt.Errorf("the job agent says that the job is in %.200q, which is no folder of its in %s", folder, k.jobs())
	}
	return link, nil
}

// maxConnects is how many connections with an agent may fail in a row, up to 20 s each if it does not
// answer, before the node service kills the agent. After twice as many it gives the agent up.
const maxConnects = 3

// serve handles the agent's messages until the agent ends or the node service leaves it. If the
// connection breaks, serve connects again: when the guard has ended too, the kernel has closed
// the socket, and nothing is left of the job. A nil link means that a previous node service started
// the agent.
func (a *agent) serve(link *jobagent.Link) {
	c := newConduct(time.Now())
	for {
		if link != nil {
			c.connected(time.Now())
			err := a.hear(link, c)
			link.Close()
			if errors.Is(err, jobagent.ErrMessage) { // it would come again
				a.endFor(err)
				a.b.k.starter.Kill(a.name)
			}
			a.pause(c, errors.New("it hangs up"))
		}
		if a.isLeft() {
			return
		}
		if c.tries > 2*maxConnects { // what answers cannot be ended and stays; if it is the agent, its guard waits for it
			a.ended()
			return
		}
		var err error
		link, err = a.dial()
		switch {
		case err == nil:
			if !a.tell(func(b *booking, _ time.Time) { b.connected(link) }) {
				link.Close()
				return
			}
		case errors.Is(err, jobagent.ErrGone):
			a.vacate(a.b.Account) // which is not written any more
			a.ended()
			return
		default:
			a.pause(c, err)
		}
	}
}

// ended tells the booking that nothing is left of the agent.
func (a *agent) ended() {
	a.tell(func(b *booking, _ time.Time) {
		a.link = nil
		close(a.gone)
		b.reportLost()
	})
}

// hear handles the messages of one connection, until it breaks.
func (a *agent) hear(link *jobagent.Link, c *conduct) error {
	for {
		m, err := link.Receive()
		if err != nil {
			return err
		}
		a.wait(c.took(proto.Size(m), time.Now()))
		if m.GetFault() != nil {
			if c.faulted {
				continue // the first has ended the job
			}
			c.faulted = true
		}
		if err := a.handle(m); err != nil {
			return err
		}
	}
}

// pause waits after a connection with the agent that broke, or could not be made, and kills an agent
// with which that happens again and again.
func (a *agent) pause(c *conduct, err error) {
	pause := c.failed(time.Now())
	if c.tries > 1 {
		a.b.k.log.Warn("a job agent does not answer", "job", string(a.b.Ask.Job), "agent", a.name, "error", err)
	}
	if c.tries >= maxConnects {
		a.b.k.starter.Kill(a.name)
	}
	a.wait(pause)
}

// wait waits, unless the node service leaves the agent.
func (a *agent) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-a.left:
	}
}

// endFor ends the booking because of a message of the agent's, or to it, that cannot be carried.
func (a *agent) endFor(err error) {
	a.tell(func(b *booking, now time.Time) { b.k.end(b, err.Error(), now) })
}

// handle handles a message from the agent. It returns an error for a message that breaks the
// protocol, and the connection is dropped: the job controls the agent's account.
func (a *agent) handle(m *nodepb.FromAgent) error {
	switch m := m.Say.(type) {
	case *nodepb.FromAgent_Event:
		return a.report(m.Event)
	case *nodepb.FromAgent_Ended:
		a.tell(func(b *booking, _ time.Time) { b.processesEnded() })
	case *nodepb.FromAgent_Taken:
		a.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Taken{Taken: m.Taken}}, func(b *booking, _ time.Time) { b.taken = m.Taken })
	case *nodepb.FromAgent_Staged:
		select {
		case a.staged <- m.Staged:
		default:
		}
	case *nodepb.FromAgent_Fault:
		a.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Fault{Fault: m.Fault}}, func(*booking, time.Time) {})
		a.endFor(errors.New(string(m.Fault.Text)))
	}
	return nil
}

// answer tells the booking, and sends an answer to the submitter if it is attached; it waits while that does not read.
func (a *agent) answer(m *nodepb.ToSubmitter, f func(*booking, time.Time)) {
	var c *conversation
	a.tell(func(b *booking, now time.Time) {
		f(b, now)
		c = b.stream
	})
	if c != nil {
		c.answer(m)
	}
}

// report handles an event.
func (a *agent) report(m *nodepb.ToSubmitter) error {
	switch m.Say.(type) {
	case *nodepb.ToSubmitter_Output, *nodepb.ToSubmitter_Exited, *nodepb.ToSubmitter_File, *nodepb.ToSubmitter_Over:
	default:
		return fmt.Errorf("the job agent says %T as an event", m.Say)
	}
	if err := a.b.events.Put(m); err != nil {
		return err
	}
	switch m := m.Say.(type) {
	case *nodepb.ToSubmitter_Exited:
		a.tell(func(b *booking, _ time.Time) { b.noteExit(m.Exited.Process) })
	case *nodepb.ToSubmitter_Over:
		a.tell(func(b *booking, _ time.Time) { b.isOver(string(m.Over.Ended)) })
	}
	return nil
}
