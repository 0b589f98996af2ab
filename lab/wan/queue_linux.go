package wan

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	headBytes   = 64     // enough for IP and TCP headers
	wholeBytes  = 0xffff // to send a packet again, all of it is needed
	heldMax     = 65536  // maximum packets held by a queue; further ones are dropped and counted
	kernelMax   = 2 * heldMax
	readBuffer  = 32 << 20 // requested from the kernel, which gives an ordinary user less
	readAtOnce  = 128      // packets read before checking for due ones
	flushAbove  = 32 << 10 // bytes of verdicts written at once
	answerWait  = 5 * time.Second
	largestRead = wholeBytes + 1024
)

// A queue is one NFQUEUE and the goroutine that reads it. New fills the first block and open the
// second; the third belongs to run.
type queue struct {
	number uint16
	start  time.Time
	again  *resender
	paths  map[[2]uint32]*path // by in and out interface

	nl   int // netlink socket
	wake int // eventfd, made readable when run is to end
	set  setting

	heap   dueHeap
	window window
	out    []byte   // verdicts to write
	free   []uint32 // ids to accept in this round
	buf    []byte

	latest   time.Duration // arrival of the newest packet
	clock    wallClock     // of the kernel's stamps
	overruns atomic.Uint64
}

// open makes the sockets in the calling thread's namespace and binds the queue.
func (q *queue) open() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("wan: queue %d: %w", q.number, err)
		}
	}()
	if q.nl, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER); err != nil {
		return fmt.Errorf("netlink socket: %w", err)
	}
	if err = unix.Bind(q.nl, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind netlink socket: %w", err)
	}
	if unix.SetsockoptInt(q.nl, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, readBuffer) != nil {
		unix.SetsockoptInt(q.nl, unix.SOL_SOCKET, unix.SO_RCVBUF, readBuffer) // as much as the kernel grants
	}
	// A full socket shows as a gap in the ids, not as an error on read.
	if err = unix.SetsockoptInt(q.nl, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return fmt.Errorf("NETLINK_NO_ENOBUFS: %w", err)
	}
	if q.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	q.buf = make([]byte, largestRead)
	if err = q.ask(appendBind(nil, q.number)); err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("bind: %w (is another emulator using this number in this namespace?)", err)
		}
		return fmt.Errorf("bind: %w", err)
	}
	q.set = q.wanted(nil, nil)
	if err = q.ask(appendSetting(nil, q.number, q.set, kernelMax, nlmAck)); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return nil
}

// ask sends a request and waits for the kernel's acknowledgement. It is used before the first
// packet can arrive.
func (q *queue) ask(request []byte) error {
	if err := q.send(request); err != nil {
		return err
	}
	deadline := time.Now().Add(answerWait)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("no answer from the kernel in %v", answerWait)
		}
		if err := q.poll(left); err != nil {
			return err
		}
		n, err := unix.Read(q.nl, q.buf)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		m, _, err := nextMessage(q.buf[:n])
		if err != nil {
			return err
		}
		if m.typ == msgError {
			if m.errno != 0 {
				return unix.Errno(m.errno)
			}
			return nil
		}
	}
}

// send writes one or more whole messages to the kernel, which acts on them
// before it returns.
func (q *queue) send(b []byte) error {
	for {
		_, err := unix.Write(q.nl, b)
		if err != unix.EINTR {
			return err
		}
	}
}

// wanted returns the setting for the shapes of all paths, with that of p, if
// not nil, replaced by s.
func (q *queue) wanted(p *path, s *Shape) setting {
	set := setting{copy: headBytes, gso: true}
	for _, o := range q.paths {
		shape := o.shape.Load()
		if o == p {
			shape = s
		}
		if shape.perPacket() {
			set.gso = false
		}
		if shape.Duplicate > 0 {
			set.copy = wholeBytes
		}
	}
	return set
}

// adapt sends the kernel the setting that p's new shape needs. The caller must hold Emulator.mu. An
// error of the kernel ends run later.
func (q *queue) adapt(p *path, s *Shape) error {
	set := q.wanted(p, s)
	if set == q.set {
		return nil
	}
	if q.nl < 0 {
		return errors.New("the emulator has ended")
	}
	if err := q.send(appendSetting(nil, q.number, set, kernelMax, 0)); err != nil {
		return fmt.Errorf("configure queue %d: %w", q.number, err)
	}
	q.set = set
	return nil
}

