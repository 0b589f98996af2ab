package lab

import (
	"github.com/vishvananda/netlink"
)

// A bucket is a rate limit of an interface's output.
type bucket struct {
	rate  uint64 // bytes per second
	burst uint32 // bytes that may be sent at once
	queue uint32 // bytes that may be queued
}

// bucketOf returns the bucket of an access link of rate bit/s: burst bytes of tokens, or 10 ms of
// them if that is 0, and up to 50 ms of queued packets.
func bucketOf(rate int64, burst int64) bucket {
	bytes := uint64(max(rate/8, 1))
	if burst == 0 {
		burst = int64(max(bytes/100, 64<<10))
	}
	return bucket{rate: bytes, burst: uint32(burst), queue: uint32(max(bytes/20, 64<<10))}
}

// throttle returns the bucket of a throttled kind of traffic: few packets at once and 100 ms of
// them queued, so that even a short measurement finds the rate.
func throttle(rate int64) bucket {
	bytes := uint64(max(rate/8, 1))
	return bucket{rate: bytes, burst: 4 << 10, queue: uint32(max(bytes/10, 4<<10))}
}

// limit attaches the bucket to the interface, as a child of parent.
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

// tbfHandle returns a handle for a limit with a parent that differs from the parent's.
func tbfHandle(parent uint32) uint32 {
	if parent == netlink.HANDLE_ROOT {
		return netlink.MakeHandle(1, 0)
	}
	return netlink.MakeHandle(2, 0)
}

// limitUDP limits packets that the rules put into the class 1:1 (by "meta priority set") to rate
// bit/s and nothing else: htb sends packets without a class at once.
func (c *configurer) limitUDP(name string, rate int64) {
	const unlimited = 10e9 // bit/s, of the class itself: the bucket below it is the limit
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
