package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pion/stun/v4"

	"github.com/isthmus-grid/isthmus/internal/sleep"
)

// PathSizes are the sizes of IP packets that pass to a reflector and back, with fragmentation
// forbidden on the way there.
type PathSizes struct {
	To           netip.AddrPort
	Interface    int   // the largest packet of the path's first interface, in bytes
	Passed, Lost []int // sizes in bytes, the largest first
	Reported     int   // the largest size that a router reported (RFC 1191); 0: none did
	Err          string
}

// packetSizes are the known path MTUs: of Ethernet, PPPoE, several kinds of tunnels, and the IPv6
// minimum; below it the least with which QUIC works, a round number, and what every host takes in pieces
// (RFC 791). A STUN message, and with it the packet, is a multiple of four bytes.
var packetSizes = []int{1500, 1492, 1480, 1476, 1460, 1448, 1440, 1420, 1400, 1380, 1360, 1280, 1228, 1000, 576}

// Bounds of trying sizes: all of them together are about 20 kB.
const (
	sizeTries = 3
	sizePause = 10 * time.Millisecond  // between datagrams
	sizeWait  = 500 * time.Millisecond // for the answers, at least
	udpHeader = 28                     // of IPv4 and UDP, without options
)

// lookSizes sends a STUN server datagrams of all sizes that the interface supports, and makes it
// answer in the same size.
func (m *measurement) lookSizes(ctx context.Context, to netip.AddrPort) {
	s := &PathSizes{To: to}
	defer m.add(func(o *Observations) { o.Sizes = s })
	var c *net.UDPConn
	err := m.opts.Do(func() (err error) {
		if c, err = dialUDP(ctx, to, forbidFragments); err == nil {
			s.Interface, err = interfaceMTU(addrOf(c.LocalAddr()).Addr())
		}
		return err
	})
	if c != nil {
		defer c.Close()
	}
	if err != nil {
		s.Err = shortError(err)
		return
	}
	sizes := slices.DeleteFunc(slices.Clone(packetSizes), func(size int) bool { return size > s.Interface })
	q := newSizeQuestions(sizes)
	var reading sync.WaitGroup
	reading.Go(func() { q.read(c) })
	for range sizeTries {
		if !q.send(ctx, c, max(sizeWait, m.waits.estimate().RTO(0))) {
			break
		}
	}
	s.Reported = reportedMTU(c, s.Interface)
	c.Close()
	reading.Wait()
	s.Passed, s.Lost = q.outcome(sizes)
}

// dialUDP connects a socket to a STUN server, so that it receives ICMP errors of the path. control
// may be nil.
func dialUDP(ctx context.Context, to netip.AddrPort, control func(syscall.RawConn) error) (*net.UDPConn, error) {
	d := net.Dialer{}
	if control != nil {
		d.Control = func(_, _ string, rc syscall.RawConn) error { return control(rc) }
	}
	c, err := d.DialContext(ctx, "udp4", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// interfaceMTU returns the MTU of the interface with an address, in the network namespace of the
// calling thread.
func interfaceMTU(local netip.Addr) (int, error) {
	all, err := net.Interfaces()
	if err != nil {
		return 0, err
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return 0, err
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(net.IP(local.AsSlice())) {
				return i.MTU, nil
			}
		}
	}
	return 0, errors.New("no interface has the address " + local.String())
}

// sizeQuestions are the requests of each size, and which are unanswered.
type sizeQuestions struct {
	requests []*stun.Message

	mu   sync.Mutex // guards left
	left map[[stun.TransactionIDSize]byte]int
	done chan struct{} // closed when none is left
}

func newSizeQuestions(sizes []int) *sizeQuestions {
	q := &sizeQuestions{left: make(map[[stun.TransactionIDSize]byte]int), done: make(chan struct{})}
	for _, size := range sizes {
		r := paddedRequest(stun.NewTransactionID(), stun.AttrPadding, size)
		q.requests = append(q.requests, r)
		q.left[r.TransactionID] = size
	}
	return q
}

// paddedRequest returns a request that makes an IPv4 packet of size bytes, a multiple of four, by
// an attribute of the given type.
func paddedRequest(id [stun.TransactionIDSize]byte, attr stun.AttrType, size int) *stun.Message {
	r := stun.MustBuild(stun.NewTransactionIDSetter(id), stun.BindingRequest)
	r.Add(attr, make([]byte, max(0, size-udpHeader-len(r.Raw)-4)))
	return r
}

// send sends the unanswered requests, waits for answers, and reports whether to try again.
func (q *sizeQuestions) send(ctx context.Context, c *net.UDPConn, wait time.Duration) bool {
	for _, r := range q.requests {
		q.mu.Lock()
		_, open := q.left[r.TransactionID]
		q.mu.Unlock()
		if !open {
			continue
		}
		c.Write(r.Raw) // an error says no more than a missing answer, or belongs to an earlier one
		if sleep.For(ctx, sizePause) != nil {
			return false
		}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-q.done:
	case <-ctx.Done():
	}
	return false
}

// read processes answers until the socket is closed.
func (q *sizeQuestions) read(c *net.UDPConn) {
	b := make([]byte, 1500)
	for {
		n, err := c.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		m := &stun.Message{Raw: b[:n]}
		if err != nil || m.Decode() != nil || m.Type != stun.BindingSuccess {
			continue // the errors include routers' reports about a size
		}
		q.mu.Lock()
		if size, open := q.left[m.TransactionID]; open && n+udpHeader >= size {
			if delete(q.left, m.TransactionID); len(q.left) == 0 {
				close(q.done)
			}
		}
		q.mu.Unlock()
	}
}

func (q *sizeQuestions) outcome(sizes []int) (passed, lost []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, r := range q.requests {
		if _, open := q.left[r.TransactionID]; open {
			lost = append(lost, sizes[i])
		} else {
			passed = append(passed, sizes[i])
		}
	}
	return passed, lost
}
