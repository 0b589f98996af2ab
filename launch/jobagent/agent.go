package jobagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

const (
	// orphanTime is how long an agent waits for a helper when no helper has set the time.
	orphanTime = 30 * time.Second
	// lastWords is how long the submitter of a job that was ended may take to receive the remaining
	// events.
	lastWords = 3 * time.Second
	// version of the protocol between helper and agent; from 2 on an agent says Taken.wants
	version = 2
)

// agent is the process that runs a job.
//
//	waiting for Open --> folder --Launch--> processes, then output files, then Over
//	                        |                  | Over acknowledged, Release, or no helper connected
//	                        v                  v
//	                     what is left is ended, the folder removed: the end
type agent struct {
	ln     *net.UnixListener
	guard  int // the process from which all processes of the job descend; 0: none
	events *Events
	input  *input
	thread thread
	free   chan struct{} // closed when nothing will be requested any more
	once   sync.Once     // guards the close of free

	ctx  context.Context // of the processes
	stop context.CancelCauseFunc
	work sync.WaitGroup // launch, feeding and connections

	mu       sync.Mutex // guards the fields below, and the files in the folder
	folder   string     // "" before it is created
	closed   bool       // the folder is removed, or was never created and will not be
	orphan   time.Duration
	lonely   *time.Timer // ends the job; stopped while a helper is connected
	newest   *connection
	launched bool
	ended    bool // no process is left
	running  map[place]*running
	early    []early             // signals for processes that are not started yet
	started  bool                // the start of all processes was attempted
	incoming map[string]*os.File // staged files being written, by name
}

// errKilled is why processes are killed; its text is for people.
type errKilled string

func (e errKilled) Error() string { return string(e) }

// serve runs the agent to its end. dead is closed when the guard has died.
func serve(ln *net.UnixListener, guard int, dead <-chan struct{}) {
	a := &agent{
		ln: ln, guard: guard, events: NewEvents(), input: newInput(), thread: newThread(), free: make(chan struct{}),
		orphan: orphanTime, running: map[place]*running{}, incoming: map[string]*os.File{},
	}
	a.ctx, a.stop = context.WithCancelCause(context.Background())
	a.thread.start()
	a.lonely = time.AfterFunc(a.orphan, a.orphaned)
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT)
	accepting := make(chan struct{})
	go func() { // ends with the listener
		defer close(accepting)
		a.accept()
	}()
	select {
	case <-a.free:
	case <-dead:
		a.kill("the guard of its job agent was killed")
	case <-terminated:
		a.kill("its job agent was ordered to end")
	}
	// Without a release, the submitter still gets the reason, if it is attached.
	select {
	case <-a.free:
	case <-time.After(lastWords + goneTime):
	}
	a.release()
	ln.Close()
	<-accepting
	a.finish()
}

// goneTime bounds the wait for killed processes to disappear: they have 2 s to end, and the
// processes they leave behind as much again.
const goneTime = 5 * time.Second

// finish removes everything, and signals that by closing the connection.
func (a *agent) finish() {
	a.mu.Lock()
	a.closed = true
	dir, last := a.folder, a.newest
	a.mu.Unlock()
	killOffspring(a.guard)
	a.lonely.Stop()
	if dir != "" {
		RemoveAll(dir)
	}
	if last != nil {
		last.close()
	}
	a.work.Wait()
	a.thread.stop()
}

// kill ends the processes. Their remaining output is still sent, but an unresponsive submitter is
// not waited for.
func (a *agent) kill(why string) {
	a.stop(errKilled(why))
	a.input.close()
	time.AfterFunc(lastWords, a.events.Silence)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.launched {
		a.once.Do(func() { close(a.free) })
	}
}

// release records that the events will not be requested any more, so that everything can be removed
// when the processes have ended.
func (a *agent) release() {
	a.events.Silence()
	a.input.close()
	a.stop(nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || !a.launched {
		a.once.Do(func() { close(a.free) })
	}
	a.orphan = 0
}

// orphaned ends a job because no helper is connected.
func (a *agent) orphaned() {
	a.stop(errKilled("no helper asked for it"))
	a.release()
}

// accept accepts connections until the listener is closed.
func (a *agent) accept() {
	for {
		c, err := a.ln.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as too many open files
			time.Sleep(10 * time.Millisecond)
			continue
		}
		a.work.Go(func() { a.serveConn(c) }) // ends with the connection, which the next one and finish close
	}
}

// home creates the job's folder.
func (a *agent) home(m *nodepb.Open) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return "", errors.New("the job is over")
	}
	if a.folder != "" {
		return a.folder, nil
	}
	parent, name := string(m.Parent), string(m.Name)
	if !filepath.IsAbs(parent) || name == "" || strings.ContainsAny(name, "/*\x00") {
		return "", fmt.Errorf("no folder %q can be made in %q", name, parent)
	}
	dir, err := os.MkdirTemp(parent, name+"-") // accessible to its owner only
	switch {
	case errors.Is(err, os.ErrPermission):
		return "", fmt.Errorf("%w: the account of the job, %d, must be able to enter node_service.store and all folders above it", err, os.Getuid())
	case err != nil:
		return "", err
	}
	a.folder = dir
	tellGuard(dir)
	return dir, nil
}
