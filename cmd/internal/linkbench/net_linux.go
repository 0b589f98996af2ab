package linkbench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/lab/wan/star"
)

// The hosts' addresses, and the name of the wire's end at each.
var (
	leftAddr  = netip.MustParseAddr("10.77.0.1")
	rightAddr = netip.MustParseAddr("10.77.0.2")
)

const wireName = "wire0"

// A wire is two hosts, one veth pair between them.
type wire struct {
	left, right *star.Space
	congestion  string // the system's own choice of congestion control
}

func newWire() (_ *wire, err error) {
	w := new(wire)
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.left, err = star.NewSpace(); err != nil {
		return nil, err
	}
	if w.right, err = star.NewSpace(); err != nil {
		return nil, err
	}
	var right *os.File
	err = w.right.Do(func() (err error) { right, err = os.Open("/proc/thread-self/ns/net"); return err })
	if err != nil {
		return nil, err
	}
	defer right.Close()
	err = w.left.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = wireName
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: wireName, PeerNamespace: netlink.NsFd(right.Fd())})
	})
	if err != nil {
		return nil, fmt.Errorf("laying a wire: %w", err)
	}
	err = errors.Join(w.left.Do(func() error { return plug(leftAddr) }), w.right.Do(func() error { return plug(rightAddr) }))
	if err != nil {
		return nil, err
	}
	if err := w.both(awaitUp); err != nil {
		return nil, err
	}
	return w, w.left.Do(func() error { // the file shows the reading thread's host
		text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
		w.congestion = strings.TrimSpace(string(text))
		return err
	})
}

// both runs f on both hosts.
func (w *wire) both(f func() error) error { return errors.Join(w.left.Do(f), w.right.Do(f)) }

func (w *wire) close() {
	for _, s := range []*star.Space{w.left, w.right} {
		if s != nil {
			s.Close()
		}
	}
}

// plug gives the calling thread's host an address and sets its end of the wire up.
func plug(a netip.Addr) error {
	link, err := netlink.LinkByName(wireName)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, 32)}}); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// awaitUp waits until the calling thread's end of the wire carries packets.
func awaitUp() error {
	const bound = 10 * time.Second
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		link, err := netlink.LinkByName(wireName)
		if err != nil {
			return err
		}
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %v for interface %s to come up", bound, wireName)
		}
	}
}

// limit holds what leaves the calling thread's host to rate bit/s, with 1 ms of
// tokens and 10 ms of queue; 0 takes the limit off.
func limit(rate uint64) error {
	link, err := netlink.LinkByName(wireName)
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
		return err // the two say that there was no limit
	}
	return nil
}

// onOneCPU calls f on the calling thread bound to the last processor that it
// may use. What f starts stays bound to it.
func onOneCPU(f func() error) error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("asking for processors: %w", err)
	}
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) {
			one.Zero()
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("binding to a processor: %w", err)
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &all))
}
