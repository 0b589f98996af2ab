package carrier

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A LossWatch has a connection change to a congestion control that bears losses when it has some.
// Its Look belongs to one goroutine at a time. nil watches nothing.
type LossWatch struct {
	raw    syscall.RawConn
	losses losses
	next   time.Time
	lossy  bool
}

// WatchLoss returns the watch of what c sends, or nil where the kernel does not tell.
func WatchLoss(c *net.TCPConn) *LossWatch {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return &LossWatch{raw: raw}
}

// Look looks at the connection, unless that was done less than a second ago, and acts. Call
// it now and then while data is sent.
func (w *LossWatch) Look(now time.Time) {
	if w == nil || w.lossy || now.Before(w.next) {
		return
	}
	w.next = now.Add(lossEvery)
	var info *unix.TCPInfo
	w.raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if info != nil {
		w.act(lossSample{
			segments: info.Data_segs_out, again: info.Total_retrans,
			rtt: time.Duration(info.Rtt) * time.Microsecond, shortest: time.Duration(info.Min_rtt) * time.Microsecond,
		}, now)
	}
}

// act takes a sample, and does what is due.
func (w *LossWatch) act(x lossSample, now time.Time) {
	if w.lossy = w.losses.lossy(x, now); w.lossy {
		w.raw.Control(func(fd uintptr) { // where that fails the connection goes on as it is
			unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, lossTolerant)
		})
	}
}

// Lossy reports whether the connection was found to lose data that no queue dropped.
func (w *LossWatch) Lossy() bool { return w != nil && w.lossy }
