package carrier

import (
	"cmp"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/overlay"
)

// maxRetransmits is how many consecutive retransmissions a peer may leave unanswered: about a
// minute on a path with a small round trip. A peer that answers but does not read is sent window
// probes, which do not count here.
const maxRetransmits = 8

// dead returns why a connection cannot be used any more, as far as the kernel knows, or nil. A flow
// that waits for one socket does not notice the end of the other; this does.
func dead(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	var pending int
	var ierr error
	err = raw.Control(func(fd uintptr) {
		if info, ierr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); ierr == nil && info.State == tcpClose {
			// Both ends may also have closed regularly: an error shows the difference.
			pending, ierr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		}
	})
	if err := cmp.Or(err, ierr); err != nil {
		return err
	}
	if err := verdict(info, unix.Errno(pending)); err != nil {
		return fmt.Errorf("connection with %v: %w", c.RemoteAddr(), err)
	}
	return nil
}

const tcpClose = 7 // TCP_CLOSE of include/net/tcp_states.h

func verdict(info *unix.TCPInfo, pending unix.Errno) error {
	switch {
	case info.State == tcpClose && pending != 0:
		return pending
	case info.Retransmits >= maxRetransmits:
		return fmt.Errorf("%w: %d repetitions of the same data were not acknowledged", overlay.ErrTimeout, info.Retransmits)
	}
	return nil
}