func (q *queue) close() {
	if q.nl >= 0 {
		unix.Close(q.nl)
	}
	if q.wake >= 0 {
		unix.Close(q.wake)
	}
	q.nl, q.wake = -1, -1
}

func (q *queue) now() time.Duration { return time.Since(q.start) }

// hurry makes the calling thread prompt: the finest timers and, if the process may, the highest
// priority, so that the programs under test do not delay the packets between them. back undoes
// both: the thread returns to the pool, because ending it would signal children it once forked.
func hurry() (back func(), err error) {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("timer slack: %w", err)
	}
	const highest = -20
	tid := unix.Gettid()
	was, err := unix.Getpriority(unix.PRIO_PROCESS, tid) // the kernel returns 20 - nice
	raised := err == nil && unix.Setpriority(unix.PRIO_PROCESS, tid, highest) == nil
	return func() {
		unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // 0 restores the default
		if raised {
			unix.Setpriority(unix.PRIO_PROCESS, tid, 20-was)
		}
	}, nil
}

// run reads the queue and releases packets when they are due. It locks its goroutine to a thread.
func (q *queue) run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	back, err := hurry()
	if err != nil {
		return fmt.Errorf("wan: queue %d: %w", q.number, err)
	}
	defer back()
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		unix.Write(q.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !stop() {
			<-woken // it must not write to a descriptor that is closed next
		}
	}()
	for ctx.Err() == nil {
		if err := q.step(); err != nil {
			return fmt.Errorf("wan: queue %d: %w", q.number, err)
		}
	}
	return nil
}

// step releases due packets, reads new ones, and waits if there are none.
func (q *queue) step() error {
	if err := q.releaseDue(); err != nil {
		return err
	}
	more, err := q.read()
	if err != nil {
		return err
	}
	if err := q.releaseDue(); err != nil || more {
		return err
	}
	wait := time.Duration(-1)
	if len(q.heap) > 0 {
		if wait = q.heap[0].due - q.now(); wait <= 0 {
			return nil
		}
	}
	return q.poll(wait)
}

// poll waits for a message, the end, or until wait has passed if that is not negative.
func (q *queue) poll(wait time.Duration) error {
	fds := [2]unix.PollFd{{Fd: int32(q.nl), Events: unix.POLLIN}, {Fd: int32(q.wake), Events: unix.POLLIN}}
	var timeout *unix.Timespec
	if wait >= 0 {
		t := unix.NsecToTimespec(int64(wait))
		timeout = &t
	}
	if _, err := unix.Ppoll(fds[:], timeout, nil); err != nil && err != unix.EINTR {
		return fmt.Errorf("ppoll: %w", err)
	}
	return nil
}

