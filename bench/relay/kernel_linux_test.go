//go:build system

package relay

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
)

// userBytes returns what a process has read and written through its own memory (proc(5),
// /proc/pid/io: rchar and wchar), and its peak memory in bytes.
func userBytes(t *testing.T, pid int) (moved, peak uint64) {
	t.Helper()
	for _, file := range []string{"io", "status"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var n uint64
			if c, _ := fmt.Sscanf(lines.Text(), "rchar: %d", &n); c == 1 {
				moved += n
			}
			if c, _ := fmt.Sscanf(lines.Text(), "wchar: %d", &n); c == 1 {
				moved += n
			}
			if c, _ := fmt.Sscanf(lines.Text(), "VmHWM: %d kB", &n); c == 1 {
				peak = n << 10
			}
		}
	}
	return moved, peak
}

// While a proxy process relays 200 MB, the kernel counts nearly nothing that passed through the
// process's own memory: only the tickets, and wake-ups. The proxy itself ends with an error if it
// copied a byte. Its memory stays small.
func TestRelayedBytesStayInTheKernel(t *testing.T) {
	r, err := newRig(t.Context(), Options{Self: []string{"/proc/self/exe", "part"}})
	if err != nil {
		t.Fatal(err)
	}
	pid := r.proxy.PID()
	before, _ := userBytes(t, pid)
	const size = 200 << 20
	send(t, r.relayed, size)
	after, peak := userBytes(t, pid)
	if moved := after - before; moved > 100_000 {
		t.Errorf("the proxy moved %d bytes through its memory while relaying %d", moved, size)
	}
	if peak > 100<<20 {
		t.Errorf("the proxy's memory grew to %d bytes", peak)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// send moves size bytes to the server, which must count as many.
func send(t *testing.T, w func(context.Context) (*net.TCPConn, error), size int) {
	t.Helper()
	c, err := w(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, message)
	c.Write([]byte{opSink})
	for left := size; left > 0; left -= len(buf) {
		if _, err := c.Write(buf[:min(left, len(buf))]); err != nil {
			t.Fatal(err)
		}
	}
	c.CloseWrite()
	var count [8]byte
	if _, err := io.ReadFull(c, count[:]); err != nil || binary.BigEndian.Uint64(count[:]) != uint64(size) {
		t.Fatalf("the server counted %d, %v; sent %d", binary.BigEndian.Uint64(count[:]), err, size)
	}
}
