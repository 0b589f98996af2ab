package spin

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxRead bounds the bytes of one read. Polls do not notify the scheduler (RawSyscall), because
// that costs more than an empty poll, and it is unknown in advance which poll finds data: while one
// copies, some tens of microseconds at this size, the runtime cannot stop the world nor give the
// processor to another goroutine.
const maxRead = 256 << 10

// hushBelow is how many bytes must have arrived before the kernel notifies the runtime's poller,
// while reads of a TCP connection spin: otherwise a thread of the process that sleeps in the poller
// would be woken for every message unnecessarily, on the processor that the peer needs. It is half
// of a socket's initial buffer, because with more the kernel would grow the buffer.
const hushBelow = 64 << 10

// phase is the progress of a read. The name of a phase says what has happened.
//
//	fresh --empty--> idleCalled --empty--> spinning --empty, budget spent--> parked
//	                   '-------- empty, not worth it --------------------^
type phase uint8

const (
	fresh      phase = iota // nothing yet
	idleCalled              // found nothing, or predicted that, and called Idle
	spinning                // polls; holds one of the process's places
	parked                  // leaves the waiting to the runtime
)

// A reader is the reading half of a connection.
type reader struct {
	mu   sync.Mutex         // held for a whole read; guards the fields below
	poll func(uintptr) bool // r.tryAll, created once, because each creation allocates
	idle func()

	noPolling  atomic.Bool // see Conn.Calm
	gauge      gauge
	processors int    // as of the last check
	waits      uint64 // so far
	tcp        bool
	hushed     bool // see hushBelow

	// Of the current read.
	phase phase
	buf   []byte // destination, or else vec
	vec   vector
	n     int
	errno syscall.Errno
}

// epoch is the origin of the package's times.
var epoch = time.Now()

// spinners is how many waits of this process spin.
var spinners atomic.Int32

// Read reads into p as net.Conn does, 256 KiB at most.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return c.Conn.Read(p)
	}
	r := &c.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf = p[:min(len(p), maxRead)]
	return c.read()
}

// ReadVec reads into bufs, concatenated, what one Read into all of them together would have read.
// It does not retain bufs, and allocates nothing if called with slices one by one. It uses at most
// 64 buffers and 256 KiB.
func (c *Conn) ReadVec(bufs ...[]byte) (int, error) {
	r := &c.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vec.fill(bufs, maxRead)
	if r.vec.len() == 0 {
		return c.Conn.Read(nil)
	}
	return c.read()
}

// read carries out the read that buf or vec describes.
func (c *Conn) read() (int, error) {
	r := &c.reader
	r.phase, r.n, r.errno = fresh, 0, 0
	defer r.finish()
	err := c.raw.Read(r.poll)
	switch {
	case err != nil:
		return 0, c.failed("read", err)
	case r.errno != 0:
		return 0, c.failed("read", r.errno)
	case r.n == 0:
		return 0, io.EOF
	}
	return r.n, nil
}

// finish ends a read, whatever its result.
func (r *reader) finish() {
	paid := false
	if r.phase == spinning {
		spinners.Add(-1)
		paid = r.gauge.end(time.Since(epoch))
	}
	r.gauge.expect = paid && r.n < len(r.buf)+r.vec.len()
	r.buf = nil
	r.vec.clear()
}

// tryAll polls until it has a result, and then returns true; false means that the runtime should
// wait for data.
func (r *reader) tryAll(fd uintptr) bool {
	if r.phase == fresh && !r.noPolling.Load() && r.gauge.predict(r.processors) {
		for r.phase < spinning && r.empty() {
			// as if polls had found nothing
		}
	}
	for {
		n, errno := r.receive(fd)
		switch errno {
		case 0:
			raceAcquire()
			r.n = n
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			if r.empty() {
				r.muteWakeups(fd, r.phase == spinning)
				continue
			}
			if r.hushed {
				r.muteWakeups(fd, false)
				continue // for data that arrived meanwhile
			}
			return false
		default:
			r.errno = errno
		}
		return true
	}
}

// receive makes one poll. For a single buffer, it does not block even if another user of a shared
// socket made the socket blocking.
func (r *reader) receive(fd uintptr) (int, syscall.Errno) {
	var n uintptr
	var errno syscall.Errno
	if r.buf != nil {
		n, _, errno = unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&r.buf[0])), uintptr(len(r.buf)), unix.MSG_DONTWAIT, 0, 0)
	} else { // recvmsg could guarantee the same, but is slower
		n, _, errno = unix.RawSyscall(unix.SYS_READV, fd, uintptr(unsafe.Pointer(&r.vec.iov)), uintptr(r.vec.used))
	}
	return int(n), errno
}

// muteWakeups sets whether the kernel notifies the poller only of much data.
func (r *reader) muteWakeups(fd uintptr, on bool) {
	if on == r.hushed || !r.tcp {
		return
	}
	r.hushed = on
	least := 1
	if on {
		least = hushBelow
	}
	unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, least)
}

// empty reports, after a poll that found nothing, whether to poll again.
func (r *reader) empty() bool {
	var now time.Duration
	switch r.phase {
	case fresh:
		r.phase = idleCalled
		if r.idle != nil {
			r.idle()
			return true
		}
		fallthrough
	case idleCalled:
		r.phase = parked
		if r.noPolling.Load() || !r.gauge.worthwhile() || !r.enter() {
			return false
		}
		r.phase = spinning
		now = time.Since(epoch)
		r.gauge.begin(now, r.processors)
	case spinning:
		now = time.Since(epoch)
	case parked:
		return false
	}
	if !r.gauge.keepSpinning(now) {
		r.phase = parked
		spinners.Add(-1)
		return false
	}
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	if r.processors == 1 {
		runtime.Gosched()
	}
	return true
}

// enter takes one of the places for spinning waits, if one is free.
func (r *reader) enter() bool {
	if r.waits%64 == 0 { // the query takes a lock of the whole runtime
		r.processors = runtime.GOMAXPROCS(0)
	}
	r.waits++
	if int(spinners.Add(1)) > max(1, r.processors-1) {
		spinners.Add(-1)
		return false
	}
	return true
}
