package carrier

import (
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
	var p *pipe
	defer func() { pipes.drop(p) }() // it may have bytes left
	for {
		n := 0
		var serr error
		err := src.Read(func(fd uintptr) bool {
			if p == nil {
				if p, serr = pipes.get(); serr != nil {
					return true
				}
			}
			n, serr = splice(int(fd), p.w, chunk)
			if serr == unix.EAGAIN {
				pipes.put(p)
				p = nil
				return false
			}
			return true
		})
		if err == nil {
			err = serr
		}
		if err != nil {
			return f.readFailed(err)
		}
		if n == 0 {
			pipes.put(p)
			p = nil
			return nil
		}
		pass := f.budget.spend(n)
		for left := pass; left > 0; {
			m := 0
			err := dst.Write(func(fd uintptr) bool {
				m, serr = splice(p.r, int(fd), left)
				return serr != unix.EAGAIN
			})
			if err == nil {
				err = serr
			}
			if err != nil {
				return f.writeFailed(err)
			}
			left -= m
			f.meter.spliced[f.dir].Add(uint64(m))
		}
		if pass < n {
			return ErrLimit
		}
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
