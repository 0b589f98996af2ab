package punch

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/net/ipv4"
)

const (
	// A connection of quic-go drops arriving datagrams while 256 wait for its goroutine, 3 ms at 1
	// Gb/s, and takes that for congestion: on a busy machine only a small part of the rate remains.
	// So at most maxWaiting are handed to it; the rest waits in the socket's buffer, which holds
	// thousands.
	maxWaiting = 128

	nap = 50 * time.Microsecond // between checks of how many still wait; half of maxWaiting take about as long

	// After this time without progress, some of the counted datagrams are not the connection's, for
	// example because another host sends from the peer's address.
	patienceForProgress = 10 * time.Millisecond
)

const (
	readAtOnce  = 4        // datagrams, or rows of them, per system call
	largestRow  = 64 << 10 // bytes of datagrams that the kernel has joined
	controlSize = 128      // bytes of control messages with each
)

// An intake is the UDP socket as quic-go reads it. It makes the kernel deliver datagrams of one
// sender in rows, where it can (UDP_GRO), which saves most of the system calls and of the
// processing in the kernel, and it hands out no more than the connection keeps up with. Its state
// belongs to the goroutine that reads.
type intake struct {
	*net.UDPConn
	packets *ipv4.PacketConn // the same socket

	rows []ipv4.Message // result of the last system call; allocated by the first
	got  int            // number of valid rows
	row  int            // the next one to hand out, and the offset in it
	at   int
	size int            // of its datagrams
	from netip.AddrPort // its sender

	watched atomic.Pointer[watched] // nil before there is a connection
	waiting backlog
}

// watched is the connection whose backlog is limited.
type watched struct {
	peer      netip.AddrPort
	processed func() uint64 // bytes of datagrams that it has processed since watch was called
	done      <-chan struct{}
}

func newIntake(socket *net.UDPConn) *intake {
	joinDatagrams(socket)
	return &intake{UDPConn: socket, packets: ipv4.NewPacketConn(socket)} // also reads IPv6
}

// watch limits the datagrams handed out to what conn processes.
func (in *intake) watch(conn *quic.Conn) {
	before := conn.ConnectionStats().BytesReceived
	in.watched.Store(&watched{
		peer: addrPort(conn.RemoteAddr()), done: conn.Context().Done(),
		processed: func() uint64 { return conn.ConnectionStats().BytesReceived - before },
	})
}

// ReadBatch is called by quic-go to read. It fills each of ms with a datagram and returns how many
// it filled.
func (in *intake) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	w := in.watched.Load()
	if w != nil {
		in.holdBack(w)
	}
	if in.row == in.got {
		if err := in.receive(flags); err != nil {
			return 0, err
		}
	}
	n := 0
	for ; n < len(ms) && in.row < in.got; n++ {
		from := in.from // next may move to another row
		data := in.next(&ms[n])
		// Datagrams of other senders and those with long headers may not be the connection's.
		if w != nil && from == w.peer && len(data) > 0 && data[0]&0x80 == 0 {
			in.waiting.add(len(data))
		}
	}
	return n, nil
}

// holdBack waits until the connection has processed enough.
func (in *intake) holdBack(w *watched) {
	last, since := w.processed(), time.Now()
	for in.waiting.count(last) >= maxWaiting {
		select {
		case <-w.done:
			return
		case <-time.After(nap):
		}
		if now := w.processed(); now != last {
			last, since = now, time.Now()
		} else if time.Since(since) > patienceForProgress {
			in.waiting.reset(now)
		}
	}
}

// receive reads from the socket.
func (in *intake) receive(flags int) error {
	if in.rows == nil {
		in.rows = make([]ipv4.Message, readAtOnce)
		for i := range in.rows {
			in.rows[i] = ipv4.Message{Buffers: [][]byte{make([]byte, largestRow)}, OOB: make([]byte, controlSize)}
		}
	}
	in.row, in.got = 0, 0
	n, err := in.packets.ReadBatch(in.rows, flags)
	if err != nil {
		return err
	}
	in.got = n
	if n > 0 {
		in.begin()
	}
	return nil
}

// begin starts the next row.
func (in *intake) begin() {
	m := &in.rows[in.row]
	in.at, in.from = 0, addrPort(m.Addr)
	in.size = joinedSize(m.OOB[:m.NN])
	if in.size <= 0 {
		in.size = m.N
	}
}

// next hands out one datagram; the data returned is the intake's.
func (in *intake) next(m *ipv4.Message) []byte {
	row := &in.rows[in.row]
	data := row.Buffers[0][in.at:min(in.at+in.size, row.N)]
	m.N = copy(m.Buffers[0], data) // quic-go cannot use larger ones than its buffers
	m.NN = copy(m.OOB, row.OOB[:row.NN])
	m.Addr, m.Flags = row.Addr, row.Flags
	if in.at += len(data); in.at >= row.N {
		if in.row++; in.row < in.got {
			in.begin()
		}
	}
	return data[:m.N]
}

// A backlog counts datagrams that were handed out and not processed yet, of which only the
// processed bytes are known.
type backlog struct {
	bytes uint64 // handed out
	ends  [2 * maxWaiting]uint64
	first int // index in ends: where in the bytes the oldest waiting datagram ends
	n     int
}

func (b *backlog) add(size int) {
	b.bytes += uint64(size)
	if b.n == len(b.ends) { // not if count was called before
		b.first, b.n = (b.first+1)%len(b.ends), b.n-1
	}
	b.ends[(b.first+b.n)%len(b.ends)] = b.bytes
	b.n++
}

// count returns how many datagrams wait when the given number of bytes is processed.
func (b *backlog) count(processed uint64) int {
	for b.n > 0 && b.ends[b.first] <= processed {
		b.first, b.n = (b.first+1)%len(b.ends), b.n-1
	}
	return b.n
}

// reset assumes that no datagram waits.
func (b *backlog) reset(processed uint64) {
	b.bytes, b.first, b.n = processed, 0, 0
}
