package runner

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/lab/wan/star"
)

// The hosts' addresses, and the network that they are in.
var (
	LeftAddr  = netip.MustParseAddr("10.77.0.1")
	RightAddr = netip.MustParseAddr("10.77.0.2")
	Network   = netip.PrefixFrom(LeftAddr, 24).Masked()
)

// WireName is the name of the wire's end at each host.
const WireName = "wire0"

// A Wire is two hosts and the veth pair between them.
type Wire struct {
	Left, Right *star.Space
	Congestion  string // the system's own choice of congestion control
}

// NewWire makes the hosts and waits until packets pass between them.
func NewWire() (_ *Wire, err error) {
	w := new(Wire)
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if w.Left, err = star.NewSpace(); err != nil {
		return nil, err
	}
	if w.Right, err = star.NewSpace(); err != nil {
		return nil, err
	}
	var right *os.File
	err = w.Right.Do(func() (err error) { right, err = os.Open("/proc/thread-self/ns/net"); return err })
	if err != nil {
		return nil, err
	}
	defer right.Close()
	err = w.Left.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = WireName
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: WireName, PeerNamespace: netlink.NsFd(right.Fd())})
	})
	if err != nil {
		return nil, fmt.Errorf("laying a wire: %w", err)
	}
	err = errors.Join(w.Left.Do(func() error { return plug(LeftAddr) }), w.Right.Do(func() error { return plug(RightAddr) }))
	if err != nil {
		return nil, err
	}
	if err := w.Both(func() error { return star.AwaitUp(WireName) }); err != nil {
		return nil, err
	}
	return w, w.Left.Do(func() error { // the file shows the reading thread's host
		text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
		w.Congestion = strings.TrimSpace(string(text))
		return err
	})
}

// Both runs f on both hosts.
func (w *Wire) Both(f func() error) error { return errors.Join(w.Left.Do(f), w.Right.Do(f)) }

// Close removes the hosts. Processes there keep their network until they end.
func (w *Wire) Close() {
	for _, s := range []*star.Space{w.Left, w.Right} {
		if s != nil {
			s.Close()
		}
	}
}

// plug gives the calling thread's host an address and sets its end of the wire up.
func plug(a netip.Addr) error {
	link, err := netlink.LinkByName(WireName)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(Network.Bits(), 32)}}); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// Limit limits what leaves either host to rate bit/s, with 1 ms of tokens and 10 ms of queue; 0
// removes the limit.
func (w *Wire) Limit(rate uint64) error { return w.Both(func() error { return Limit(WireName, rate) }) }

// Limit likewise limits what leaves the calling thread's host by one interface.
func Limit(name string, rate uint64) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	bytes := rate / 8
	burst := uint32(max(bytes/1000, 128<<10)) // at least two of the largest packets
	tbf := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       bytes, Limit: burst + uint32(bytes/100), Buffer: netlink.Xmittime(bytes, burst),
	}
	if rate > 0 {
		return netlink.QdiscReplace(tbf)
	}
	if err := netlink.QdiscDel(tbf); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return err // the two errors that mean that there was no limit
	}
	return nil
}

// SetCongestion makes both hosts use the first of the named congestion controls that they may, for
// connections made from now on. It returns the one in use.
func (w *Wire) SetCongestion(names ...string) (inUse string, err error) {
	const file = "/proc/sys/net/ipv4/tcp_congestion_control" // of the opening thread's host
	return inUse, w.Both(func() error {
		for _, name := range names {
			if os.WriteFile(file, []byte(name), 0) == nil {
				break
			}
		}
		text, err := os.ReadFile(file)
		inUse = strings.TrimSpace(string(text))
		return err
	})
}

// TotalBytes returns how many bytes have crossed the wire, in both directions together.
func (w *Wire) TotalBytes() (bytes uint64, err error) {
	return bytes, w.Left.Do(func() error {
		link, err := netlink.LinkByName(WireName)
		if err != nil {
			return err
		}
		if s := link.Attrs().Statistics; s != nil {
			bytes = s.TxBytes + s.RxBytes
		}
		return nil
	})
}

// OnCPU calls f on the calling thread, to which the goroutine must be locked, bound to one of the
// processors that it may use, the first of
// which is number 1; after the last comes the first again. Processes that f starts stay bound to it.
func OnCPU(number int, f func() error) error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("asking for processors: %w", err)
	}
	left := (number - 1) % all.Count()
	for cpu := range len(all) * 64 {
		if !all.IsSet(cpu) {
			continue
		}
		if left == 0 {
			one.Set(cpu)
		}
		left--
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("binding to a processor: %w", err)
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &all))
}
