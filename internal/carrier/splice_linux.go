package carrier

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// chunk is the most that one splice moves, and the size of a pipe, in bytes.
const chunk = 1 << 20

// copy moves f's bytes until from ends: from the socket into a pipe, from the
// pipe into the other socket, by reference to the same pages.
//
// A pipe is held only while it has bytes or more are expected at once. So an
// idle link costs no pipe, and a thousand of them fit into the number of pipe
// pages that the kernel allows an ordinary user (fs.pipe-user-pages-soft).
func (f *flow) copy() error {
	src, err := f.from.SyscallConn()
	if err != nil {
		return f.readFailed(err)
	}
	dst, err := f.to.SyscallConn()
	if err != nil {
		return f.writeFailed(err)
	}
	s := splicer{flow: f, src: src, dst: dst}
	defer s.dropPipe()
	for {
		n, err := s.fill()
		if err != nil {
			return f.readFailed(err)
		}
		if n == 0 {
			return nil
		}
		pass := f.budget.spend(n)
		if err := s.drain(pass); err != nil {
			return f.writeFailed(err)
		}
		if pass < n {
			return ErrLimit
		}
	}
}

// splicer is one flow's way through the kernel.
type splicer struct {
	*flow
	src, dst syscall.RawConn
	pipe     *pipe // nil while there is nothing to move
}

// fill waits for bytes and moves them from the source into the empty pipe. At
// the end of the stream it returns 0.
func (s *splicer) fill() (n int, err error) {
	rerr := s.src.Read(func(fd uintptr) bool {
		n, err = s.fillNow(int(fd))
		if err != unix.EAGAIN {
			return true
		}
		pipes.put(s.pipe)
		s.pipe = nil
		return false // and park until there is something
	})
	if rerr != nil {
		return 0, rerr
	}
	return n, err
}

func (s *splicer) fillNow(fd int) (n int, err error) {
	if s.pipe == nil {
		if s.pipe, err = pipes.get(); err != nil {
			return 0, err
		}
	}
	return splice(fd, s.pipe.w, chunk)
}

// drain moves n bytes from the pipe to the target, at the target's pace.
func (s *splicer) drain(n int) error {
	for n > 0 {
		moved, err := 0, error(nil)
		werr := s.dst.Write(func(fd uintptr) bool {
			moved, err = splice(s.pipe.r, int(fd), n)
			return err != unix.EAGAIN
		})
		if werr != nil {
			return werr
		}
		if err != nil {
			return err
		}
		n -= moved
		s.meter.spliced[s.dir].Add(uint64(moved))
	}
	return nil
}

// dropPipe ends the pipe of a flow that ended: it may have bytes left.
func (s *splicer) dropPipe() {
	if s.pipe != nil {
		pipes.drop(s.pipe)
		s.pipe = nil
	}
}

// splice moves up to n bytes without waiting.
func splice(from, to, n int) (int, error) {
	for {
		m, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if err != unix.EINTR {
			return int(max(m, 0)), err
		}
	}
}
