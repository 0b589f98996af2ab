package carrier

import (
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// chunk is the maximum that one splice moves, and the size of a pipe, in bytes: the largest that an
// ordinary user may have (fs.pipe-max-size). With smaller ones a gigabyte costs more CPU time: 0.33
// s with 1 MiB, 0.46 s with 512 KiB, 0.74 s with 64 KiB.
const chunk = 1 << 20

// copy moves f's bytes until from ends: from the socket into a pipe, from the pipe into the other
// socket, by reference to the same pages.
//
// A flow holds a pipe only while the pipe has bytes or more are expected at once. So an idle link
// costs no pipe, and a thousand of them fit into the number of pipe pages that the kernel allows an
// ordinary user (fs.pipe-user-pages-soft).
//
// A stream that is not a plain socket has to be read by this process.
func (f *flow) copy() error {
	from, bare := f.from.(*net.TCPConn)
	to, also := f.to.(*net.TCPConn)
	if !bare || !also {
		return f.copyInUserSpace()
	}
	src, err := from.SyscallConn()
	if err != nil {
		return f.readFailed(err)
	}
	dst, err := to.SyscallConn()
	if err != nil {
		return f.writeFailed(err)
	}
	s := splicer{flow: f, src: src, dst: dst}
	defer s.dropPipe()
	for {
		n, err := s.next()
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		pass := f.budget.spend(n)
		if err := s.drain(pass); err != nil {
			return f.writeFailed(err)
		}
		f.loss.Look(time.Now())
		if pass < n {
			return ErrLimit
		}
	}
}

// splicer is one flow's path through the kernel.
type splicer struct {
	*flow
	src, dst syscall.RawConn
	pipe     *pipe // nil while there is nothing to move
}

// next fills the pipe with what has arrived and may pass.
func (s *splicer) next() (int, error) {
	if s.pacer == nil || !s.pacer.Paced() {
		n, err := s.fill(chunk)
		if err != nil {
			return 0, s.readFailed(err)
		}
		return n, nil
	}
	return s.nextPaced()
}

// nextPaced waits for bytes, then for its turn, without a pipe meanwhile, and fills one with as
// many as may pass.
func (s *splicer) nextPaced() (int, error) {
	s.releasePipe()
	have, err := s.arrived()
	if err != nil {
		return 0, s.readFailed(err)
	}
	if have == 0 { // end of stream, which needs no turn
		n, err := s.fill(chunk)
		if err != nil {
			return 0, s.readFailed(err)
		}
		return n, nil
	}
	pass, err := s.take(have)
	if err != nil {
		return 0, err
	}
	n, err := s.fill(min(pass, chunk))
	if n < pass {
		s.pacer.Return(s.dir, pass-n)
	}
	if err != nil {
		return 0, s.readFailed(err)
	}
	return n, nil
}

// arrived waits until bytes can be read and returns how many; 0 means that the stream has ended.
func (s *splicer) arrived() (n int, err error) {
	rerr := s.src.Read(func(fd uintptr) bool {
		if n, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ); err != nil || n > 0 {
			return true
		}
		var b [1]byte
		n, _, err = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN
	})
	if rerr != nil {
		err = rerr
	}
	// The kernel reports an error once: this call must return it, because the next one sees an end
	// of stream.
	return max(n, 0), err
}

// fill waits for bytes and moves at most that many from the source into the empty pipe. At the end
// of the stream it returns 0.
func (s *splicer) fill(most int) (n int, err error) {
	rerr := s.src.Read(func(fd uintptr) bool {
		n, err = s.fillNow(int(fd), most)
		if err != unix.EAGAIN {
			return true
		}
		s.releasePipe()
		return false // park until there is something
	})
	if rerr != nil {
		return 0, rerr
	}
	return n, err
}

// releasePipe returns an empty pipe to the pool.
func (s *splicer) releasePipe() {
	if s.pipe != nil {
		pipes.put(s.pipe)
		s.pipe = nil
	}
}

func (s *splicer) fillNow(fd, most int) (n int, err error) {
	if s.pipe == nil {
		if s.pipe, err = pipes.get(); err != nil {
			return 0, err
		}
	}
	return splice(fd, s.pipe.w, most)
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
		if moved == 0 {
			return io.ErrUnexpectedEOF // the kernel guarantees that this does not happen
		}
		n -= moved
		s.meter.spliced[s.dir].Add(uint64(moved))
	}
	return nil
}

// dropPipe closes the pipe of a flow that ended: it may have bytes left.
func (s *splicer) dropPipe() {
	if s.pipe != nil {
		pipes.drop(s.pipe)
		s.pipe = nil
	}
}

// splice moves up to n bytes without blocking.
//
// It is a raw system call: both ends are non-blocking, so the thread is busy for the whole call,
// and notifying the Go scheduler of every call costs more than the call. On two busy CPUs, a byte's
// round trip through a relay took 109 us with the notification and 74 without (31 directly); a
// gigabyte took 0.54 and 0.42 s of CPU time. Polling the socket before parking, which helps the
// ends of a link, lost here: 112 us after 5 us of polling, because a relay that polls takes the CPU
// from the ends that it serves.
func splice(from, to, n int) (int, error) {
	const flags = unix.SPLICE_F_NONBLOCK | unix.SPLICE_F_MOVE
	for {
		m, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), flags)
		switch errno {
		case 0:
			return int(m), nil
		case unix.EINTR:
			continue
		}
		return 0, errno
	}
}
