package punch

import (
	"bytes"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/ipv4"
)

// intakePair returns an intake and a socket that sends to it.
func intakePair(t *testing.T) (*intake, *net.UDPConn) {
	t.Helper()
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp4", nil, pc.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pc.Close()
		c.Close()
	})
	pc.SetReadDeadline(time.Now().Add(patience))
	return newIntake(pc), c
}

// batch is the argument that quic-go passes to ReadBatch.
func batch(n int) []ipv4.Message {
	ms := make([]ipv4.Message, n)
	for i := range ms {
		ms[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 1452)}, OOB: make([]byte, 128)}
	}
	return ms
}

// drain reads n datagrams, up to most at a time.
func (in *intake) drain(t *testing.T, n, most int) (got [][]byte) {
	t.Helper()
	for len(got) < n {
		ms := batch(most)
		k, err := in.ReadBatch(ms, 0)
		if err != nil {
			t.Fatalf("after %d datagrams of %d: %v", len(got), n, err)
		}
		for _, m := range ms[:k] {
			if m.Addr == nil {
				t.Fatal("a datagram without a sender")
			}
			got = append(got, m.Buffers[0][:m.N])
		}
	}
	return got
}

// Datagrams are returned one by one as they were sent, whatever their sizes.
func TestIntakeKeepsDatagrams(t *testing.T) {
	in, c := intakePair(t)
	for _, most := range []int{1, 3, 8} {
		var sent [][]byte
		for i, size := range []int{1200, 1, 1452, 0, 40, 40, 1000} {
			sent = append(sent, bytes.Repeat([]byte{byte(i + 1)}, size))
			if _, err := c.Write(sent[i]); err != nil {
				t.Fatal(err)
			}
		}
		got := in.drain(t, len(sent), most)
		for i := range sent {
			if !bytes.Equal(got[i], sent[i]) {
				t.Errorf("%d at a time: datagram %d has %d bytes, want %d", most, i, len(got[i]), len(sent[i]))
			}
		}
	}
}

// A connection that has not processed what it was given gets no more before it has, or is over, or
// has made no progress for too long.
func TestIntakeHoldsBack(t *testing.T) {
	const size = 100
	synctest.Test(t, func(t *testing.T) {
		var in intake
		done := make(chan struct{})
		start := time.Now()
		at := start.Add(3 * patienceForProgress / 4)
		w := &watched{done: done, processed: func() uint64 {
			if time.Now().Before(at) {
				return 0
			}
			return size
		}}
		for range maxWaiting {
			in.waiting.add(size)
		}
		in.holdBack(w)
		if took := time.Since(start); took < at.Sub(start) || took > at.Sub(start)+nap {
			t.Errorf("held back for %v, until the connection had processed one after %v", took, at.Sub(start))
		}
		if n := in.waiting.count(size); n != maxWaiting-1 {
			t.Errorf("%d datagrams wait, want %d", n, maxWaiting-1)
		}

		// A connection that makes no progress at all is not waited for indefinitely.
		in.waiting.add(size)
		start = time.Now()
		in.holdBack(w)
		if took := time.Since(start); took < patienceForProgress || took > patienceForProgress+2*nap {
			t.Errorf("waited %v for progress", took)
		}
		if n := in.waiting.count(size); n != 0 {
			t.Errorf("%d datagrams wait after a reset", n)
		}

		for range maxWaiting {
			in.waiting.add(size)
		}
		close(done)
		start = time.Now()
		in.holdBack(w)
		if took := time.Since(start); took > nap {
			t.Errorf("held back for %v after the connection's end", took)
		}
	})
}

// Only the peer's datagrams count against the peer's share, and handshakes do not.
func TestIntakeCountsThePeer(t *testing.T) {
	in, c := intakePair(t)
	in.watched.Store(&watched{peer: addrPort(c.LocalAddr()), processed: func() uint64 { return 0 }})
	other, err := net.DialUDP("udp4", nil, in.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, s := range []struct {
		from  *net.UDPConn
		first byte
	}{{other, 0x40}, {c, 0xc0}, {c, 0x40}} {
		if _, err := s.from.Write([]byte{s.first, 1, 2}); err != nil {
			t.Fatal(err)
		}
	}
	in.drain(t, 3, 8)
	if n := in.waiting.count(0); n != 1 {
		t.Errorf("%d datagrams wait, want 1", n)
	}
}

// The backlog agrees with a list of all datagrams.
func TestBacklog(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var b backlog
	var all []int // sizes of what was handed out
	var processed, taken uint64
	for step := range 20_000 {
		if b.count(processed) < maxWaiting && rng.IntN(2) == 0 {
			for range rng.IntN(9) {
				size := 1 + rng.IntN(1452)
				all = append(all, size)
				b.add(size)
			}
		} else {
			for range rng.IntN(9) {
				if len(all) > 0 {
					taken += uint64(all[0])
					all = all[1:]
				}
			}
			processed = taken
		}
		if got := b.count(processed); got != len(all) {
			t.Fatalf("step %d: %d wait, want %d", step, got, len(all))
		}
	}
}
