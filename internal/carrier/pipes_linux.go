package carrier

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxIdlePipes bounds the pool. Each idle pipe is two descriptors and, as it is empty, no memory.
const maxIdlePipes = 32

// pipe is the kernel pipe that a flow's bytes pass through.
type pipe struct{ r, w int }

// pipes is the process's pool of empty pipes.
var pipes pipePool

type pipePool struct {
	mu    sync.Mutex
	idle  []*pipe
	inUse atomic.Int32 // pipes in use
}

// get returns an empty pipe. The caller must return it with put or drop.
func (s *pipePool) get() (*pipe, error) {
	p := s.pop()
	if p == nil {
		var err error
		if p, err = newPipe(); err != nil {
			return nil, err
		}
	}
	s.inUse.Add(1)
	return p, nil
}

// pop returns an idle pipe, or nil.
func (s *pipePool) pop() *pipe {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.idle)
	if n == 0 {
		return nil
	}
	p := s.idle[n-1]
	s.idle = s.idle[:n-1]
	return p
}

func newPipe() (*pipe, error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("pipe to splice through: %w; raise the limit of open files (ulimit -n)", err)
	}
	// Refused to an ordinary user who has many pipes: a small one works, but slower.
	unix.FcntlInt(uintptr(fd[0]), unix.F_SETPIPE_SZ, chunk)
	return &pipe{fd[0], fd[1]}, nil
}

// put returns an empty pipe to the pool.
func (s *pipePool) put(p *pipe) {
	s.inUse.Add(-1)
	s.mu.Lock()
	keep := len(s.idle) < maxIdlePipes
	if keep {
		s.idle = append(s.idle, p)
	}
	s.mu.Unlock()
	if !keep {
		p.close()
	}
}

// drop closes a pipe that may have bytes in it.
func (s *pipePool) drop(p *pipe) {
	s.inUse.Add(-1)
	p.close()
}

func (p *pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}
