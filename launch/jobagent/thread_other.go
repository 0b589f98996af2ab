//go:build !linux

package jobagent

import (
	"syscall"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
)

// thread starts processes. Here only the guard ends them when the agent dies.
type thread struct{}

func newThread() thread                                                       { return thread{} }
func (s thread) start()                                                       {}
func (s thread) stop()                                                        {}
func (s thread) run(f func() (*ranks.Process, error)) (*ranks.Process, error) { return f() }

func dieWithParent() *syscall.SysProcAttr { return nil }