// read reads up to readAtOnce messages; more reports that there may be others.
func (q *queue) read() (more bool, err error) {
	for range readAtOnce {
		n, err := unix.Read(q.nl, q.buf)
		if err == unix.EAGAIN {
			return false, nil
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("read: %w", err)
		}
		for b := q.buf[:n]; len(b) > 0; {
			var m message
			if m, b, err = nextMessage(b); err != nil {
				return false, err
			}
			if err := q.take(&m); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// take handles one message from the kernel.
func (q *queue) take(m *message) error {
	switch m.typ {
	case msgPacket:
		return q.admit(m)
	case msgError:
		// ENOENT answers a verdict for a packet that was dropped with its interface.
		if m.errno != 0 && unix.Errno(m.errno) != unix.ENOENT {
			return fmt.Errorf("the kernel refused a request: %w", unix.Errno(m.errno))
		}
	}
	return nil
}

// trustAge is the maximum age of a kernel time stamp. If it is older, or the clock is seen to have been
// set, the current time is used instead.
const trustAge = 100 * time.Millisecond

// arrival returns when the packet reached the namespace, by the kernel's stamp if there is one: the
// time until this thread woke up is then part of the delay and not added to it. It never decreases.
func (q *queue) arrival(m *message) time.Duration {
	now := time.Now()
	at := now.Sub(q.start)
	if set := q.clock.wasSet(time.Duration(now.UnixNano()), at); !m.arrival.IsZero() && !set {
		// The stamp is truncated to microseconds; the packet must not seem older. Round takes the
		// monotonic reading away, which stamps have none of.
		if age := now.Round(0).Sub(m.arrival) - time.Microsecond; age > 0 && age < trustAge {
			at -= age
		}
	}
	q.latest = max(q.latest, at)
	return q.latest
}

// admit decides about a packet that has just arrived.
func (q *queue) admit(m *message) error {
	skipped, ok := q.window.add(m.id)
	if !ok {
		return fmt.Errorf("packet id %d does not follow those before it", m.id)
	}
	q.overruns.Add(uint64(skipped))
	p := q.paths[[2]uint32{m.in, m.out}]
	if p == nil { // shares the queue of its interface but has no path
		q.free = append(q.free, m.id)
		return nil
	}
	see := inspect(m.head, m.total, p.mtu, m.super)
	f, due, twice := p.link.admit(p.shape.Load(), q.arrival(m), see.wire)
	if f == fatePass && len(q.heap) >= heldMax {
		f = fateOverflow
	}
	switch f {
	case fateLost:
		p.tally.lost.Add(uint64(see.segments))
		return q.drop(m.id)
	case fateOverflow:
		p.tally.overflowed.Add(uint64(see.segments))
		return q.drop(m.id)
	}
	p.tally.packets.Add(uint64(see.segments))
	p.tally.bytes.Add(uint64(see.wire))
	p.tally.messages.Add(uint64(see.messages))
	held := packet{due: due, id: m.id, path: p}
	if twice && !m.super && len(m.head) == m.total {
		held.copy = append([]byte(nil), m.head...)
	}
	q.heap.push(held)
	return nil
}

func (q *queue) drop(id uint32) error {
	q.window.settle(id)
	return q.verdict(msgVerdict, verdictDrop, id)
}

// releaseDue accepts every packet that is due, in as few verdicts as their order allows, and writes
// all pending verdicts.
func (q *queue) releaseDue() error {
	now := q.now()
	var again []packet
	for len(q.heap) > 0 && q.heap[0].due <= now {
		h := q.heap.pop()
		h.path.tally.late(now - h.due)
		q.free = append(q.free, h.id)
		if h.copy != nil {
			again = append(again, h)
		}
	}
	if len(q.free) == 0 && len(q.out) == 0 {
		return nil
	}
	if err := q.acceptFree(); err != nil {
		return err
	}
	if err := q.flush(); err != nil {
		return err
	}
	for _, h := range again {
		if q.again.send(h.copy) == nil {
			h.path.tally.duplicated.Add(1)
		}
	}
	return nil
}

// acceptFree turns the ids in free into verdicts: one for all at the front of the window, one each
// for those behind a packet that still waits.
func (q *queue) acceptFree() error {
	for _, id := range q.free {
		q.window.settle(id)
	}
	last, ok := q.window.advance()
	batched := 0
	if ok {
		for _, id := range q.free {
			if int32(id-last) <= 0 {
				batched++
			}
		}
	}
	if batched > 1 {
		if err := q.verdict(msgBatch, verdictAccept, last); err != nil {
			return err
		}
	}
	for _, id := range q.free {
		if batched > 1 && int32(id-last) <= 0 {
			continue
		}
		if err := q.verdict(msgVerdict, verdictAccept, id); err != nil {
			return err
		}
	}
	q.free = q.free[:0]
	return nil
}

func (q *queue) verdict(typ uint16, verdict, id uint32) error {
	q.out = appendVerdict(q.out, typ, q.number, verdict, id)
	if len(q.out) >= flushAbove {
		return q.flush()
	}
	return nil
}

func (q *queue) flush() error {
	if len(q.out) == 0 {
		return nil
	}
	err := q.send(q.out)
	q.out = q.out[:0]
	if err != nil {
		return fmt.Errorf("write verdicts: %w", err)
	}
	return nil
}
