package lab

import (
	"github.com/vishvananda/netlink"
)

// A bucket is a limit of what an interface sends.
type bucket struct {
	rate  uint64 // bytes a second
	burst uint32 // bytes that may go at once
	queue uint32 // bytes that may wait
}

// bucketOf returns the bucket of an access link of rate bit/s: burst bytes of tokens,
// or 10 ms of them where that is 0, and up to 50 ms of packets waiting.
func bucketOf(rate int64, burst int64) bucket {
	bytes := uint64(max(rate/8, 1))
	if burst == 0 {
		burst = int64(max(bytes/100, 64<<10))
	}
	return bucket{rate: bytes, burst: uint32(burst), queue: uint32(max(bytes/20, 64<<10))}
}

// throttle returns the bucket of a throttled kind of traffic: few packets at once
// and 100 ms of them waiting, so that also a short look at it finds the rate.
func throttle(rate int64) bucket {
	bytes := uint64(max(rate/8, 1))
	return bucket{rate: bytes, burst: 4 << 10, queue: uint32(max(bytes/10, 4<<10))}
}

// limit puts the bucket before the interface, as a child of parent.
func (c *configurer) limit(name string, parent uint32, b bucket) {
	link := c.link(name)
	c.do("limiting "+name, func() error {
		return c.nl.QdiscAdd(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: tbfHandle(parent), Parent: parent},
			Rate:       b.rate,
			Limit:      b.burst + b.queue,
			Buffer:     netlink.Xmittime(b.rate, b.burst),
		})
	})
}

// tbfHandle keeps the handle of a limit that has a parent apart from the parent's.
func tbfHandle(parent uint32) uint32 {
	if parent == netlink.HANDLE_ROOT {
		return netlink.MakeHandle(1, 0)
	}
	return netlink.MakeHandle(2, 0)
}

// limitUDP holds what the rules put into the class 1:1 (by "meta priority set") to
// rate bit/s and leaves all else alone: htb sends at once what has no class.
func (c *configurer) limitUDP(name string, rate int64) {
	const unlimited = 10e9 // bit/s, the class's own: the bucket below it is the limit
	link := c.link(name)
	root, class := netlink.MakeHandle(1, 0), netlink.MakeHandle(1, 1)
	c.do("scheduling on "+name, func() error {
		htb := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: root, Parent: netlink.HANDLE_ROOT})
		if err := c.nl.QdiscAdd(htb); err != nil {
			return err
		}
		return c.nl.ClassAdd(netlink.NewHtbClass(
			netlink.ClassAttrs{LinkIndex: link.Attrs().Index, Handle: class, Parent: root},
			netlink.HtbClassAttrs{Rate: unlimited, Ceil: unlimited, Buffer: 1 << 20, Cbuffer: 1 << 20, Quantum: 60000},
		))
	})
	c.limit(name, class, throttle(rate))
}
