package spin

import (
	"net"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// state is what a connection keeps besides the one it wraps.
type state struct {
	raw    syscall.RawConn
	reader reader
	writer writer
}

func (s *state) init(c net.Conn, raw syscall.RawConn, o Options) {
	_, s.reader.tcp = c.(*net.TCPConn)
	s.raw = raw
	s.reader.idle, s.reader.gauge = o.Idle, newGauge(o.Budget)
	s.reader.poll = s.reader.tryAll
	s.writer.all, s.writer.some = s.writer.tryAll, s.writer.tryOnce
}

func (s *state) stopPolling() { s.reader.noPolling.Store(true) }

// maxWrite is about how many bytes one system call sends: a MiB with the headers before it. Calls of
// 128 KiB carried a third less, in the worst case only half as much. Probably, while a call lasts,
// the sender owns the socket, and so acknowledgements are processed, and memory is freed, where it
// is used again, and not on the receiver's processor.
//
// The call does not notify the scheduler (RawSyscall), and while it lasts, one to two hundred
// microseconds at this size, the runtime cannot stop the world nor give the processor to another
// goroutine, and a read of the same socket waits. If the runtime were notified, its monitor would
// wake up every 20 us to check whether the call takes long.
const maxWrite = 1<<20 + 4<<10

// A writer is the writing half of a connection. Writes do not spin: a full buffer at the peer is
// seldom drained within a budget.
type writer struct {
	mu   sync.Mutex         // held for a whole write; guards the fields below
	all  func(uintptr) bool // w.tryAll, created once
	some func(uintptr) bool // w.tryOnce, likewise

	vec   vector // the rest of the part that is being sent
	n     int    // sent so far
	errno syscall.Errno
}

// Write writes p as net.Conn does.
func (c *Conn) Write(p []byte) (int, error) { return c.WriteVec(p) }

// WriteVec writes all of bufs, concatenated and not interleaved with another write, in as few
// packets as possible. It returns how many bytes it wrote, all of them unless there is an error. It
// neither retains bufs nor allocates; net.Buffers may be passed unchanged (bufs...), and is not
// modified.
func (c *Conn) WriteVec(bufs ...[]byte) (int, error) {
	w := &c.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.vec.clear()
	w.n, w.errno = 0, 0
	for {
		bufs = w.vec.fill(bufs, noLimit)
		if w.vec.len() == 0 {
			if w.n == 0 { // there was nothing to write: check whether the connection is open
				return c.Conn.Write(nil)
			}
			return w.n, nil
		}
		if err := c.raw.Write(w.all); err != nil {
			return w.n, c.failed("write", err)
		}
		if w.errno != 0 {
			return w.n, c.failed("write", w.errno)
		}
	}
}

// TryWrite writes what the socket accepts of p without waiting, and returns that number of bytes: 0
// if the socket is full, or if another write is in progress. Fewer than all of p is not an error.
func (c *Conn) TryWrite(p []byte) (int, error) { return c.TryWriteVec(p) }

// TryWriteVec is TryWrite for several buffers, concatenated. It retains neither them nor bufs.
func (c *Conn) TryWriteVec(bufs ...[]byte) (int, error) {
	w := &c.writer
	if !w.mu.TryLock() {
		return 0, nil
	}
	defer w.mu.Unlock()
	defer w.vec.clear()
	w.n, w.errno = 0, 0
	for w.vec.len() == 0 { // else there is no room
		if bufs = w.vec.fill(bufs, noLimit); w.vec.len() == 0 {
			break
		}
		if err := c.raw.Write(w.some); err != nil {
			return w.n, c.failed("write", err)
		}
		if w.errno != 0 {
			return w.n, c.failed("write", w.errno)
		}
	}
	return w.n, nil
}

// tryAll sends until everything is sent or an error occurs, and then returns true; false means that
// the runtime should wait until there is room.
func (w *writer) tryAll(fd uintptr) bool {
	for w.vec.len() > 0 {
		if !w.send(fd) {
			return w.errno != 0
		}
	}
	return true
}

// tryOnce sends what there is room for.
func (w *writer) tryOnce(fd uintptr) bool {
	for w.vec.len() > 0 && w.send(fd) {
	}
	return true
}

// send makes one system call and reports whether anything was sent.
func (w *writer) send(fd uintptr) bool {
	raceRelease()
	for {
		n, errno := w.vec.send(fd)
		switch errno {
		case 0:
			w.n += n
			w.vec.consume(n)
			return true
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		default:
			w.errno = errno
			return false
		}
	}
}

// send makes one system call for the rest, or as much of it as may be sent at once.
func (v *vector) send(fd uintptr) (int, syscall.Errno) {
	flags := unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	count, size := v.atOnce()
	if size < v.total {
		flags |= unix.MSG_MORE
	}
	if count == 1 { // faster by more than a tenth of a microsecond
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(v.iov[v.first].Base)), uintptr(size), uintptr(flags), 0, 0)
		return int(n), errno
	}
	v.hdr.SetIovlen(count)
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&v.hdr)), uintptr(flags))
	return int(n), errno
}

// atOnce returns how many buffers, and bytes, may be sent at once: part of the first or several
// whole ones.
func (v *vector) atOnce() (count, size int) {
	for _, b := range v.iov[v.first:v.used] {
		if n := int(b.Len); size+n <= maxWrite {
			size += n
			count++
			continue
		}
		break
	}
	if count == 0 {
		return 1, maxWrite
	}
	return count, size
}
