// Package wan emulates wide-area paths: delay, jitter, loss, duplication and rate for the packets
// that one network namespace, the lab's internet, forwards between its interfaces, and counters of
// what they carried. The kernel does the forwarding; the emulator only decides when and whether
// each packet goes on. It does not know sites, hosts, addresses or firewalls: a Path is two
// interfaces and two names. All state is in memory, and in one nftables table and the queues, which
// end with Serve or, at the latest, with the namespace.
//
// # How it works
//
// A forward rule per ordered pair of interfaces sends packets to an NFQUEUE, by the iptables target
// (through nft_compat), which also exists in kernels without the nftables queue expression. One
// goroutine per queue, alone on its thread, reads the first 64 bytes of each packet, gives it a due
// time and answers at that time; payload stays in the kernel. Super-packets (GSO) stay whole,
// unless a shape needs single packets: a rate below 500 Mbit/s, loss, duplication or reordering. Up
// to 64 paths have a queue each; with more, all paths of an input interface share one. Verdicts are
// sent in batches where the order of due times allows, and otherwise singly. Duplicates are sent by
// a raw socket. It runs as root, or as an ordinary user who is root in a user namespace.
//
// A packet's due time counts from its arrival in the namespace by the kernel's stamp and is never
// early: it is released at its due time or later, by the wake-up latency of the machine. LateMax
// and LateAvg report by how much. Held packets exert no back-pressure on their senders, so
// Shape.Queue is the only buffer in front of a slow link; when it is full, the newest packet is
// dropped. A queue holds 65,536 packets; further ones are dropped too. Both count as Overflowed.
// The kernel reports new packets through a socket buffer, 32 MiB for root and net.core.rmem_max for
// others; packets that do not fit are dropped unseen and counted by Overruns.
//
// # Messages
//
// The emulator sees packets, not writes. It counts as a message a UDP datagram with payload, and a
// TCP segment with payload and the PSH flag, which Linux sets on the last segment of a write. So
// for a conversation of small writes that wait for answers, Messages is exactly the number of
// writes. It is more if a write exceeds half the peer's window or the free send buffer (PSH in
// between) or a segment is retransmitted, and less if small writes follow each other so fast that
// they share a segment. A TLS record or a QUIC packet counts as the segment or datagram that
// carries it. The kernel does not say how many packets are in a super-packet: Packets, Bytes and a
// UDP super-packet's Messages assume that all but the last fill the MTU, which is right for TCP.
// Only the first fragment of a datagram counts as a message, and nothing after an IPv6 extension
// header does.
//
// # Figures
//
// Measured by "isthmus-lab bench lab" at 10 ms one way, as root, on a virtual machine of two
// processors shared with other work; "busy" is with five to ten more runnable programs than
// processors.
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
// An ordinary user's threads have no priority over the programs under test, so on a busy machine
// the slowest few percent of round trips take longer still.
package wan

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnsupported is returned by New on systems other than Linux.
var ErrUnsupported = errors.New("wan: the emulator needs Linux (network namespaces and NFQUEUE)")

// A Shape is what one direction of a path does to its packets. The zero Shape
// does nothing: packets are counted and released at once.
type Shape struct {
	// Delay is the one-way propagation delay, from the end of a packet's
	// transmission to its release.
	Delay time.Duration
	// Jitter varies Delay for each packet, drawn uniformly from [Delay-Jitter, Delay+Jitter] and
	// never below zero. Order is kept nevertheless: a packet that drew a short delay waits for
	// those before it.
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
	// Queue is how many bytes may wait for the link before the next packet is dropped; 0 chooses
	// the bytes that Rate carries in 2*Delay (one round trip if both directions are alike), and at
	// least 128 KiB. Without a Rate nothing waits and Queue has no effect.
	Queue int
}

// A Path is one ordered pair of endpoints and the two interfaces between which its packets are
// forwarded.
type Path struct {
	From, To string // names for display and for Counters, such as site names
	In, Out  string // interface names in the namespace New is called in
	Shape
}

// Options are the settings of a whole Emulator. The zero value is valid.
type Options struct {
	// Seed initialises the random draws of every path (loss, duplicates, jitter). Two runs with
	// equal seeds and equal packets behave equally.
	Seed uint64
	// MaxQueues is the maximum number of NFQUEUE's queues, whose numbers in the namespace are from 0, and with them threads; 0 means 64. With at most
	// that many paths each has its own queue; with more, all paths that enter by one interface
	// share a queue.
	MaxQueues int
}

// A Counter holds the totals of one path so far.
type Counter struct {
	From, To string

	Packets    uint64        // IP packets carried, including those in transit
	Bytes      uint64        // bytes of these packets, including IP headers
	Messages   uint64        // writes and datagrams among them, see the package comment
	Dropped    uint64        // packets not carried: Lost + Overflowed
	Lost       uint64        // dropped by Shape.Loss
	Overflowed uint64        // dropped because Shape.Queue (or the emulator's own limit) was full
	Duplicated uint64        // packets that were sent twice, each counted once in Packets
	LateMax    time.Duration // longest time from a packet's due time to its release
	LateAvg    time.Duration // mean of the same
}

// maxDelay bounds Delay and Jitter; no path on earth needs more.
const maxDelay = time.Minute

// Validate returns an error that names an invalid field of s and its value, or nil.
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
