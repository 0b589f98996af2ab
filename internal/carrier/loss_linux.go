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
	path   hostPair
	shared *LossyPaths
	losses losses
	next   time.Time
	lossy  bool
}

// WatchLoss returns the watch of what c sends, or nil where the kernel gives no information. It
// shares what it finds with the other watches of shared, which may be nil.
func WatchLoss(c *net.TCPConn, shared *LossyPaths) *LossWatch {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	path, ok := pathOf(c)
	if !ok {
		shared = nil
	}
	return &LossWatch{raw: raw, path: path, shared: shared}
}

// Look checks the connection, unless it was checked less than a second ago, and acts. Call it
// repeatedly while data is sent.
func (w *LossWatch) Look(now time.Time) {
	if w == nil || w.lossy || now.Before(w.next) {
		return
	}
	w.next = now.Add(lossEvery)
	if w.shared.lossy(w.path, now) {
		w.tolerate()
		return
	}
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
	if w.losses.lossy(x, now) {
		w.shared.found(w.path, now)
		w.tolerate()
	}
}

func (w *LossWatch) tolerate() {
	w.lossy = true
	tolerateLoss(w.raw)
}

// TolerateLoss gives a connection the loss-tolerant congestion control, before it has lost anything.
func TolerateLoss(c *net.TCPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		tolerateLoss(raw)
	}
}

// tolerateLoss switches the congestion control; if that fails the connection continues unchanged.
func tolerateLoss(c syscall.RawConn) {
	c.Control(func(fd uintptr) {
		unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, lossTolerant)
	})
}

// Lossy reports whether the connection, or another one on its path, was found to lose data that no
// queue dropped.
func (w *LossWatch) Lossy() bool { return w != nil && w.lossy }
