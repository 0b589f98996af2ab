package jobagent

import (
	"runtime"
	"syscall"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
)

// thread starts processes from one thread that lives as long as they do: the kernel sends a process
// its parent-death signal when the thread that started it ends.
type thread struct{ jobs chan func() }

func newThread() thread { return thread{make(chan func())} }

// start starts the thread, which ends with stop.
func (s thread) start() {
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		for job := range s.jobs {
			job()
		}
	}()
}

// stop ends the thread, when all processes it started have ended.
func (s thread) stop() { close(s.jobs) }

func (s thread) run(f func() (*ranks.Process, error)) (p *ranks.Process, err error) {
	done := make(chan struct{})
	s.jobs <- func() {
		defer close(done)
		p, err = f()
	}
	<-done
	return p, err
}

// dieWithParent makes the kernel kill a process when the agent, its parent, dies.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
