// Package wan emulates wide-area paths: delay, jitter, loss, duplication and
// rate for the packets that one network namespace, the lab's internet, forwards
// between its interfaces, and counters of what they carried. The kernel does
// the forwarding; the emulator only decides when and whether each packet goes
// on. It refuses to know sites, hosts, addresses and firewalls: a Path is two
// interfaces and two names. All state is in memory, and in one nftables table
// and the queues, which end with Serve or, at the latest, with the namespace.
//
// # How it works
//
// A forward rule per ordered pair of interfaces sends packets to an NFQUEUE, by
// the iptables target (through nft_compat), which kernels have that lack the
// nftables queue expression. One goroutine per queue, alone on its thread, reads
// the first 64 bytes of each packet, gives it a due time and answers when that
// has come; payload stays in the kernel. Super-packets (GSO) stay whole, unless
// a shape needs single packets: a rate below 500 Mbit/s, loss, duplication or
// reordering. Up to 64 paths have a queue each; with more, all paths of an entering
// interface share one. Answers go out in batches where the order of due times
// allows and singly where not. Duplicates are sent by a raw socket. It runs as
// root, or as an ordinary user who is root in a user namespace.
//
// A packet's due time counts from its arrival in the namespace by the kernel's
// stamp and is never early: it is released at its due time or, by as much as the
// machine is slow to wake, later. LateMax and LateAvg tell by how much. Held packets put no
// pressure on their senders, so Shape.Queue is the only buffer in front of a
// slow link; when it is full, the newest packet is dropped. A queue holds 65,536
// packets; one more is dropped too. Both count as Overflowed. The kernel tells of
// new packets through a socket buffer, 32 MiB for root and net.core.rmem_max for
// others; what does not fit is dropped unseen and told by Overruns.
//
// # What a message is
//
// The emulator sees packets and not writes. It counts as a message a UDP
// datagram with payload, and a TCP segment with payload and the PSH flag, which
// Linux sets on the last segment of a write. So for a conversation of small
// writes that wait for answers, Messages is exactly the number of writes. It is
// more than that where a write exceeds half the peer's window or the free send
// buffer (PSH in between) or a segment is sent again, and less where small
// writes follow each other so fast that they share a segment. A TLS record or
// a QUIC packet counts as whatever carries it. How many packets are in a
// super-packet the kernel does not tell: Packets, Bytes and a UDP super-packet's
// Messages take all but the last to fill the MTU, which is right for TCP. Only the
// first fragment of a datagram counts as a message, and behind an IPv6 extension
// header nothing does.
//
// # Figures
//
// By "isthmus-lab bench lab" at 10 ms one way, as root, on a virtual machine of two
// processors shared with other work; "busy" is with five to ten more programs
// than processors wanting to run.
//
//	                             quieter            busy
//	round trip p50/p90/p99, ms   20.5/20.6/21.0     20.6/23.5/25.2
//	late, average and worst      0.12 and 4.5 ms    0.36 and 4.8 ms
//	1 TCP stream                 8.0 Gbit/s         3.9 Gbit/s
//	  without emulator           13.7               5.8
//	4 TCP streams                14.7 Gbit/s        8.5 Gbit/s
//	  without emulator           14.2               7.4
//	1 stream at rate 1 Gbit/s    965 Mbit/s         923 Mbit/s
//	1 stream at rate 100 Mbit/s  96.5 Mbit/s        95.7 Mbit/s
//	jitter 5 ms: p5, p95         within 0.3 ms of 5.5 and 14.5 in both
//	20,000 packets, loss 0.1     every one accounted for in both
//	processor time when idle     0.3 to 0.5 ms a second in both, most of it the runtime's
//
// An ordinary user's threads have no priority over the programs under test, so
// on a busy machine the slowest percents of round trips take longer still.
package wan

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnsupported is returned by New where the kernel is not Linux.
var ErrUnsupported = errors.New("wan: the emulator needs Linux (network namespaces and NFQUEUE)")

// A Shape is what one direction of a path does to its packets. The zero Shape
// does nothing: packets are counted and released at once.
type Shape struct {
	// Delay is the one-way propagation delay, from the end of a packet's
	// transmission to its release.
	Delay time.Duration
	// Jitter varies Delay for each packet, drawn evenly from
	// [Delay-Jitter, Delay+Jitter] and never below zero. Order is kept all the
	// same: a packet that drew a short delay waits for those before it.
	Jitter time.Duration
	// Reorder lets a packet with a shorter delay overtake: Jitter then changes
	// the order of packets.
	Reorder bool
	// Loss is the probability, 0 to 1, that a packet is dropped. 1 cuts the
	// path.
	Loss float64
	// Duplicate is the probability, 0 to 1, that a packet arrives twice.
	Duplicate float64
	// Rate limits the path, in bits of IP packets per second; 0 is no limit.
	Rate int64
	// Queue is how many bytes may wait for the link before the next packet is
	// dropped; 0 chooses the bytes that Rate carries in 2*Delay (one round trip
	// where both directions are alike), and at least 128 KiB. Without a Rate
	// nothing waits and Queue means nothing.
	Queue int
}

// A Path is one ordered pair of places and the two interfaces between which
// its packets are forwarded.
type Path struct {
	From, To string // names for people and for Counters, such as site names
	In, Out  string // interface names in the namespace New is called in
	Shape
}

// Options are the settings of a whole Emulator. The zero value is good.
type Options struct {
	// Seed starts the random draws of every path (loss, duplicates, jitter). Two
	// runs with equal seeds that see equal packets do equal things.
	Seed uint64
	// FirstQueue is the first NFQUEUE number used in the namespace; the queues
	// after it follow without a gap.
	FirstQueue uint16
	// MaxQueues bounds the queues, and with them the threads; 0 means 64.
	// While the paths are no more than that each has its own; beyond it all
	// paths that enter by one interface share a queue.
	MaxQueues int
}

// A Counter is what one path has done so far.
type Counter struct {
	From, To string

	Packets    uint64        // IP packets carried, those on their way included
	Bytes      uint64        // bytes of these packets, IP header included
	Messages   uint64        // writes and datagrams among them, see the package comment
	Dropped    uint64        // packets not carried: Lost + Overflowed
	Lost       uint64        // dropped by Shape.Loss
	Overflowed uint64        // dropped because Shape.Queue (or the emulator's own bound) was full
	Duplicated uint64        // packets that were sent twice, each counted once in Packets
	LateMax    time.Duration // longest time from a packet's due time to its release
	LateAvg    time.Duration // mean of the same
}

// maxDelay bounds Delay and Jitter; no path on earth needs more.
const maxDelay = time.Minute

// Validate says what is wrong with s, naming the field and its value.
func (s Shape) Validate() error {
	switch {
	case s.Delay < 0 || s.Delay > maxDelay:
		return fmt.Errorf("delay %v is not between 0 and %v", s.Delay, maxDelay)
	case s.Jitter < 0 || s.Jitter > maxDelay:
		return fmt.Errorf("jitter %v is not between 0 and %v", s.Jitter, maxDelay)
	case !(s.Loss >= 0 && s.Loss <= 1):
		return fmt.Errorf("loss %v is not between 0 and 1", s.Loss)
	case !(s.Duplicate >= 0 && s.Duplicate <= 1):
		return fmt.Errorf("duplicate %v is not between 0 and 1", s.Duplicate)
	case s.Rate < 0:
		return fmt.Errorf("rate %d bit/s is negative", s.Rate)
	case s.Queue < 0:
		return fmt.Errorf("queue %d bytes is negative", s.Queue)
	}
	return nil
}
