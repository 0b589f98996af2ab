package carrier

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A LossWatch switches a connection to a loss-tolerant congestion control when it loses data. Only
// one goroutine at a time may call its Look. nil watches nothing.
type LossWatch struct {
	raw    syscall.RawConn
	losses losses
	next   time.Time
	lossy  bool
}

// WatchLoss returns the watch of what c sends, or nil where the kernel gives no information.
func WatchLoss(c *net.TCPConn) *LossWatch {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return &LossWatch{raw: raw}
}

// Look checks the connection, unless it was checked less than a second ago, and acts. Call it
// repeatedly while data is sent.
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

// act processes a sample, and switches the congestion control if necessary.
func (w *LossWatch) act(x lossSample, now time.Time) {
	if w.lossy = w.losses.lossy(x, now); w.lossy {
		w.raw.Control(func(fd uintptr) { // if that fails the connection continues unchanged
			unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, lossTolerant)
		})
	}
}

// Lossy reports whether the connection was found to lose data that no queue dropped.
func (w *LossWatch) Lossy() bool { return w != nil && w.lossy }
