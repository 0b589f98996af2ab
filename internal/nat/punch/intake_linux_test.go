package punch

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// Datagrams that the kernel delivers in one piece are split as they were sent, including the
// shorter last one.
func TestIntakeSplitsRows(t *testing.T) {
	in, c := intakePair(t)
	const size = 1200
	cut := func(n int) []byte { // one write that is sent as datagrams of size
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size) })
		if err != nil {
			t.Fatal(err)
		}
		sent := make([]byte, n)
		for i := range sent {
			sent[i] = byte(i / size)
		}
		if _, err := c.Write(sent); err != nil {
			t.Fatal(err)
		}
		return sent
	}
	for _, n := range []int{10 * size, 10*size + 17, size, 5, 40 * size} {
		sent := cut(n)
		want := (n + size - 1) / size
		got := in.drain(t, want, 8)
		if len(got) != want || !bytes.Equal(bytes.Join(got, nil), sent) {
			t.Errorf("%d bytes came as %d datagrams, want %d", n, len(got), want)
		}
		for i, d := range got[:len(got)-1] {
			if len(d) != size {
				t.Errorf("datagram %d of %d bytes has %d", i, n, len(d))
			}
		}
	}
	// The kernel did join them: one call returned them all.
	cut(10 * size)
	in.drain(t, 1, 1)
	if in.got != 1 || in.rows[0].N != 10*size {
		t.Errorf("one system call brought %d rows, the first of %d bytes", in.got, in.rows[0].N)
	}
}
